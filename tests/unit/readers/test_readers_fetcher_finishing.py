"""Shards that are finished early, what waits for them, and stored positions that are old."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers import KinesisDataFetcher, ShardProgress, StartingPosition
from kinesis_publishers.errors import PositionTrimmedError
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    FakeStream,
    RecordingSink,
    sample_shard,
    shard_name,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.readers.fetcher_support import World, child_of, progress_of, records_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRIM_HORIZON = ShardProgress(position=StartingPosition.trim_horizon())
ZERO, ONE, TWO = map(shard_name, range(3))


async def test_what_waits_for_a_finished_shard_does_not_keep_a_fetcher_from_being_finished():
    world = World()
    world.add(0)
    world.add(1, parent=0)
    world.add(2, parent=1)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        assert not fetcher.is_finished
        fetcher.finish_shard(sample_shard(0).key)
        await world.clock.advance(1)
        assert fetcher.is_finished
    assert [shard_id for shard_id, _ in world.started()] == [ZERO]


async def test_another_shard_that_is_read_keeps_a_fetcher_from_being_finished():
    world = World()
    world.add(0)
    world.add(1, parent=0)
    world.add(2)
    async with world.running() as fetcher:
        fetcher.finish_shard(sample_shard(0).key)
        await world.clock.advance(1)
        assert not fetcher.is_finished
        fetcher.finish_shard(sample_shard(2).key)
        assert fetcher.is_finished


async def test_a_finished_shard_that_has_ended_all_the_same_does_not_block_its_children():
    world = World()
    world.add_closed(0)
    world.add(1, parent=0)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        fetcher.finish_shard(sample_shard(0).key)
        assert not fetcher.is_finished


async def test_without_parents_first_no_shard_waits_for_a_finished_one():
    world = World(parents_first=False)
    world.add(0)
    world.add(1, parent=0)
    async with world.running() as fetcher:
        fetcher.finish_shard(sample_shard(0).key)
        await world.clock.advance(1)
        assert not fetcher.is_finished


async def test_the_ancestors_of_a_shard_are_those_that_are_listed():
    other = FakeStream(arn="arn:aws:kinesis:eu-west-1:123456789012:stream/payments")
    stream = FakeStream()
    world = World(stream=stream, streams=[stream, other])
    world.add(1, parent=0)
    world.add(2, parent=1)
    world.add(3)
    world.add(4, parent=2, adjacent_parent=3)
    fetcher = world.fetcher()
    await fetcher.prepare()
    keys = [sample_shard(number).key for number in range(5)]
    assert fetcher.ancestors_of(keys[4]) == {keys[1], keys[2], keys[3]}
    assert fetcher.ancestors_of(keys[1]) == frozenset()
    assert fetcher.ancestors_of(keys[0]) == frozenset()


async def test_a_restart_lets_a_grandchild_wait_although_the_child_has_ended():
    world = World()
    world.add(0)
    world.add_closed(1, parent=0)
    world.add(2, parent=1)
    resume = progress_of(world.stream, s0=TRIM_HORIZON, s1=TRIM_HORIZON.ended(), s2=TRIM_HORIZON)
    async with world.running(world.fetcher(resume)):
        await world.clock.advance(1)
        assert [shard_id for shard_id, _ in world.started()] == [ZERO]
        world.close(0)
        await world.clock.advance(1)
    assert world.sink.records == [*records_of(0), *records_of(2)]


def at_instant(age: timedelta) -> ShardProgress:
    return ShardProgress(position=StartingPosition.at_timestamp(NOW - age))


async def test_a_stored_instant_beyond_the_retention_is_data_loss():
    world = World()
    world.add(0)
    resume = progress_of(world.stream, s0=at_instant(timedelta(days=2)))
    reading = asyncio.ensure_future(world.fetcher(resume).run())
    with pytest.raises(PositionTrimmedError, match="24 hours only"):
        await reading
    assert world.data_plane.calls == []


async def test_a_stored_instant_beyond_the_retention_is_read_on_if_loss_is_tolerated():
    world = World(fails_on_data_loss=False)
    world.add(0)
    resume = progress_of(world.stream, s0=at_instant(timedelta(days=2)))
    async with world.running(world.fetcher(resume)):
        await world.clock.advance(1)
    assert world.started() == [(ZERO, at_instant(timedelta(days=2)).position)]
    assert world.events_of(DataLossTolerated)


async def test_a_stored_instant_within_the_retention_is_read_on():
    world = World()
    world.add(0)
    resume = progress_of(world.stream, s0=at_instant(timedelta(hours=2)))
    async with world.running(world.fetcher(resume)):
        await world.clock.advance(1)
    assert world.started() == [(ZERO, at_instant(timedelta(hours=2)).position)]


async def test_a_first_start_may_name_an_instant_beyond_the_retention():
    old = at_instant(timedelta(days=2))
    world = World(initial_position=old.position, initial_shards={ONE: old})
    world.add(0)
    world.add(1)
    async with world.running():
        await world.clock.advance(1)
    assert world.started() == [(ZERO, old.position), (ONE, old.position)]


async def test_a_fetcher_from_properties_lives_by_the_clock_that_it_is_given():
    clock = ManualClock()
    closed = socket.create_server(("127.0.0.1", 0))
    properties = {
        "aws.region": "eu-west-1",
        "aws.endpoint": f"http://127.0.0.1:{closed.getsockname()[1]}",
        "kinesis.streams": "orders",
        # Without these, botocore looks for others on the network.
        "aws.credentials.provider": "BASIC",
        "aws.credentials.provider.basic.accesskeyid": "key",
        "aws.credentials.provider.basic.secretkey": "secret",
    }
    async with KinesisDataFetcher.from_properties(
        properties, RecordingSink(), clock=clock
    ) as fetcher:
        closed.close()
        preparing = asyncio.create_task(fetcher.prepare())
        # The delay after the refused connection.
        async with asyncio.timeout(20):
            await clock.wait_for_sleepers()
        preparing.cancel()


async def test_a_shard_that_ends_while_shards_are_listed_is_not_settled_by_that_listing():
    class SlowListing(FakeControlPlane):
        async def list_shards(self, stream_arn, *, since=None):
            listed = await super().list_shards(stream_arn, since=since)
            if len(self.list_calls) == 2:
                listing.set()
                await answer.wait()
            return listed

    class Sink(RecordingSink):
        def observe_discovery(self) -> None:
            seen.append(fetcher.is_finished)

    listing, answer = asyncio.Event(), asyncio.Event()
    seen: list[bool] = []
    world = World(sink=Sink())
    world.add(0)
    world.add(1)
    world.control_plane = SlowListing(world.stream)
    async with world.running() as fetcher:
        world.close(0, child_of(0, number=1))
        await world.clock.advance(1)
        assert listing.is_set()
        world.close(
            1, child_of(1, number=2)
        )  # its child appears after the answer that is on its way
        await world.clock.advance(1)
        world.add(2, parent=1)
        answer.set()
        await world.clock.settle()
        assert seen[0] is False
