"""What a range leaves, and how the one that follows it begins with that."""

from __future__ import annotations

import pytest
from attrs import evolve

from kinesis_publishers.errors import ReplayMismatchError
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeDataPlane,
    StoredShard,
)
from tests.unit.engine.consumer_support import RECORDS, place
from tests.unit.engine.range_support import polled, range_of


async def test_a_leftover_begins_with_its_rest_and_then_its_publisher():
    world = polled(FakeDataPlane(StoredShard(RECORDS, page_ends=[5, 10])))
    leftover = await world.read(range_of(0, 2))
    assert leftover is not None
    assert list(leftover.rest) == RECORDS[3:5]
    leftover = await world.read(range_of(2, 7), leftover)
    assert world.sink.records == RECORDS[1:8]
    plane = world.data_plane
    assert len(plane.iterator_calls) == 1
    assert len(plane.records_calls) == 2
    assert list(leftover.rest) == RECORDS[8:]


async def test_ranges_within_a_rest_need_no_call():
    world = polled(FakeDataPlane(StoredShard(RECORDS)))
    leftover = await world.read(range_of(0, 2))
    plane = world.data_plane
    calls = len(plane.calls)
    for start in range(2, 8):
        leftover = await world.read(range_of(start, start + 1), leftover)
    assert world.sink.records == RECORDS[1:9]
    assert len(plane.calls) == calls


async def test_an_empty_range_leaves_what_it_was_given():
    world = polled(FakeDataPlane(StoredShard(RECORDS)))
    given = await world.read(range_of(0, 2))
    left = await world.read(range_of(2, 2), given)
    assert list(left.rest) == RECORDS[3:]
    assert left.publisher is given.publisher


async def test_a_rest_without_a_publisher_is_continued_where_it_ends():
    world = polled(FakeDataPlane(StoredShard(RECORDS, page_ends=[5, 10])))
    leftover = evolve(await world.read(range_of(0, 2)), publisher=None)
    await world.read(range_of(2, 7), leftover)
    assert world.sink.records == RECORDS[1:8]
    plane = world.data_plane
    assert [str(call.position) for call in plane.iterator_calls] == [
        f"AFTER_SEQUENCE_NUMBER {RECORDS[index].sequence_number}" for index in (0, 4)
    ]


async def test_a_publisher_whose_iterator_has_expired_goes_on_behind_the_rest():
    world = polled(FakeDataPlane(StoredShard(RECORDS, page_ends=[5, 10])))
    leftover = await world.read(range_of(0, 2))
    await world.clock.advance(301)
    await world.read(range_of(2, 7), leftover)
    assert world.sink.records == RECORDS[1:8]
    again = world.data_plane.iterator_calls[1]
    assert str(again.position) == f"AFTER_SEQUENCE_NUMBER {place(4)}"


@pytest.mark.parametrize("end", [9, None])
async def test_a_leftover_knows_that_the_shard_ends_with_it(end: int | None):
    world = polled(FakeDataPlane(StoredShard(RECORDS, is_closed=True, child_shards=(SUCCESSOR,))))
    leftover = await world.read(range_of(0, 2))
    assert leftover.is_complete
    assert leftover.publisher is None
    await world.read(range_of(2, end), leftover)
    assert world.sink.records == RECORDS[1:]
    assert len(world.data_plane.records_calls) == 1


async def test_a_rest_that_misses_the_last_record_is_a_mismatch():
    world = polled(FakeDataPlane(StoredShard([*RECORDS[:6], *RECORDS[7:]])))
    leftover = await world.read(range_of(0, 2))
    with pytest.raises(ReplayMismatchError, match="record 998 follows"):
        await world.read(range_of(2, 6), leftover)
