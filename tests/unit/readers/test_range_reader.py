"""Many ranges at once: side by side, in one budget."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_publishers import SequenceNumber, ShardRange, StartingPosition
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import (
    AccessDeniedError,
    PositionTrimmedError,
    ReplayMismatchError,
    StreamNotFoundError,
)
from kinesis_publishers.events import DataLossTolerated, RangeRead
from kinesis_publishers.readers.ranges.reader import KinesisRangeReader
from kinesis_publishers.testing.fakes import (
    FailingCalls,
    RecordingSink,
    StoredShard,
    finish,
    sample_shard,
    shard_name,
)
from tests.unit.readers.fetcher_support import Blocks, World, failure, other_tasks, records_of

ZERO, ONE = shard_name(0), shard_name(1)


def place(number: int, index: int) -> SequenceNumber:
    return SequenceNumber(records_of(number, 1, first=index)[0].sequence_number)


def range_of(number: int, first: int, last: int) -> ShardRange:
    start = StartingPosition.at(place(number, first))
    return ShardRange(shard=sample_shard(number).key, start=start, end=place(number, last))


def range_after(number: int, before: int, last: int) -> ShardRange:
    start = StartingPosition.after(place(number, before))
    return ShardRange(shard=sample_shard(number).key, start=start, end=place(number, last))


def reader_of(world: World) -> KinesisRangeReader:
    return KinesisRangeReader(world.parts())


def world_of(*shards: int, **settings: object) -> World:
    """Return a world whose shards have so many records."""
    world = World(**settings)
    for number, count in enumerate(shards):
        world.add(number, behaviour=StoredShard(records_of(number, count)))
    return world


async def read(world: World, *ranges: ShardRange) -> None:
    await finish(reader_of(world).read(ranges, world.sink), world.clock)


async def test_ranges_are_read_exactly_and_side_by_side():
    world = world_of(20, 10)
    blocked = Blocks(ZERO)
    world.sink = RecordingSink(blocked)
    reading = asyncio.create_task(
        reader_of(world).read([range_of(0, 2, 5), range_of(1, 0, 9)], world.sink)
    )
    await world.clock.advance(1)
    assert world.sink.records_of(ONE) == records_of(1, 10)
    assert not reading.done()
    blocked.gate.set()
    await finish(reading, world.clock)
    assert world.sink.records_of(ZERO) == records_of(0, 4, first=2)
    assert world.control_plane.calls == []


async def test_a_range_that_was_read_is_reported_with_its_bounds():
    world, wanted = world_of(20), range_of(0, 2, 5)
    await read(world, wanted)
    (reported,) = world.events_of(RangeRead)
    assert (reported.shard, reported.start, reported.end) == (
        wanted.shard,
        wanted.start,
        wanted.end,
    )


async def test_no_ranges_are_read_at_once():
    await read(world := world_of())
    assert world.sink.records == []


async def test_a_range_that_cannot_be_read_again_stops_the_others():
    world = world_of(4, 5)
    world.sink = RecordingSink(Blocks(ONE))
    with pytest.raises(ReplayMismatchError, match="the tip of the shard follows"):
        await read(world, range_of(0, 0, 9), range_of(1, 0, 4))
    assert other_tasks() == set()
    assert world.pool.records == 0


async def test_a_range_that_is_read_again_starts_over():
    world = world_of(20)
    reader = reader_of(world)
    for wanted in (range_of(0, 0, 3), range_after(0, 3, 9), range_after(0, 3, 9)):
        await finish(reader.read([wanted], world.sink), world.clock)
    expected = records_of(0, 10) + records_of(0, 6, first=4)
    assert world.sink.records == expected


async def test_a_range_that_failed_leaves_nothing():
    error = failure(AccessDeniedError)
    world = world_of()
    world.add(0, behaviour=FailingCalls(StoredShard(records_of(0, 9)), on_read=(error,)))
    reader = reader_of(world)
    with pytest.raises(AccessDeniedError):
        await finish(reader.read([range_after(0, 0, 5)], world.sink), world.clock)
    await finish(reader.read([range_after(0, 0, 5)], world.sink), world.clock)
    assert len(world.data_plane.iterator_calls) == 2
    assert world.sink.records == records_of(0, 5, first=1)


async def test_a_reading_that_is_cancelled_leaves_nothing_behind():
    world = world_of(9)
    world.sink = RecordingSink(Blocks(ZERO))
    reader = reader_of(world)
    reading = asyncio.create_task(reader.read([range_after(0, 0, 5)], world.sink))
    await world.clock.advance(1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert other_tasks() == set()
    assert world.pool.records == 0
    world.sink = RecordingSink()
    await finish(reader.read([range_after(0, 0, 5)], world.sink), world.clock)
    assert world.sink.records == records_of(0, 5, first=1)
    assert len(world.data_plane.iterator_calls) == 2


async def test_two_readings_at_the_same_time_share_the_budget():
    most = 0

    async def watch(delivery: object) -> None:
        nonlocal most
        most = max(most, world.pool.records)
        await world.clock.sleep(1)

    world = world_of(100, 100, pool=PendingPool(max_records=120, max_bytes=1024 * 1024 * 1024))
    world.sink = RecordingSink(watch)
    reader = reader_of(world)
    both = asyncio.gather(
        reader.read([range_of(0, 0, 99)], world.sink),
        reader.read([range_of(1, 0, 99)], world.sink),
    )
    await finish(both, world.clock)
    assert len(world.sink.records) == 200
    assert most <= 120


def vanishing(number: int, error: Exception) -> FailingCalls:
    """Return a shard that the service does not find."""
    return FailingCalls(StoredShard(records_of(number)), on_locate=(error,) * 9)


def vanished_world(**settings: object) -> World:
    """Return a world whose first shard has left the retention; the second one is there."""
    world = World(**settings)
    world.add(0, behaviour=vanishing(0, failure(StreamNotFoundError)))
    world.add(1)
    world.stream.remove(ZERO)
    return world


async def test_ranges_of_a_shard_that_left_the_retention_are_data_loss():
    with pytest.raises(PositionTrimmedError, match=f"orders/{ZERO}: .* has left the retention"):
        await read(vanished_world(), range_of(0, 0, 2), range_of(1, 0, 2))


async def test_ranges_of_a_shard_that_left_the_retention_are_left_out_if_loss_is_tolerated():
    world = vanished_world(fails_on_data_loss=False)
    await read(world, range_of(0, 0, 2), range_of(1, 0, 2))
    assert world.sink.records == records_of(1)
    assert len(world.events_of(DataLossTolerated)) == 1


async def test_ranges_of_a_stream_that_is_gone_are_an_error_all_the_same():
    world = vanished_world(fails_on_data_loss=False)
    world.control_plane.streams.clear()
    with pytest.raises(StreamNotFoundError, match="GetRecords failed"):
        await read(world, range_of(0, 0, 2))


async def test_ranges_of_a_stream_that_is_not_found_for_a_moment_are_read():
    world = World()
    gone = failure(StreamNotFoundError)
    shard = FailingCalls(StoredShard(records_of(0)), on_locate=(gone,), on_read=(gone,))
    world.add(0, behaviour=shard)
    await finish(read(world, range_of(0, 0, 2)), world.clock)
    assert world.sink.records == records_of(0)
