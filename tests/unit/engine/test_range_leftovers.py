"""What ranges have left is taken once, while it is fresh, and takes a bounded amount of memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import ShardRange, StartingPosition
from kinesis_publishers.engine.range_consumer import Leftover, Leftovers
from kinesis_publishers.model import resume_after
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.engine.consumer_support import RECORDS, place
from tests.unit.engine.range_support import range_of

SHARD = sample_shard().key


def leftover(end: int, size: int = 10) -> Leftover:
    return Leftover(following=resume_after(place(end)), rest=batch_of(sample_records(1, size=size)))


def test_a_leftover_is_for_the_range_that_begins_after_it_and_for_no_other():
    kept = Leftovers(ManualClock())
    kept.keep(SHARD, one := leftover(4))
    assert kept.take(range_of(3, 9)) is None
    assert kept.take(range_of(4, 9, at=True)) is None
    other = ShardRange(
        shard=sample_shard(1).key, start=StartingPosition.after(place(4)), end=place(9)
    )
    assert kept.take(other) is None
    assert kept.take(range_of(4, None)) is one


def test_a_leftover_is_taken_once():
    kept = Leftovers(ManualClock())
    kept.keep(SHARD, leftover(4))
    assert kept.take(range_of(4, 9)) is not None
    assert kept.take(range_of(4, 9)) is None
    assert kept.size == 0


async def test_an_iterator_that_is_about_to_expire_is_not_used():
    clock = ManualClock()
    kept = Leftovers(clock)
    kept.keep(SHARD, leftover(4))
    await clock.advance(200)
    kept.keep(SHARD, leftover(6))
    await clock.advance(41)
    assert kept.take(range_of(4, 9)) is None
    assert kept.take(range_of(6, 9)) is not None
    assert kept.size == 0


def test_the_oldest_go_first_when_there_are_too_many():
    kept = Leftovers(ManualClock(), max_bytes=2 * leftover(1).size)
    for end in (1, 2, 1, 3):
        kept.keep(SHARD, leftover(end))
    assert kept.take(range_of(2, 9)) is None
    assert kept.take(range_of(1, 9)) is not None
    assert kept.take(range_of(3, 9)) is not None


def test_one_that_is_too_large_does_not_drive_out_the_others():
    kept = Leftovers(ManualClock(), max_bytes=100_000)
    kept.keep(SHARD, leftover(1))
    kept.keep(SHARD, leftover(2, size=100_000))
    assert kept.take(range_of(2, 9)) is None
    assert kept.take(range_of(1, 9)) is not None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30_000), st.booleans())))
def test_the_memory_is_bounded_and_accounted_for(steps: list[tuple[int, int, bool]]):
    kept = Leftovers(ManualClock(), max_bytes=60_000)
    for end, size, is_kept in steps:
        if is_kept:
            kept.keep(SHARD, leftover(end, size))
        else:
            kept.take(range_of(end, None))
        assert kept.size <= 60_000
    for end in range(len(RECORDS)):
        kept.take(range_of(end, None))
    assert kept.size == 0
