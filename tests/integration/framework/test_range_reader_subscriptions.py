"""Subscriptions that stay open from one range to the next; in simulated time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber
from kinesis_publishers.errors import ReplayMismatchError
from kinesis_publishers.testing.fakes import finish
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault
from tests.integration.framework.range_reading import CollectingSink
from tests.integration.framework.range_world import RangeWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import ShardRange
    from kinesis_publishers.readers import KinesisRangeReader

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
            first = self.begun.setdefault(shard_id, 0)
            last = len(held) - 1 if count is None else first + count - 1
            self.begun[shard_id] = last + 1
            ranges.append(self.stored.range_of(shard_id, first, last))
        return ranges

    async def go_on(self, count: int | None = None, expected_bytes: int | None = None) -> None:
        """Read the ranges that follow."""
        reading = self.kept.read(self.next_ranges(count), self.sink, expected_bytes=expected_bytes)
        await finish(reading, self.clock)
        await self.check_pool()

    def check_rows(self) -> None:
        assert self.sink.rows == self.stored.rows()

    @property
    def open_count(self) -> int:
        """How many subscriptions the service has open."""
        return len(self.service.state.subscriptions.find())

    @property
    def polls(self) -> int:
        return self.calls("GetRecords") + self.calls("GetShardIterator")


@asynccontextmanager
async def closing_idle(reader: KinesisRangeReader) -> AsyncIterator[None]:
    """Keep what is idle closed, as the worker processes of Spark do."""
    task = asyncio.create_task(reader.keep_idle_closed())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_ranges_one_after_the_other_need_one_subscription_for_each_shard():
    world = Ranges()
    # Most end in the middle of an event.
    for count in (7, 13, 1, 9, None):
        await world.go_on(count)
    world.put(30)
    await world.go_on()
    world.check_rows()
    assert (world.calls("SubscribeToShard"), world.polls, world.open_count) == (2, 0, 2)


async def test_a_little_comes_by_a_subscription_that_is_open():
    world = Ranges()
    await world.go_on(20)
    await world.go_on(5, expected_bytes=LITTLE)
    await world.go_on(expected_bytes=LITTLE)
    world.check_rows()
    assert (world.calls("SubscribeToShard"), world.polls) == (2, 0)


async def test_one_that_is_idle_for_long_is_closed_and_what_follows_subscribes_again():
    world = Ranges()
    async with closing_idle(world.kept):
        await world.go_on(25)
        await world.clock.advance(15)
        assert world.open_count == 2
        await world.clock.advance(15)
        assert world.open_count == 0
        await world.go_on()
    world.check_rows()
    assert (world.calls("SubscribeToShard"), world.polls) == (4, 0)


async def test_one_that_is_used_stays_open_however_long_that_lasts():
    world = Ranges()
    async with closing_idle(world.kept):
        for _ in range(9):
            await world.go_on(5)
            await world.clock.advance(15)
        await world.go_on()
    world.check_rows()
    assert (world.calls("SubscribeToShard"), world.polls) == (2, 0)


async def test_a_reader_that_polls_has_nothing_to_close():
    world = Ranges()
    await asyncio.wait_for(world.reader(world.polling).keep_idle_closed(), 60)


async def test_another_reader_takes_an_idle_subscription_over_and_the_first_does_not_fight():
    world = Ranges()
    await world.go_on(25)
    await world.clock.advance(6)
    other = CollectingSink()
    await world.read(world.reader(world.fan_out), other, world.stored.whole())
    assert other.rows == world.stored.rows()
    subscribed = world.calls("SubscribeToShard")
    assert (subscribed, world.polls) == (4, 0)
    # What is left of its subscriptions ends; the rest is polled.
    await world.go_on()
    world.check_rows()
    assert world.calls("SubscribeToShard") == subscribed
    assert world.polls > 0


async def test_a_young_subscription_is_left_to_the_other_reader():
    world = Ranges()
    await world.go_on(25)
    other = CollectingSink()
    await world.read(world.reader(world.fan_out), other, world.stored.whole())
    assert other.rows == world.stored.rows()
    polls = world.polls
    assert polls > 0
    await world.go_on()
    world.check_rows()
    # Two of the four were refused.
    assert (world.calls("SubscribeToShard"), world.polls) == (4, polls)


async def test_readers_that_take_turns_with_a_shard_cease_to_keep_its_subscription():
    world = Ranges()
    readers = [world.kept, world.reader(world.fan_out)]
    kept = []
    for turn in range(10):
        await world.read(readers[turn % 2], world.sink, world.next_ranges(5))
        kept.append(world.open_count)
        await world.clock.advance(6)
    await world.go_on()
    world.check_rows()
    # Each of the two has kept two of each shard in vain.
    assert kept == [2, 2, 2, 2, 0, 0, 0, 0, 0, 0]
    assert world.polls == 0


async def test_a_shard_that_ends_while_its_subscription_is_idle_is_read_to_its_end():
    world = Ranges()
    await world.go_on(25)
    world.reshard(4)
    last = [
        evolve(one, end=None) for one in world.next_ranges() if world.sink.rows[one.shard.shard_id]
    ]
    await world.read(world.kept, world.sink, last)
    world.check_rows()
    assert (world.calls("SubscribeToShard"), world.polls, world.open_count) == (2, 0, 0)


async def test_a_subscription_whose_time_is_over_while_it_is_idle_is_followed_by_polling():
    world = Ranges()
    for _ in range(11):
        await world.go_on(5)
        await world.clock.advance(27)
    assert (world.calls("SubscribeToShard"), world.polls) == (2, 0)
    await world.clock.advance(27)
    await world.go_on()
    world.check_rows()
    assert world.calls("SubscribeToShard") == 2
    assert world.polls > 0


@pytest.mark.parametrize("kind", ["end", "reset", "reset_mid_event", "bad_crc", "exception"])
async def test_a_subscription_that_fails_while_it_is_idle_is_followed_by_polling(kind: str):
    world = Ranges()
    code = "InternalFailureException" if kind == "exception" else ""
    fault = Fault("SubscribeToShard", kind, code=code, after_events=3, times=None)
    world.service.state.faults.add(fault)
    # Three events.
    await world.go_on(30)
    assert world.open_count == 2
    await world.go_on()
    world.check_rows()
    assert world.calls("SubscribeToShard") == 2
    assert world.polls > 0


@pytest.mark.parametrize("count", [3, 10], ids=["in the rest", "in what follows"])
async def test_a_range_that_fails_closes_the_subscription_that_was_left_to_it(count: int):
    world = Ranges()
    await world.go_on(25)
    (one, _) = world.next_ranges(count)
    assert one.end is not None
    never_stored = SequenceNumber(str(int(one.end.sequence_number) + 1))
    with pytest.raises(ReplayMismatchError):
        await world.read(world.kept, CollectingSink(), [evolve(one, end=never_stored)])
    # The other shard's was not used.
    assert world.open_count == 1


async def test_a_reading_that_is_cancelled_closes_its_subscriptions():
    world = Ranges()
    await world.go_on(25)
    # More than the pool holds, and nothing is taken from it.
    blocked = CollectingSink(held_seconds=3600)
    reading = asyncio.ensure_future(world.kept.read(world.next_ranges(), blocked))
    await world.clock.advance(1)
    assert world.open_count == 2
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert world.open_count == 0
