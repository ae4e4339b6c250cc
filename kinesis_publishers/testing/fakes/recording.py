"""Tools that run publishers and take their records: scripts, recorders, a shard reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Self, TypeAlias, TypeVar

from attrs import field, frozen

from kinesis_publishers.abc import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
)
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.config import AggregationMode, PendingConfig, Properties
from kinesis_publishers.engine.consumer_context import ConsumerContext
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.events import Event
from kinesis_publishers.model import (
    Record,
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.testing.fakes.planes import FakeControlPlane, FakeStream
from kinesis_publishers.testing.fakes.samples import sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock

__all__ = [
    "OnDelivery",
    "ProcessBatch",
    "RecordingConsumer",
    "RecordingSink",
    "ScriptedPublisher",
    "ScriptedPublisherFactory",
    "ScriptedRun",
    "ShardReader",
    "assert_shard_is_read",
    "finish",
]

ProcessBatch: TypeAlias = "Callable[[RecordBatch], Awaitable[SequenceNumber | None]]"
_T = TypeVar("_T")
OnDelivery: TypeAlias = Callable[[Delivery], Awaitable[None]]


class RecordingConsumer(RecordBatchConsumer):
    """Takes what a publisher delivers.

    Args:
        process: says what has been processed after each batch; unless it is given, everything has.

    Attributes:
        batches: every batch, in order, empty ones included.
        space_requests: every (records, bytes) that :meth:`wait_for_space` was asked for.
        history: ``"space"`` and ``"batch"`` in the order in which they came.
    """

    def __init__(self, process: ProcessBatch | None = None) -> None:
        self._process = process
        self._processed: SequenceNumber | None = None
        self.batches: list[RecordBatch] = []
        self.space_requests: list[tuple[int, int]] = []
        self.history: list[str] = []

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch]

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        self.history.append("space")
        self.space_requests.append((records, payload_bytes))

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.history.append("batch")
        self.batches.append(batch)
        if self._process is not None:
            return await self._process(batch)
        self._processed = batch.last_sequence_number or self._processed
        return self._processed


class RecordingSink(DeliverySink):
    """Takes what a fetcher delivers: ``deliveries`` and ``statuses`` list it in order.

    Args:
        on_delivery: is awaited with each delivery before it counts as processed: where a test
            blocks, or raises.
        release: give each delivery's share of the pool back at once; otherwise the test does.
    """

    def __init__(self, on_delivery: OnDelivery | None = None, *, release: bool = True) -> None:
        self._on_delivery = on_delivery
        self._release = release
        self.deliveries: list[Delivery] = []
        self.statuses: list[ShardStatus] = []

    @property
    def records(self) -> list[Record]:
        return [record for delivery in self.deliveries for record in delivery.batch]

    def records_of(self, shard_id: str) -> list[Record]:
        """Return the records of one shard, in the order of delivery."""
        return [record for record in self.records if record.shard_id == shard_id]

    async def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self._on_delivery is not None:
            await self._on_delivery(delivery)
        if self._release:
            delivery.release()

    def observe(self, status: ShardStatus) -> None:
        self.statuses.append(status)


@frozen(kw_only=True)
class ScriptedRun:
    """One ``run`` of a script: it delivers, then returns or fails.

    Attributes:
        batches: the deliveries, in order.
        result: what is returned.
        error: what is raised instead.
    """

    batches: Sequence[RecordBatch] = ()
    result: RunResult = RunResult.INCOMPLETE
    error: Exception | None = None


class ScriptedPublisher(RecordPublisher):
    """Does one :class:`ScriptedRun` after the other; after the last one the shard has ended."""

    def __init__(self, runs: Sequence[ScriptedRun]) -> None:
        self._runs = deque(runs)
        #: What the consumer answered to each batch.
        self.processed: list[SequenceNumber | None] = []

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        if not self._runs:
            return RunResult.COMPLETE
        script = self._runs.popleft()
        for batch in script.batches:
            await consumer.wait_for_space(len(batch), batch.payload_bytes)
            self.processed.append(await consumer(batch))
        if script.error is not None:
            raise script.error
        return script.result


class ScriptedPublisherFactory(RecordPublisherFactory):
    """Makes a scripted publisher each time; ``scripts`` are the runs of the first one, and so on.

    Attributes:
        positions: where each publisher was told to begin.
    """

    def __init__(self, *scripts: Sequence[ScriptedRun]) -> None:
        self._scripts = deque(scripts)
        self.positions: list[StartingPosition] = []
        self.publishers: list[ScriptedPublisher] = []
        self.is_closed = False

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        """Return a factory of empty shards: a configuration has no script."""
        return cls()

    async def create(self, starting_position: StartingPosition, shard: Shard) -> ScriptedPublisher:
        self.positions.append(starting_position.require_pinned())
        script = self._scripts.popleft() if self._scripts else ()
        self.publishers.append(ScriptedPublisher(script))
        return self.publishers[-1]

    async def close(self) -> None:
        self.is_closed = True


_STEP_SECONDS = 1.0
# For each step: some ten seconds of real time for what takes its time on a slow machine.
_REAL_SECONDS = 0.02


async def finish(
    work: Awaitable[_T],
    clock: ManualClock,
    *,
    within: float = 600.0,
    on_step: Callable[[], None] | None = None,
) -> _T:
    """Run ``work`` to its end while ``clock`` moves on; return what it returns.

    The test fails if it takes more than ``within`` seconds of that clock. ``on_step`` is called
    each time that the clock has moved on; what it raises ends ``work``.
    """
    task = asyncio.ensure_future(work)
    try:
        await clock.settle()
        deadline = clock.monotonic() + within
        while not task.done() and clock.monotonic() < deadline:
            await clock.advance(_STEP_SECONDS)
            if on_step is not None:
                on_step()
            if not (clock.is_awaited or task.done()):
                # It may wait for something real, as a thread that reads a file.
                await asyncio.wait([task], timeout=_REAL_SECONDS)
        assert task.done(), f"not finished after {within:g} s"
        return await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@frozen(kw_only=True)
class ShardReader:
    """The surroundings of a consumer of a shard or of a range in a test.

    Attributes:
        clock: the clock, which the factory uses too.
        events: the events that the consumer has reported.
        fails_on_data_loss: as ``kinesis.failondataloss``.
        aggregation: as ``kinesis.aggregation``.
        fails_on_invalid: whether ``kinesis.aggregation.on-invalid`` is ``fail``.
        control_plane: what answers when the shards are listed or the retention is needed. The
            stream of a shard that a consumer reads is added if it is missing.
    """

    factory: RecordPublisherFactory
    clock: ManualClock = field(factory=ManualClock)
    sink: RecordingSink = field(factory=RecordingSink)
    pool: PendingPool = field(
        factory=lambda: PendingPool(
            max_records=PendingConfig.max_records.default, max_bytes=PendingConfig.max_bytes.default
        )
    )
    events: list[Event] = field(factory=list)
    fails_on_data_loss: bool = True
    aggregation: AggregationMode = AggregationMode.AUTO
    fails_on_invalid: bool = False
    control_plane: FakeControlPlane = field(
        factory=lambda: FakeControlPlane(FakeStream([sample_shard()]))
    )

    @property
    def context(self) -> ConsumerContext:
        """What every consumer of this reader shares."""
        return ConsumerContext(
            create_publisher=self.factory.create,
            pool=self.pool,
            sink=self.sink,
            aggregates=Deaggregator(
                self.aggregation,
                self.events.append,
                self.control_plane.list_shards,
                fails_on_invalid=self.fails_on_invalid,
            ),
            data_loss=DataLossGuard(
                fail=self.fails_on_data_loss,
                events=self.events.append,
                clock=self.clock,
                describe=self.control_plane.describe_stream,
            ),
            clock=self.clock,
            events=self.events.append,
        )

    def consumer(
        self, progress: ShardProgress | None = None, *, shard: Shard | None = None
    ) -> ShardConsumer:
        """Return a consumer that begins at ``progress``, at TRIM_HORIZON unless it is given."""
        shard = shard or sample_shard()
        streams = self.control_plane.streams
        if all(one.arn != shard.stream_arn for one in streams):
            streams.append(FakeStream([shard], arn=shard.stream_arn))
        start = progress or ShardProgress(position=StartingPosition.trim_horizon())
        return ShardConsumer(shard, start, self.context)

    async def read(
        self, progress: ShardProgress | None = None, *, shard: Shard | None = None
    ) -> ShardProgress:
        """Read to the end of the shard; return how far it has been read."""
        consumer = self.consumer(progress, shard=shard)
        await finish(consumer.run(), self.clock)
        return consumer.progress


async def assert_shard_is_read(
    factory: RecordPublisherFactory,
    expected: Sequence[Record],
    *,
    clock: ManualClock,
    start: StartingPosition | None = None,
    shard: Shard | None = None,
) -> ShardReader:
    """Read a shard to its end with the publisher of ``factory``, and check what every one owes.

    Each record of ``expected`` is delivered once, in order; the progress follows every delivery and
    ends durable; the pool is empty again. The same call serves every kind of publisher, whose
    context uses ``clock``. What took part is returned for further checks.
    """
    reader = ShardReader(factory=factory, clock=clock)
    begin = ShardProgress(position=start or StartingPosition.trim_horizon())
    progress = await reader.read(begin, shard=shard)
    assert list(map(_identity, reader.sink.records)) == list(map(_identity, expected))
    assert progress.is_ended, f"the shard was left at {progress.position} and not marked as ended"
    for delivery in reader.sink.deliveries:
        delivered = delivery.batch.last_sequence_number
        assert delivered is not None
        assert delivery.progress.processed == delivered.whole
    if expected:
        assert progress.processed is not None
        assert progress.processed.sequence_number == expected[-1].sequence_number
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0), "the pool is not empty"
    return reader


def _identity(record: Record) -> tuple[object, ...]:
    place = record.sequence_number, record.sub_sequence_number
    return *place, record.data, record.partition_key
