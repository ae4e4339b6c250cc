"""What ranges have left is taken once, while it is fresh, and takes a bounded amount of memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import ShardRange, StartingPosition
from kinesis_publishers.engine.range_consumer import Leftover, Leftovers, ResumablePublisher
from kinesis_publishers.model import resume_after
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.core.consumer_support import RECORDS, place
from tests.unit.core.range_support import range_of

if TYPE_CHECKING:
    from kinesis_publishers import RecordBatchConsumer, RunResult

SHARD = sample_shard().key


def leftover(end: int, size: int = 10) -> Leftover:
    return Leftover(following=resume_after(place(end)), rest=batch_of(sample_records(1, size=size)))


async def test_a_leftover_is_for_the_range_that_begins_after_it_and_for_no_other():
    kept = Leftovers(ManualClock())
    await kept.keep(SHARD, one := leftover(4))
    assert await kept.take(range_of(3, 9)) is None
    assert await kept.take(range_of(4, 9, at=True)) is None
    other = ShardRange(
        shard=sample_shard(1).key, start=StartingPosition.after(place(4)), end=place(9)
    )
    assert await kept.take(other) is None
    assert await kept.take(range_of(4, None)) is one


async def test_a_leftover_is_taken_once():
    kept = Leftovers(ManualClock())
    await kept.keep(SHARD, leftover(4))
    assert await kept.take(range_of(4, 9)) is not None
    assert await kept.take(range_of(4, 9)) is None
    assert (len(kept), kept.size) == (0, 0)


async def test_an_iterator_that_is_about_to_expire_is_not_used():
    clock = ManualClock()
    kept = Leftovers(clock)
    await kept.keep(SHARD, leftover(4))
    await clock.advance(200)
    await kept.keep(SHARD, leftover(6))
    await clock.advance(41)
    assert await kept.take(range_of(4, 9)) is None
    assert await kept.take(range_of(6, 9)) is not None
    assert kept.size == 0


async def test_the_oldest_go_first_when_there_are_too_many():
    kept = Leftovers(ManualClock(), max_count=2)
    for end in (1, 2, 1, 3):
        await kept.keep(SHARD, leftover(end))
    assert await kept.take(range_of(2, 9)) is None
    assert await kept.take(range_of(1, 9)) is not None
    assert await kept.take(range_of(3, 9)) is not None


async def test_one_that_is_too_large_does_not_drive_out_the_others():
    kept = Leftovers(ManualClock(), max_bytes=100_000)
    await kept.keep(SHARD, leftover(1))
    await kept.keep(SHARD, leftover(2, size=100_000))
    assert await kept.take(range_of(2, 9)) is None
    assert await kept.take(range_of(1, 9)) is not None


class Open(ResumablePublisher):
    """Holds a connection open until it is closed."""

    is_open = True

    async def close(self) -> None:
        self.is_open = False

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        raise NotImplementedError


def open_after(end: int) -> tuple[Open, Leftover]:
    publisher = Open()
    return publisher, Leftover(following=resume_after(place(end)), publisher=publisher)


async def test_what_holds_a_connection_open_is_closed_when_it_is_driven_out():
    kept = Leftovers(ManualClock(), max_count=2)
    publishers = []
    for end in (1, 2, 1, 3):
        publisher, one = open_after(end)
        publishers.append(publisher)
        await kept.keep(SHARD, one)
    # The third one took the place of the first one.
    assert [one.is_open for one in publishers] == [False, False, True, True]
    assert (await kept.take(range_of(1, 9))).publisher is publishers[2]
    assert publishers[2].is_open


async def test_the_buffers_of_a_connection_count():
    kept = Leftovers(ManualClock(), max_bytes=1024 * 1024)
    publishers = []
    for end in range(5):
        publisher, one = open_after(end)
        publishers.append(publisher)
        await kept.keep(SHARD, one)
    assert [one.is_open for one in publishers] == [False, False, True, True, True]
    await kept.drop_idle(0)
    assert (len(kept), kept.size) == (0, 0)
    assert not any(one.is_open for one in publishers)


async def test_only_what_is_idle_for_long_and_holds_a_connection_open_is_dropped():
    clock = ManualClock()
    kept = Leftovers(clock)
    await kept.keep(SHARD, leftover(1))
    (old, older), (new, newer) = open_after(2), open_after(3)
    await kept.keep(SHARD, older)
    await clock.advance(20)
    await kept.keep(SHARD, newer)
    await kept.drop_idle(20)
    assert (old.is_open, new.is_open) == (False, True)
    assert await kept.take(range_of(1, 9)) is not None
    assert await kept.take(range_of(2, 9)) is None


async def test_a_range_that_begins_elsewhere_closes_the_connection_to_its_shard():
    kept = Leftovers(ManualClock())
    publisher, one = open_after(2)
    await kept.keep(SHARD, one)
    other = ShardRange(
        shard=sample_shard(1).key, start=StartingPosition.after(place(4)), end=place(9)
    )
    assert await kept.take(other) is None
    assert publisher.is_open
    assert await kept.take(range_of(4, 9)) is None
    assert not publisher.is_open
    assert len(kept) == 0


async def test_a_connection_that_was_kept_in_vain_twice_in_a_row_is_not_kept_again():
    kept, held = Leftovers(ManualClock()), []
    # The third one is taken up.
    for end, begin in ((0, 1), (1, 1), (2, 3), (3, 4), (4, 4)):
        publisher, one = open_after(end)
        await kept.keep(SHARD, one)
        held.append(publisher.is_open)
        await kept.take(range_of(begin, 9))
    assert held == [True, True, True, True, False]
    publisher, one = open_after(5)
    await kept.keep(sample_shard(1).key, one)
    assert publisher.is_open
    # Only the connection is gone.
    await kept.keep(SHARD, evolve(open_after(6)[1], rest=leftover(6).rest))
    assert (await kept.take(range_of(6, 9))).rest is not None


async def test_a_connection_is_kept_again_after_many_ranges():
    kept, held = Leftovers(ManualClock()), []
    for _ in range(101):
        publisher, one = open_after(0)
        await kept.keep(SHARD, one)
        held.append(publisher.is_open)
        # The range that follows begins elsewhere.
        await kept.take(range_of(5, 9))
    assert [n for n, is_open in enumerate(held) if is_open] == [0, 1, 100]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30_000), st.booleans())))
def test_the_memory_is_bounded_and_accounted_for(steps: list[tuple[int, int, bool]]):
    asyncio.run(check_memory(steps))


async def check_memory(steps: list[tuple[int, int, bool]]) -> None:
    kept = Leftovers(ManualClock(), max_count=5, max_bytes=60_000)
    for end, size, is_kept in steps:
        if is_kept:
            await kept.keep(SHARD, leftover(end, size))
        else:
            await kept.take(range_of(end, None))
        assert len(kept) <= 5
        assert kept.size <= 60_000
    for end in range(len(RECORDS)):
        await kept.take(range_of(end, None))
    assert (len(kept), kept.size) == (0, 0)
