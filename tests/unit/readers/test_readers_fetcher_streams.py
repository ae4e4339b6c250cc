"""Streams that are added to a running fetcher, and dropped from it, while others are read on."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from kinesis_publishers import KinesisDataFetcher, ShardKey, StartingPosition
from kinesis_publishers.errors import ReaderReplacedError, StreamNotFoundError
from kinesis_publishers.events import DataLossTolerated, ShardsDiscovered, StreamPrepared
from kinesis_publishers.model import Positions, Scope
from kinesis_publishers.testing.fakes import (
    STREAM_ARN,
    FakeControlPlane,
    FakeStream,
    RecordingSink,
    StoredShard,
    sample_shard,
    shard_name,
)
from tests.unit.leases.lease_support import APPLICATION, FAILOVER
from tests.unit.leases.test_leases_reading import LeaseWorld
from tests.unit.readers.fetcher_support import Blocks, World, records_of
from tests.unit.readers.test_readers_fetcher_checkpoints import StoredWorld, last_of

PAYMENTS = "arn:aws:kinesis:eu-west-1:123456789012:stream/payments"
ZERO, ONE, TWO = shard_name(0), shard_name(1), shard_name(2)


def with_payments(world: World) -> World:
    """Add a stream that exists, and that the configuration does not name."""
    world.add(0)
    payments = FakeStream([sample_shard(1, stream_arn=PAYMENTS)], arn=PAYMENTS)
    world.shards[ONE] = StoredShard(records_of(1))
    world.control_plane = FakeControlPlane(world.stream, payments)
    return world


def read_of(world: World, number: int) -> list[str]:
    assert isinstance(world.sink, RecordingSink)
    return [one.sequence_number for one in world.sink.records_of(shard_name(number))]


def numbers_of(number: int) -> list[str]:
    return [one.sequence_number for one in records_of(number)]


async def test_a_stream_is_added_to_a_running_fetcher() -> None:
    world = with_payments(World(initial_position=StartingPosition.latest()))
    async with world.running() as fetcher:
        await world.clock.advance(3)
        added_at = world.clock.now()
        before = fetcher.progress[STREAM_ARN]
        fetcher.add_stream("payments")
        assert not fetcher.is_finished
        await world.clock.settle()
        assert dict(world.started())[ONE] == StartingPosition.at_timestamp(added_at)
        assert [shard_id for shard_id, _ in world.started()] == [ZERO, ONE], "one start each"
        assert fetcher.progress.keys() == {STREAM_ARN, PAYMENTS}
        assert fetcher.progress[STREAM_ARN].identity == before.identity
    kinds = [StreamPrepared, ShardsDiscovered]
    found = [(type(one), one.stream_arn) for one in world.events if type(one) in kinds]
    assert found == [
        (ShardsDiscovered, STREAM_ARN),
        (StreamPrepared, STREAM_ARN),
        (ShardsDiscovered, PAYMENTS),
        (StreamPrepared, PAYMENTS),
    ]


async def test_shards_that_an_added_stream_gets_later_are_read() -> None:
    world = with_payments(World())
    async with world.running() as fetcher:
        fetcher.add_stream(PAYMENTS)
        await world.clock.advance(1)
        world.shards[TWO] = StoredShard(records_of(2))
        world.control_plane.streams[1].add(sample_shard(2, stream_arn=PAYMENTS))
        await world.clock.advance(10)
    assert read_of(world, 2) == numbers_of(2)


async def test_a_stream_that_comes_later_leaves_the_checkpoints_of_others_alone() -> None:
    world = with_payments(StoredWorld())
    assert isinstance(world, StoredWorld)
    async with world.reading() as fetcher:
        await world.clock.advance(20)
        before = dict(world.memory.applications["billing"])
        fetcher.add_stream("payments")
        await world.clock.settle()
        now = dict(world.memory.applications["billing"])
        # The mark of a stream is written with every change.
        assert now[ShardKey(STREAM_ARN, ZERO)] == before[ShardKey(STREAM_ARN, ZERO)]
        assert now.keys() - before == {ShardKey(PAYMENTS, ONE), ShardKey(PAYMENTS, "*")}
        await world.clock.advance(20)
        assert world.stored[ONE].processed == last_of(1)


async def test_a_dropped_stream_is_recorded_and_the_others_are_read_on() -> None:
    blocks = Blocks(ONE)
    world = with_payments(StoredWorld(sink=RecordingSink(blocks)))
    assert isinstance(world, StoredWorld)
    async with world.reading() as fetcher:
        fetcher.add_stream("payments")
        await world.clock.advance(1)
        fetcher.drop_stream("payments")
        await world.clock.advance(1)
        assert {one.shard.stream_arn for one in fetcher.statuses} == {STREAM_ARN, PAYMENTS}
        assert world.stored[ONE].processed is None, "it is being processed"
        blocks.gate.set()
        await world.clock.settle()
        assert {one.shard.stream_arn for one in fetcher.statuses} == {STREAM_ARN}
        assert world.stored[ONE].processed == last_of(1)
        assert fetcher.progress[PAYMENTS].is_left_out
        await world.clock.advance(30)
        assert [shard_id for shard_id, _ in world.started()] == [ZERO, ONE]
        assert world.stored[ONE].processed == last_of(1), "its checkpoint stays"


@pytest.mark.parametrize("kind", [World, StoredWorld])
async def test_a_stream_that_is_added_again_continues_where_it_was(kind: type[World]) -> None:
    world = with_payments(kind())
    async with world.reading() if isinstance(world, StoredWorld) else world.running() as fetcher:
        for _ in range(2):
            fetcher.add_stream("payments")
            await world.clock.advance(1)
            fetcher.drop_stream("payments")
            await world.clock.advance(1)
    starts = [position for shard_id, position in world.started() if shard_id == ONE]
    assert starts == [StartingPosition.trim_horizon(), StartingPosition.after(last_of(1))]
    assert read_of(world, 1) == numbers_of(1)


async def test_a_stream_is_one_by_its_name_and_by_its_arn() -> None:
    world = with_payments(World())
    async with world.running() as fetcher:
        for stream in ("payments", PAYMENTS):
            fetcher.add_stream(stream)
            await world.clock.advance(1)
        assert [shard_id for shard_id, _ in world.started()] == [ZERO, ONE], "one start each"
        fetcher.drop_stream(PAYMENTS)
        await world.clock.advance(1)
        fetcher.add_stream("payments")
        await world.clock.advance(1)
        with pytest.raises(ValueError, match="refunds is not read: there are orders, payments"):
            fetcher.drop_stream("refunds")
    starts = [position for shard_id, position in world.started() if shard_id == ONE]
    assert starts == [StartingPosition.trim_horizon(), StartingPosition.after(last_of(1))]
    assert read_of(world, 1) == numbers_of(1)


async def test_a_third_stream_is_added_after_one_was_dropped() -> None:
    world = with_payments(World(fails_on_data_loss=False))
    refunds = PAYMENTS.replace("payments", "refunds")
    world.control_plane.streams.append(
        FakeStream([sample_shard(2, stream_arn=refunds)], arn=refunds)
    )
    world.shards[TWO] = StoredShard(records_of(2))
    async with world.running() as fetcher:
        fetcher.add_stream("payments")
        fetcher.drop_stream("payments")
        fetcher.add_stream("refunds")
        await world.clock.advance(1)
        assert fetcher.progress.keys() == {STREAM_ARN, PAYMENTS, refunds}
    assert read_of(world, 2) == numbers_of(2)
    assert not world.events_of(DataLossTolerated), "it was dropped on purpose"


async def test_adding_a_stream_does_not_hide_that_another_reader_has_taken_over() -> None:
    world = with_payments(StoredWorld())
    assert isinstance(world, StoredWorld)
    async with world.stored_fetcher() as old:
        running = asyncio.create_task(old.run())
        await world.clock.advance(20)
        async with world.stored_fetcher() as newer:
            await newer.prepare()
        old.add_stream("payments")
        await world.clock.settle()
        world.add(2)
        await world.clock.advance(30)
        with pytest.raises(ReaderReplacedError):
            await running


async def test_a_stream_that_does_not_exist_fails_the_fetcher_and_adds_nothing() -> None:
    world = with_payments(World())
    fetcher = world.fetcher()
    running = asyncio.create_task(fetcher.run())
    await world.clock.settle()
    fetcher.add_stream("typo")
    await world.clock.advance(10)
    with pytest.raises(StreamNotFoundError):
        await running
    assert fetcher.progress.keys() == {STREAM_ARN}


async def test_a_worker_gives_up_the_leases_of_a_dropped_stream_and_takes_them_again() -> None:
    world = with_payments(LeaseWorld())
    assert isinstance(world, LeaseWorld)

    def owner() -> str | None:
        row, _ = world.group.memory.applications[APPLICATION][ShardKey(PAYMENTS, ONE)]
        assert row.checkpoint.lease is not None
        return row.checkpoint.lease.owner

    async with world.opened(world.sink, records=True) as fetcher, world.running(fetcher):
        await world.clock.advance(2 * FAILOVER)
        for _ in range(2):
            fetcher.add_stream("payments")
            await world.clock.advance(2 * FAILOVER)
            assert owner() == "one"
            fetcher.drop_stream("payments")
            await world.clock.advance(2 * FAILOVER)
            assert owner() is None
        assert {one.shard.shard_id for one in fetcher.statuses} == {ZERO}
    assert read_of(world, 1) == numbers_of(1)


async def test_each_stream_begins_at_its_own_position() -> None:
    world = with_payments(World())
    world.control_plane.streams[1].add(sample_shard(2, stream_arn=PAYMENTS))
    world.shards[TWO] = StoredShard(records_of(2))
    last = StartingPosition.after(last_of(2))
    own = {Scope("payments"): StartingPosition.latest(), Scope(PAYMENTS, TWO): last}
    initial = Positions(StartingPosition.trim_horizon(), own)
    services = evolve(world.parts(), initial=initial, streams=("orders", "payments"))
    pinned = StartingPosition.at_timestamp(world.clock.now())
    async with world.running(KinesisDataFetcher(services, world.sink)):
        await world.clock.advance(1)
    assert dict(world.started()) == {
        ZERO: StartingPosition.trim_horizon(),
        ONE: pinned,
        TWO: last,
    }
