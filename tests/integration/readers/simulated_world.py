"""A stream of the local service in simulated time, what happens to it, and what reads it.

What is real: the fetcher, the publishers, registration, framing and decoding, and the service with
its limits and faults. What is not: HTTP, signatures and the passing of time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kinesis_publishers import PublisherContext, StartingPosition
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.assembly import Services, publisher_factory_class
from kinesis_publishers.config import AggregationMode, DiscoveryConfig
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.engine.slow_calls import SlowCalls
from kinesis_publishers.model import Positions
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.local_kinesis import Limits
from kinesis_publishers.testing.local_kinesis.in_process import (
    InProcessControlPlane,
    InProcessDataPlane,
)
from kinesis_publishers.testing.local_kinesis.operations.shards import scale_shards, split_shard
from kinesis_publishers.testing.local_kinesis.service import KinesisService
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kinesis_publishers import EventSink, Properties
    from kinesis_publishers.abc import ControlPlane, DataPlane
    from kinesis_publishers.testing.local_kinesis import Behaviour

_T = TypeVar("_T")

STREAM = "orders"
KEYS = 12


class SimulatedWorld:
    """A service with one stream of two shards."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.clock = ManualClock()
        self.service = KinesisService(Limits.aws(), self.clock, behaviour)
        self.data_plane: DataPlane = InProcessDataPlane(self.service)
        self.control_plane: ControlPlane = InProcessControlPlane(self.service)
        self.pool = PendingPool(max_records=60, max_bytes=6_000)
        self.put_count = 0
        self.service.state.create(STREAM, "PROVISIONED", 2)

    def put(self, count: int) -> None:
        """Store records whose payloads say their place within their partition key."""
        records = [
            (f"key-{index % KEYS}", f"{index % KEYS}:{index:06d}".encode().ljust(100, b"."))
            for index in range(self.put_count, self.put_count + count)
        ]
        self.put_count += count
        with self.service.lock:
            self.service.state.write(STREAM, records)

    def numbers(self) -> dict[str, list[int]]:
        """Return the sequence numbers that each shard holds."""
        with self.service.lock:
            state = self.service.state
            shards = state.find(STREAM).retained_shards(state.now_ms())
            # Parsing all records at each look would take most of the time.
            return {one.shard_id: list(one._numbers) for one in shards}  # noqa: SLF001 - as above

    def reshard(self, shard_count: int) -> None:
        with self.service.lock:
            stream = self.service.state.find_active(STREAM)
            scale_shards(stream, shard_count, self.service.state.now_ms())

    def split(self, index: int) -> None:
        """Split one of the open shards, and leave the others."""
        with self.service.lock:
            stream = self.service.state.find_active(STREAM)
            shard = stream.open_shards[index % len(stream.open_shards)]
            middle = (shard.first_hash_key + shard.last_hash_key) // 2
            split_shard(stream, shard, middle, self.service.state.now_ms())

    def parts(
        self, properties: Properties, events: EventSink, *, fails_on_data_loss: bool = True
    ) -> Services:
        """Return what ``properties`` select, over the simulated planes."""
        context = PublisherContext(
            data_plane=self.data_plane,
            control_plane=self.control_plane,
            clock=self.clock,
            events=events,
        )
        config = DiscoveryConfig.from_properties(properties)
        discovery = ShardDiscovery(self.control_plane, config, self.clock)
        return Services(
            streams=(STREAM,),
            initial=Positions(StartingPosition.trim_horizon()),
            factory=publisher_factory_class(properties).from_properties(properties, context),
            polling=PollingRecordPublisherFactory.from_properties(properties, context),
            discovery=discovery,
            pool=self.pool,
            aggregates=Deaggregator(AggregationMode.AUTO, events, discovery.list_shards),
            data_loss=DataLossGuard(
                fail=fails_on_data_loss,
                events=events,
                clock=self.clock,
                describe=discovery.describe_now,
                has_shard=discovery.has_shard,
            ),
            clock=self.clock,
            events=events,
            slow_calls=SlowCalls(60.0, self.clock, events),
        )

    async def within_time(self, work: Awaitable[_T]) -> _T:
        """Wait for ``work`` while simulated time passes, ten minutes at most."""
        task = asyncio.ensure_future(work)
        for _ in range(6000):
            await self.clock.settle()
            if task.done():
                break
            await self.clock.advance(0.1)
        assert task.done(), "it does not end"
        return await task
