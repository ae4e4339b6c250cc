"""A fetcher with an end: when a shard has been read to it, and when it has not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, StartingPosition
from kinesis_publishers.engine.ending import ReadingEnd
from kinesis_publishers.errors import ConfigError
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    RecordingSink,
    StoredShard,
    batch_of,
    finish,
    shard_name,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.readers.fetcher_support import Blocks, World, records_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.model import StreamSummary

# The records of a shard arrive at its beginning, and one and two seconds later.
_SECONDS = 10
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_TWO_SECONDS = timedelta(seconds=2)


@asynccontextmanager
async def reading(world: World, seconds: float = _SECONDS) -> AsyncIterator[asyncio.Task[None]]:
    """Read until an instant so many seconds after the start."""
    end = StartingPosition.at_timestamp(world.clock.now() + timedelta(seconds=seconds))
    task = asyncio.create_task(world.fetcher(end=end).run())
    try:
        await world.clock.settle()
        yield task
        assert task.done()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_idle_shard_is_read_until_every_record_from_before_the_end_is_visible():
    world = World()
    shard = world.add(0)
    async with reading(world) as task:
        await world.clock.advance(_SECONDS + 0.5)
        assert not task.done()
        # It arrived before the end.
        shard.records.extend(records_of(0, 1, first=3))
        await world.clock.advance(1)
    assert world.sink.records == records_of(0, 4)


async def test_a_record_from_after_the_end_ends_a_shard_and_is_not_delivered():
    world = World()
    world.add(0)
    async with reading(world, seconds=1):
        await world.clock.advance(0.3)
    assert world.sink.records == records_of(0, 1)


async def test_an_answer_that_is_cut_off_without_a_lag_is_not_the_tip():
    world = World()
    world.add(0, behaviour=StoredShard(records_of(0), page_ends=(1, 2), millis_behind_latest=0))
    await world.clock.advance(2 * _SECONDS)
    async with reading(world, seconds=-_SECONDS):
        await world.clock.advance(1)
    assert world.sink.records == records_of(0)


async def test_a_shard_whose_records_were_dropped_by_stop_is_not_at_its_end():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    world.add(0, behaviour=StoredShard(records_of(0), page_ends=(1, 2)))
    fetcher = world.fetcher(end=StartingPosition.at_timestamp(world.clock.now() + _TWO_SECONDS))
    async with world.running(fetcher):
        await world.clock.advance(1)
        fetcher.stop()
        blocks.gate.set()
    (progress,) = fetcher.progress[world.stream.arn].shards.values()
    assert world.sink.records == records_of(0, 1)
    assert progress.processed == SequenceNumber(records_of(0)[0].sequence_number)


async def test_a_shard_that_closed_before_the_end_is_not_left_without_its_children():
    """Its answers do not show that it has closed: only the listing after the end does."""
    world = World(listing_seconds=3600)
    world.add(0)
    async with reading(world) as task:
        await world.clock.advance(_SECONDS - 1)
        world.stream.close(shard_name(0))
        world.add(1, parent=0)
        await world.clock.advance(5)
        assert not task.done()
        world.shards[shard_name(0)].close()
        await world.clock.advance(2)
    assert world.sink.records == [*records_of(0), *records_of(1)]


async def test_records_without_times_of_arrival_have_no_end():
    world = World()
    end = ReadingEnd(StartingPosition.latest(), world.clock, world.parts().discovery)
    end.note_listing(world.clock.now())
    with pytest.raises(ConfigError, match="does not know when records arrived"):
        end.before(evolve(batch_of(records_of(0)), has_arrival_times=False))


@pytest.mark.parametrize(
    ("position", "micros"),
    [
        # A start at the same instant begins with the whole millisecond, which this leaves.
        (StartingPosition.at_timestamp(_EPOCH + timedelta(microseconds=1_700)), 1_000),
        # What has arrived in the current millisecond is in the stream.
        (StartingPosition.latest(), 2_000),
        (StartingPosition.latest(timedelta(microseconds=500)), 1_000),
    ],
)
async def test_an_end_is_a_whole_millisecond(position: StartingPosition, micros: int):
    world = World(clock=ManualClock(_EPOCH + timedelta(microseconds=1_200)))
    end = ReadingEnd(position, world.clock, world.parts().discovery)
    end.note_listing(world.clock.now())
    assert end.until == _EPOCH + timedelta(microseconds=micros)


async def test_latest_is_the_instant_at_which_reading_began(monkeypatch: pytest.MonkeyPatch):
    world = World()
    world.add(0)
    describe = FakeControlPlane.describe_stream

    async def describe_slowly(plane: FakeControlPlane, stream: str) -> StreamSummary:
        await world.clock.sleep(5)
        return await describe(plane, stream)

    monkeypatch.setattr(FakeControlPlane, "describe_stream", describe_slowly)
    fetcher, began = world.fetcher(end=StartingPosition.latest()), world.clock.now()
    await finish(fetcher.prepare(), world.clock)
    assert fetcher.end.until == began
    # When reading begins again, with a stream that was created again, the end stays.
    await finish(fetcher.prepare(), world.clock)
    assert fetcher.end.until == began
