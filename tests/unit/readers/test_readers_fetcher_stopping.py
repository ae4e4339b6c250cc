"""Stopping a fetcher, or one shard of it."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_publishers import ShardStatus
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import InternalServiceError
from kinesis_publishers.events import ShardsDiscovered
from kinesis_publishers.testing.fakes import RecordingSink, StoredShard, shard_name
from tests.unit.readers.fetcher_support import Blocks, World, failure, other_tasks, records_of

ZERO, ONE = shard_name(0), shard_name(1)


async def test_stopping_between_two_calls_returns_at_once():
    world = World()
    world.add(0)
    fetcher = world.fetcher()
    reading = asyncio.create_task(fetcher.run())
    await world.clock.advance(0.1)
    fetcher.stop()
    await world.clock.settle()
    assert reading.done()
    await reading
    assert world.clock.sleeper_count == 0


async def test_stopping_while_a_shard_waits_for_room_returns_at_once():
    world = World(pool=PendingPool(max_records=1, max_bytes=1))
    world.add(0)
    held = await world.pool.acquire(1, 1)
    async with world.running():
        await world.clock.advance(1)
        assert world.pool.waiter_count == 1
    assert world.pool.waiter_count == 0
    held.release()


async def test_stopping_during_a_call_returns_at_once():
    class Silent(StoredShard):
        async def read(self, index: int, limit: int):
            await asyncio.Event().wait()

    world = World()
    world.add(0, behaviour=Silent())
    async with world.running():
        await world.clock.advance(1)
    assert world.pool.records == 0


async def test_stopping_while_shards_are_listed_returns_at_once():
    world = World()
    world.add(0)
    async with world.running():
        world.control_plane.errors = [failure(InternalServiceError, "ListShards")] * 3
        await world.clock.advance(10)
        assert len(world.control_plane.list_calls) == 2
        assert world.control_plane.errors, "a retry of the listing is due"


async def test_stopping_while_streams_are_described_returns_at_once():
    world = World()
    world.stream.status = "CREATING"
    async with world.running():
        assert len(world.control_plane.describe_calls) == 1


async def test_stopping_before_the_start_reads_nothing():
    world = World()
    world.add(0)
    fetcher = world.fetcher()
    fetcher.stop()
    await fetcher.run()
    assert world.data_plane.calls == world.control_plane.describe_calls == []


async def test_stopping_when_shards_are_found_starts_none_of_them():
    class StopsWhenShardsAreFound(list):
        def append(self, event: object) -> None:
            if isinstance(event, ShardsDiscovered):
                fetcher.stop()

    world = World(events=StopsWhenShardsAreFound())
    world.add(0)
    fetcher = world.fetcher()
    await fetcher.run()
    assert world.data_plane.calls == []


async def test_stopping_twice_and_after_the_end_does_no_harm():
    world = World()
    world.add(0)
    async with world.running() as fetcher:
        fetcher.stop()
        fetcher.stop()
    fetcher.stop()


async def test_cancelling_a_fetcher_stops_every_shard_and_leaves_nothing():
    world = World(sink=RecordingSink(Blocks()))
    for number in range(4):
        world.add(number)
    reading = asyncio.create_task(world.fetcher().run())
    await world.clock.advance(0.1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert other_tasks() == set()
    assert (world.pool.records, world.pool.payload_bytes) == (0, 0)
    assert world.clock.sleeper_count == 0


async def test_a_shard_that_was_finished_early_is_read_no_further_and_the_others_are():
    class FinishesFirst(RecordingSink):
        def observe(self, status: ShardStatus) -> None:
            if status.shard.shard_id == ZERO:
                fetcher.finish_shard(status.shard.key)

    world = World(sink=FinishesFirst())
    shards = [world.add(0), world.add(1)]
    fetcher = world.fetcher()
    async with world.running(fetcher):
        for number, shard in enumerate(shards):
            shard.extend(records_of(number, 3, first=3))
        await world.clock.advance(30)
        assert not fetcher.is_finished
    assert world.sink.records_of(ZERO) == records_of(0)
    assert world.sink.records_of(ONE) == records_of(1, 6)


async def test_a_fetcher_is_finished_when_every_shard_has_ended_and_children_were_looked_for():
    world = World()
    world.add(0)
    async with world.running() as fetcher:
        assert not fetcher.is_finished
        world.close(0)
        world.add_closed(1, parent=0)
        await world.clock.advance(0.2)
        await world.clock.advance(1)
        assert fetcher.is_finished
    assert world.sink.records_of(ONE) == records_of(1)


async def test_a_finished_shard_that_vanishes_is_no_loss():
    world = World()
    world.add(0)
    world.add(1, parent=0)
    async with world.running() as fetcher:
        fetcher.finish_shard(world.shard(1).key)
        world.stream.remove(ONE)
        await world.clock.advance(11)
