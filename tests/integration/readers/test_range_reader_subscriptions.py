"""Ranges by enhanced fan-out, one after the other; in simulated time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber
from kinesis_publishers.errors import ReplayMismatchError
from kinesis_publishers.testing.fakes import finish
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.integration.readers.range_reading import CollectingSink
from tests.integration.readers.range_world import RangeWorld

if TYPE_CHECKING:
    from kinesis_publishers import ShardRange

COUNT = 240
LITTLE = 1000


class Ranges(RangeWorld):
    """Two shards with some records each, in events of ten, and a reader with what it has read."""

    def __init__(self) -> None:
        super().__init__(Behaviour(), count=COUNT, page=10_000)
        state = self.service.state
        state.limits = evolve(state.limits, event_max_records=10)
        self.sink, self.kept = CollectingSink(), self.reader(self.fan_out)
        self.begun = dict.fromkeys(self.stored.rows(), 0)

    def next_ranges(self, count: int | None = None) -> list[ShardRange]:
        """Return the ranges of so many records that follow; without a number all there are."""
        ranges = []
        for shard_id, held in self.stored.rows().items():
            first = self.begun[shard_id]
            last = len(held) - 1 if count is None else first + count - 1
            self.begun[shard_id] = last + 1
            ranges.append(self.stored.range_of(shard_id, first, last))
        return ranges

    async def go_on(self, count: int | None = None, expected_bytes: int | None = None) -> None:
        """Read the ranges that follow."""
        reading = self.kept.read(self.next_ranges(count), self.sink, expected_bytes=expected_bytes)
        await finish(reading, self.clock)
        await self.check_pool()

    @property
    def open_count(self) -> int:
        """How many subscriptions the service has open."""
        return len(self.service.state.subscriptions.find())

    @property
    def made(self) -> tuple[int, int]:
        """How many subscriptions, and how many calls of polling, were asked for."""
        polls = self.calls("GetRecords") + self.calls("GetShardIterator")
        return self.calls("SubscribeToShard"), polls


async def test_each_range_has_a_subscription_of_its_own_and_what_it_leaves_is_used():
    world = Ranges()
    # Most end in the middle of an event.
    for turn, count in enumerate((7, 13, 9, None), start=1):
        await world.go_on(count)
        assert (*world.made, world.open_count) == (2 * turn, 0, 0)
        await world.clock.advance(6)
    assert world.sink.rows == world.stored.rows()


async def test_a_range_within_five_seconds_of_the_last_subscription_is_polled_at_once():
    world = Ranges()
    await world.go_on(25)
    before = world.clock.monotonic()
    await world.go_on()
    assert world.sink.rows == world.stored.rows()
    subscribed, polls = world.made
    assert (subscribed, polls > 0) == (4, True)
    assert world.clock.monotonic() - before < 5


async def test_a_little_is_polled():
    world = Ranges()
    await world.go_on(20)
    await world.go_on(expected_bytes=LITTLE)
    assert world.sink.rows == world.stored.rows()
    assert world.calls("SubscribeToShard") == 2


async def test_a_range_that_fails_closes_its_subscription():
    world = Ranges()
    (one, _) = world.next_ranges(25)
    assert one.end is not None
    never_stored = SequenceNumber(str(int(one.end.sequence_number) + 1))
    with pytest.raises(ReplayMismatchError):
        await world.read(world.kept, CollectingSink(), [evolve(one, end=never_stored)])
    assert (world.calls("SubscribeToShard"), world.open_count) == (1, 0)


async def test_a_reading_that_is_cancelled_closes_its_subscriptions():
    world = Ranges()
    # More than the pool holds, and nothing is taken from it.
    blocked = CollectingSink(held_seconds=3600)
    reading = asyncio.ensure_future(world.kept.read(world.next_ranges(), blocked))
    await world.clock.advance(1)
    assert world.open_count == 2
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert world.open_count == 0
