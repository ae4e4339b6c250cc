"""What a reader with leases does with its records while shards come and go."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from attrs import define, field

from kinesis_publishers import KinesisDataFetcher, SequenceNumber
from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.errors import AccessDeniedError, ConnectionFailedError
from kinesis_publishers.events import LeaseLost
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.processing.reading import RecordStream
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.testing.fakes import FailingCalls, RecordingSink, StoredShard, shard_name
from tests.unit.leases.lease_support import (
    APPLICATION,
    FAILOVER,
    HANDOVER,
    POLICY,
    CountingStore,
    Group,
    Worker,
    config,
    down,
)
from tests.unit.readers.fetcher_support import World, child_of, failure, records_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import Record, Shard
    from kinesis_publishers.engine.delivery import DeliverySink
    from kinesis_publishers.model import ShardKey

CONFIG = CheckpointConfig(
    application=APPLICATION, store="memory", interval_seconds=5.0, max_records=10_000, retry=POLICY
)


@define(kw_only=True)
class LeaseWorld(World):
    """A world whose fetchers are workers of one application."""

    group: Group = field(init=False)
    stores: list[CountingStore] = field(factory=list)
    ended: list[str] = field(factory=list)
    lost: list[str] = field(factory=list)

    @group.default
    def _of_one_clock(self) -> Group:
        return Group(self.clock)

    @asynccontextmanager
    async def opened(
        self, sink: DeliverySink, *, records: bool = False
    ) -> AsyncIterator[KinesisDataFetcher]:
        async with CountingStore(self.clock, self.group.memory) as store:
            self.stores.append(store)
            leases = Leases(store, config("one"), self.clock, self.events.append)
            checkpointer = Checkpointer(leases, CONFIG, self.clock)
            try:
                yield KinesisDataFetcher(
                    self.parts(),
                    checkpointer.sink(sink, records_deliveries=records),
                    checkpointer=checkpointer,
                    assigner=leases.shards,
                )
            finally:
                await checkpointer.release()

    def records(self) -> RecordStream:
        async def note_end(shard: Shard) -> None:
            self.ended.append(shard.shard_id)

        async def note_loss(shard: ShardKey) -> None:
            self.lost.append(shard.shard_id)

        return RecordStream(
            DeliveryFeed(self.opened, self.clock),
            {"on_shard_end": note_end, "on_shard_lost": note_loss},
        )

    async def other_worker(self, *numbers: int) -> Worker:
        shards = [self.shard(number) for number in numbers]
        return await self.group.begin("other", shards)


@define(eq=False)
class Reader:
    """Takes every record as soon as it comes; waits while a test holds it."""

    taken: list[Record] = field(factory=list)
    gate: asyncio.Event = field(factory=asyncio.Event)
    holds_at: int | None = None

    async def run(self, stream: RecordStream) -> None:
        async with stream as records:
            async for record in records:
                self.taken.append(record)
                if len(self.taken) == self.holds_at:
                    await self.gate.wait()


@asynccontextmanager
async def reading(world: LeaseWorld, reader: Reader) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(reader.run(world.records()))
    try:
        await world.clock.advance(3)
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_end_of_a_shard_that_came_back_is_recorded() -> None:
    world = LeaseWorld()
    for number in (0, 1):
        world.add(number)
    reader = Reader()
    async with reading(world, reader):
        assert len(reader.taken) == 6
        other = await world.other_worker(0, 1)
        await other.look()
        await world.clock.advance(3)
        await other.look()
        (number,) = other.readable
        world.close(number)
        await other.leases.close()
        await world.clock.advance(30)
        assert world.group.progress(world.shard(number)).is_ended
        assert world.ended == [shard_name(number)]
        assert len(reader.taken) == 6


async def test_a_failure_is_raised_although_no_lease_is_renewed_any_more() -> None:
    world = LeaseWorld()
    world.add(0)
    world.add(1, behaviour=StoredShard([]))
    reader = Reader(holds_at=1)
    async with reading(world, reader) as task:
        name = shard_name(1)
        refused = FailingCalls(world.shards[name], on_read=(failure(AccessDeniedError),))
        world.shards[name] = refused
        await world.clock.advance(2 * FAILOVER)
        reader.gate.set()
        await world.clock.advance(2 * FAILOVER)
        assert len(reader.taken) == 1
        assert task.done()
        with pytest.raises(AccessDeniedError):
            await task


async def test_stop_does_not_wait_for_a_store_that_is_down() -> None:
    world = LeaseWorld(sink=RecordingSink())
    world.add(0)
    async with world.opened(world.sink, records=True) as fetcher:
        task = asyncio.create_task(fetcher.run())
        await world.clock.advance(3)
        world.stores[0].error = down()
        await world.clock.advance(2 * FAILOVER)
        shard = world.shards[shard_name(0)]
        assert isinstance(shard, StoredShard)
        shard.extend(records_of(0, 1, first=3))
        await world.clock.advance(1)
        fetcher.stop()
        await world.clock.advance(FAILOVER)
        assert task.done()
        with pytest.raises(ConnectionFailedError):
            await task


async def reading_with_an_end_behind_a_slow_record(world: LeaseWorld, reader: Reader) -> Worker:
    """Let all records of the shard 0 be processed, and another worker ask for it."""
    assert reader.taken[-1].shard_id == shard_name(3)
    await world.clock.advance(FAILOVER)
    assert {world.group.lease(one).owner for one in world.stream.shards} == {"one"}
    other = await world.other_worker(0, 3)
    await other.look()
    assert world.group.lease(world.shard(0)).owner == "other"
    return other


def family() -> LeaseWorld:
    world = LeaseWorld()
    for number in (0, 3):
        world.add(number)
    for number in (1, 2):
        world.add(number, parent=0)
    world.close(0, child_of(0, number=1), child_of(0, number=2))
    return world


async def test_a_child_is_read_on_although_its_parent_was_taken_before_its_end_was_told() -> None:
    world, reader = family(), Reader(holds_at=4)
    async with reading(world, reader):
        other = await reading_with_an_end_behind_a_slow_record(world, reader)
        await other.look_for(HANDOVER + FAILOVER, world.clock)
        assert 0 in other.readable
        (parent,) = (one for one in other.shards if one.shard_id == shard_name(0))
        await other.leases.write({parent.key: world.group.progress(parent).ended()})
        reader.gate.set()
        await world.clock.advance(FAILOVER)
        assert world.lost == []
        children = (shard_name(1), shard_name(2))
        read = [one.shard_id for one in reader.taken[4:] if one.shard_id in children]
        assert sorted(read) == sorted(children * 3)


@pytest.mark.parametrize("listing_hangs", [False, True])
async def test_the_end_of_a_shard_is_told_by_the_worker_that_has_read_it(
    *, listing_hangs: bool
) -> None:
    world, reader = family(), Reader(holds_at=4)
    listing = hanging_listing(world) if listing_hangs else nullcontext()
    async with reading(world, reader), listing:
        other = await reading_with_an_end_behind_a_slow_record(world, reader)
        await other.look_for(FAILOVER, world.clock)
        assert 0 not in other.readable
        reader.gate.set()
        await world.clock.advance(1)
        assert world.ended == [shard_name(0)]
        assert world.group.progress(world.shard(0)).is_ended


async def test_a_shard_that_is_handed_over_in_the_middle_has_not_ended() -> None:
    world = LeaseWorld()
    world.add_closed(0)
    world.add(3)
    reader = Reader(holds_at=1)
    async with reading(world, reader):
        (first,) = reader.taken
        assert first.shard_id == shard_name(0)
        other = await world.other_worker(0, 3)
        await other.look()
        await world.clock.advance(3)
        assert world.group.lease(world.shard(0)).owner == "other"
        reader.gate.set()
        await world.clock.advance(1)
        await other.look()
        assert other.readable == {0}
        progress = world.group.progress(world.shard(0))
        assert not progress.is_ended
        assert progress.processed == SequenceNumber(first.sequence_number)
        assert [one.shard_id for one in reader.taken] == [shard_name(0), *[shard_name(3)] * 3]
    assert world.ended == world.lost == []


@asynccontextmanager
async def hanging_listing(world: LeaseWorld) -> AsyncIterator[None]:
    """Let a listing begin that has no answer while the context lasts."""
    answers, list_shards = asyncio.Event(), world.control_plane.list_shards

    async def hang(*arguments: Any, **options: Any) -> Any:
        await answers.wait()
        return await list_shards(*arguments, **options)

    with patch.object(world.control_plane, "list_shards", hang):
        await world.clock.advance(FAILOVER)
        yield
    answers.set()


async def test_a_shard_is_handed_over_while_a_listing_takes_its_time() -> None:
    world = LeaseWorld(sink=RecordingSink())
    for number in (0, 1):
        world.add(number)
    async with world.opened(world.sink, records=True) as fetcher:
        task = asyncio.create_task(fetcher.run())
        await world.clock.advance(3)
        async with hanging_listing(world):
            other = await world.other_worker(0, 1)
            await other.look()
            await other.look_for(3, world.clock)
            assert len(other.readable) == 1
        fetcher.stop()
        await world.clock.advance(1)
        await task
    assert not [event for event in world.events if isinstance(event, LeaseLost)]
