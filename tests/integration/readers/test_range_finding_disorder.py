"""Arrival times out of order, clocks that differ, refusals: the ranges have each record once."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties, ShardRange
from kinesis_publishers.events import ignore_event
from kinesis_publishers.readers import Ends, KinesisRangeFinder, ReadLimit
from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers_spark.offsets import Offset
from tests.integration.readers.disordered_plane import DisorderedPlane
from tests.integration.readers.range_world import offset_of
from tests.integration.readers.simulated_world import SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable


PROPERTIES = Properties.parse({"aws.region": "us-east-1", "kinesis.streams": "orders"})
STEPS = 60


class DisorderedQuery(SimulatedWorld):
    """A query that takes its ranges from the text of its offsets, and checks each of them."""

    def __init__(self, seed: int, ahead_seconds: float) -> None:
        super().__init__(Behaviour())
        self.random = Random(seed)
        self.plane = DisorderedPlane(self.clock, self.random, ahead_seconds)
        self.data_plane = self.control_plane = self.plane
        self.read: dict[str, list[int]] = {}
        self.offset = Offset()
        self.finder = self._new_finder()

    def _new_finder(self) -> KinesisRangeFinder:
        parts = self.parts(PROPERTIES, ignore_event)
        return KinesisRangeFinder(parts, resume=self.offset.progress or None)

    async def start(self) -> None:
        """Begin, or continue after a restart, with what the last offset says."""
        self.finder = self._new_finder()
        await self.within_time(self.finder.prepare())
        if not self.offset.shards:
            self.offset = Offset.of(self.finder.progress)

    async def micro_batch(self, find: Awaitable[Ends]) -> Ends:
        found = await self.within_time(find)
        end = Offset.from_json(offset_of(self.finder, found).to_json())
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
            stop = shard.numbers.index(int(one.end.sequence_number)) + (not one.excludes_end)
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
        await self.clock.advance(random.choice([0.0, 0.05, 0.3, 1.0, 30.0, 400.0]))

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
    await query.clock.advance(0.01)
    until = query.clock.now()
    there = {shard_id: list(one.numbers) for shard_id, one in query.plane.shards.items()}
    limit = query.random.choice([ReadLimit(), ReadLimit(records=20)])
    found: Ends = {}
    while found or not query.finder.is_caught_up(until):
        assert (query.clock.now() - until).total_seconds() < 3600, "it does not end"
        query.plane.put(1)
        found = await query.micro_batch(query.finder.find(limit, until=until))
        await query.clock.advance(0.1)
    for shard_id, numbers in there.items():
        assert query.read.get(shard_id, [])[: len(numbers)] == numbers
