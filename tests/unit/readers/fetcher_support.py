"""A fetcher over fakes: streams and shards that a test changes while they are read."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from kinesis_publishers import (
    Event,
    KinesisDataFetcher,
    PublisherContext,
    Shard,
    ShardAssigner,
    ShardProgress,
    StartingPosition,
    StreamProgress,
)
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.assembly import Services
from kinesis_publishers.config import AggregationMode, DiscoveryConfig, PollingConfig, ShardOrder
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.engine.slow_calls import SlowCalls
from kinesis_publishers.model import Positions, Scope
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeControlPlane,
    FakeDataPlane,
    FakeStream,
    RecordingSink,
    ShardBehaviour,
    StoredShard,
    sample_records,
    sample_shard,
    shard_name,
)
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kinesis_publishers import Delivery, DeliverySink
    from kinesis_publishers.errors import ServiceError
    from kinesis_publishers.model import ChildShard

__all__ = ["Blocks", "World", "child_of", "failure", "other_tasks", "progress_of", "records_of"]

POLICY = RetryPolicy(max_retries=3, base_seconds=0.3, max_seconds=1.0, exponent=1.5)
POLLING = PollingConfig(
    max_records=10_000,
    interval_seconds=0.2,
    adaptive_reads=False,
    get_records_retry=POLICY,
    get_iterator_retry=POLICY,
)


def records_of(number: int, count: int = 3, *, first: int = 0) -> list:
    """Return records that the shard ``number`` holds."""
    return sample_records(count, first=first, shard=sample_shard(number))


def child_of(*parents: int, number: int) -> ChildShard:
    """Return the shard ``number`` as the last answers of its parents name it."""
    return evolve(
        SUCCESSOR, shard_id=shard_name(number), parent_shard_ids=tuple(map(shard_name, parents))
    )


def progress_of(stream: FakeStream, **shards: ShardProgress) -> dict[str, StreamProgress]:
    """Return what ``resume`` takes; the shards are named ``s0``, ``s1`` and so on."""
    named = {shard_name(int(name[1:])): one for name, one in shards.items()}
    return {stream.arn: StreamProgress(identity=stream.identity, shards=named)}


def failure(kind: type[ServiceError], operation: str = "GetRecords") -> ServiceError:
    """Return what a call fails with."""
    return kind(f"{operation} failed", operation=operation, code=kind.__name__)


def other_tasks() -> set[asyncio.Task[object]]:
    """Return the tasks that are left behind."""
    return asyncio.all_tasks() - {asyncio.current_task()}


class Blocks:
    """Blocks the deliveries of one shard until it is opened."""

    def __init__(self, shard_id: str = shard_name(0)) -> None:
        self.shard_id = shard_id
        self.gate = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        if delivery.shard.shard_id == self.shard_id:
            await self.gate.wait()


@define(kw_only=True)
class World:
    """What exists outside a fetcher, and what the fetcher is made of."""

    stream: FakeStream = field(factory=FakeStream)
    streams: list[FakeStream] = field(factory=list)
    shards: dict[str, ShardBehaviour] = field(factory=dict)
    control_plane: FakeControlPlane = field(init=False)
    data_plane: FakeDataPlane = field(init=False)
    clock: ManualClock = field(factory=ManualClock)
    sink: DeliverySink = field(factory=RecordingSink)
    pool: PendingPool = field(
        factory=lambda: PendingPool(max_records=1_000_000, max_bytes=1024 * 1024 * 1024)
    )
    events: list[Event] = field(factory=list)
    initial_position: StartingPosition = field(factory=StartingPosition.trim_horizon)
    initial_shards: Mapping[str, ShardProgress] = field(factory=dict)
    parents_first: bool = True
    assigner: ShardAssigner = field(factory=ShardAssigner)
    fails_on_data_loss: bool = True
    listing_seconds: float = 10.0

    def __attrs_post_init__(self) -> None:
        self.streams = self.streams or [self.stream]
        self.control_plane = FakeControlPlane(*self.streams)
        self.data_plane = FakeDataPlane(self.shards)

    def add(
        self, number: int, *, behaviour: ShardBehaviour | None = None, **lineage: int
    ) -> ShardBehaviour:
        """Add an open shard with three records to the stream; return what decides its answers."""
        shard = sample_shard(number, **lineage)
        self.stream.add(shard)
        return self.shards.setdefault(shard.shard_id, behaviour or StoredShard(records_of(number)))

    def add_closed(self, number: int, **lineage: int) -> ShardBehaviour:
        """Add a shard that takes no more records."""
        shard = self.add(number, **lineage)
        self.close(number)
        return shard

    def close(self, number: int, *child_shards: ChildShard) -> None:
        """Let a shard end after what it holds; its last answer names ``child_shards``."""
        self.shards[shard_name(number)].close(*child_shards)
        self.stream.close(shard_name(number))

    def fetcher(
        self,
        resume: Mapping[str, StreamProgress] | None = None,
        end: StartingPosition | None = None,
    ) -> KinesisDataFetcher:
        return KinesisDataFetcher(self.parts(), self.sink, resume=resume, end=end)

    def parts(self) -> Services:
        """Return what a fetcher or a reader of ranges is made of."""
        discovery = ShardDiscovery(
            self.control_plane,
            DiscoveryConfig(
                interval_seconds=self.listing_seconds,
                list_shards_retry=POLICY,
                describe_retry=POLICY,
                shard_order=ShardOrder.PARENTS_FIRST if self.parents_first else ShardOrder.NONE,
            ),
            self.clock,
            events=self.events.append,
        )
        context = PublisherContext(
            data_plane=self.data_plane,
            control_plane=self.control_plane,
            clock=self.clock,
            events=self.events.append,
        )
        return Services(
            streams=tuple(stream.name for stream in self.streams),
            initial=Positions(
                self.initial_position,
                {
                    Scope(shard_id=shard_id): None if one.is_ended else one.position
                    for shard_id, one in self.initial_shards.items()
                },
            ),
            factory=(polling := PollingRecordPublisherFactory(POLLING, context)),
            polling=polling,
            discovery=discovery,
            pool=self.pool,
            aggregates=Deaggregator(
                AggregationMode.AUTO, self.events.append, discovery.list_shards
            ),
            data_loss=DataLossGuard(
                fail=self.fails_on_data_loss,
                events=self.events.append,
                clock=self.clock,
                describe=discovery.describe_now,
                has_shard=discovery.has_shard,
            ),
            clock=self.clock,
            events=self.events.append,
            slow_calls=SlowCalls(60.0, self.clock, self.events.append),
            assigner=self.assigner,
        )

    @asynccontextmanager
    async def running(
        self, fetcher: KinesisDataFetcher | None = None
    ) -> AsyncIterator[KinesisDataFetcher]:
        """Run a fetcher in the background, and stop it at the end."""
        fetcher = fetcher or self.fetcher()
        task = asyncio.create_task(fetcher.run())
        try:
            await self.clock.settle()
            yield fetcher
            fetcher.stop()
            await self.clock.settle()
            assert task.done(), "stop() has not made run() return"
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def started(self) -> list[tuple[str, StartingPosition]]:
        """Return which shards were asked for an iterator, and where, in order."""
        return [(call.shard_id, call.position) for call in self.data_plane.iterator_calls]

    def events_of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def shard(self, number: int) -> Shard:
        return next(one for one in self.stream.shards if one.shard_id == shard_name(number))
