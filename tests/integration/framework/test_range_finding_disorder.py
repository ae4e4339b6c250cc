"""Arrival times out of order, clocks that differ, refusals: the ranges have each record once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from kinesis_publishers import Properties, PublisherContext, ShardRange, StartingPosition
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.assembly import Services
from kinesis_publishers.config import AggregationMode, DiscoveryConfig
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.readers.range_ends import Ends, KinesisRangeFinder, ReadLimit
from kinesis_publishers.testing.manual_clock import ManualClock
from kinesis_publishers_spark.offsets import Offset, ShardOffset
from tests.integration.framework.disordered_plane import DisorderedPlane

if TYPE_CHECKING:
    from collections.abc import Awaitable

_T = TypeVar("_T")

PROPERTIES = Properties.parse({"aws.region": "us-east-1", "kinesis.streams": "orders"})
STEPS = 60


class DriverClock(ManualClock):
    """The service's time, told by another clock that is ahead of it or behind."""

    def __init__(self, service: ManualClock, ahead_seconds: float) -> None:
        super().__init__()
        self._service = service
        self._ahead = timedelta(seconds=ahead_seconds)

    def now(self) -> datetime:
        return self._service.now() + self._ahead

    def monotonic(self) -> float:
        return self._service.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._service.sleep(seconds)


class DisorderedQuery:
    """A query that takes its ranges from the text of its offsets, and checks each of them."""

    def __init__(self, seed: int, ahead_seconds: float) -> None:
        self.random = Random(seed)
        self.time = ManualClock()
        self.clock = DriverClock(self.time, ahead_seconds)
        self.plane = DisorderedPlane(self.time, self.random)
        self.read: dict[str, list[int]] = {}
        self.offset = Offset()
        self.finder = self._new_finder()

    def _new_finder(self) -> KinesisRangeFinder:
        context = PublisherContext(
            data_plane=self.plane,
            control_plane=self.plane,
            clock=self.clock,
            events=lambda event: None,
        )
        config = DiscoveryConfig.from_properties(PROPERTIES)
        discovery = ShardDiscovery(self.plane, config, self.clock)
        polling = PollingRecordPublisherFactory.from_properties(PROPERTIES, context)
        parts = Services(
            streams=("orders",),
            initial_position=StartingPosition.trim_horizon(),
            initial_shards={},
            factory=polling,
            polling=polling,
            discovery=discovery,
            pool=PendingPool(max_records=10, max_bytes=100),
            aggregates=Deaggregator(AggregationMode.AUTO, context.events, discovery.list_shards),
            data_loss=DataLossGuard(
                fail=True, events=context.events, describe=discovery.describe_now
            ),
            clock=self.clock,
            events=context.events,
        )
        return KinesisRangeFinder(parts, resume=self.offset.progress or None)

    async def start(self) -> None:
        """Begin, or continue after a restart, with what the last offset says."""
        self.finder = self._new_finder()
        await self._within_time(self.finder.prepare())
        if not self.offset.shards:
            self.offset = Offset.of(self.finder.progress)

    async def _within_time(self, work: Awaitable[_T]) -> _T:
        task = asyncio.ensure_future(work)
        for _ in range(3000):
            await self.time.settle()
            if task.done():
                break
            await self.time.advance(0.1)
        assert task.done(), "it does not end"
        return await task

    async def micro_batch(self, find: Awaitable[Ends]) -> Ends:
        found = await self._within_time(find)
        known = Offset.of(self.finder.progress)
        firsts = {key: one.first for key, one in found.items()}
        shards = {
            key: ShardOffset(progress=one.progress, first=firsts.get(key))
            for key, one in known.shards.items()
        }
        end = Offset.from_json(Offset(streams=known.streams, shards=shards).to_json())
        ended = self._ended()
        for one in end.ranges_since(self.offset):
            self._read(one, ended)
        self.offset = end
        for shard_id in self._ended():
            assert self.read.get(shard_id, []) == self.plane.shards[shard_id].numbers
        return found

    def _ended(self) -> set[str]:
        return {key.shard_id for key, one in self.offset.shards.items() if one.progress.is_ended}

    def _read(self, one: ShardRange, ended: set[str]) -> None:
        shard, done = (
            self.plane.shards[one.shard.shard_id],
            self.read.setdefault(one.shard.shard_id, []),
        )
        assert shard.parent is None or shard.parent in ended, "a child comes after its parent"
        assert shard.index_of(one.start) == len(done), "nothing is left out or repeated"
        stop = len(shard.numbers)
        if one.end is not None:
            stop = shard.numbers.index(int(one.end.sequence_number)) + 1
        else:
            assert shard.is_closed
        done += shard.numbers[len(done) : stop]

    async def do_something(self) -> None:
        what, random = self.random.random(), self.random
        if what < 0.3:
            self.plane.put(random.choice([1, 10, 60, 400]))
        elif what < 0.4 and len(self.plane.shards) < 12:
            self.plane.split()
        elif what < 0.48:
            await self.start()
        elif what < 0.53:
            await self.micro_batch(self.finder.find_tip())
        else:
            await self.micro_batch(self.finder.find(self._any_limit()))
        await self.time.advance(random.choice([0.0, 0.05, 0.3, 1.0, 30.0, 400.0]))

    def _any_limit(self) -> ReadLimit:
        return self.random.choice(
            [
                ReadLimit(),
                ReadLimit(),
                ReadLimit(records=self.random.randint(1, 80)),
                ReadLimit(payload_bytes=self.random.randint(1, 4000)),
            ]
        )


@pytest.mark.parametrize("ahead_seconds", [0.0, 10.0, -10.0])
@pytest.mark.parametrize("seed", range(6))
async def test_each_record_is_in_one_range_and_available_now_has_them_all(
    seed: int, ahead_seconds: float
) -> None:
    query = DisorderedQuery(seed, ahead_seconds)
    query.plane.put(30)
    await query.start()
    for _ in range(STEPS):
        await query.do_something()
    # What is there arrived before this instant, not at it.
    await query.time.advance(0.01)
    until = query.clock.now()
    there = {shard_id: list(one.numbers) for shard_id, one in query.plane.shards.items()}
    limit = query.random.choice([ReadLimit(), ReadLimit(records=20)])
    found: Ends = {}
    while found or not query.finder.is_caught_up(until):
        assert (query.clock.now() - until).total_seconds() < 3600, "it does not end"
        query.plane.put(1)
        found = await query.micro_batch(query.finder.find(limit, until=until))
        await query.time.advance(0.1)
    for shard_id, numbers in there.items():
        assert query.read.get(shard_id, [])[: len(numbers)] == numbers
