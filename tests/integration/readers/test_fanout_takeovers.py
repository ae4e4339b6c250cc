"""Two readers with one consumer name: each shard has one subscription, which they take in turns."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import KinesisDataFetcher, Properties
from kinesis_publishers.events import CallRetried, RecordsProcessed, SubscriptionStarted
from kinesis_publishers.testing.fakes import RecordingSink
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import Event

PROPERTIES = {
    "aws.region": "us-east-1",
    "kinesis.streams": STREAM,
    "kinesis.stream.recordpublisher": "EFO",
    "kinesis.stream.efo.consumername": "reports",
    "kinesis.stream.initpos": "TRIM_HORIZON",
}
SHARDS = 2


class Reader:
    """A fetcher of its own."""

    def __init__(self, world: SimulatedWorld, **options: str) -> None:
        self.events: list[Event] = []
        self.sink = RecordingSink()
        properties = Properties.parse({**PROPERTIES, **options})
        self._services = world.parts(properties, self.events.append)
        self.fetcher = KinesisDataFetcher(self._services, self.sink)

    @property
    def calls(self) -> int:
        """How many SubscribeToShard it has made."""
        refused = [
            one
            for one in self.events
            if isinstance(one, CallRetried) and one.operation == "SubscribeToShard"
        ]
        return len(refused) + sum(isinstance(one, SubscriptionStarted) for one in self.events)

    async def close(self) -> None:
        await self._services.factory.close()


@asynccontextmanager
async def reading(world: SimulatedWorld, *readers: Reader) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(reader.fetcher.run()) for reader in readers]
    try:
        yield
    finally:
        for reader in readers:
            reader.fetcher.stop()
        closing = asyncio.gather(*tasks, *(one.close() for one in readers))
        while not closing.done():
            await world.clock.advance(1.0)
        await closing


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "another reader" in one.getMessage()]


@pytest.fixture(params=["close", "exception"])
def world(request: pytest.FixtureRequest) -> SimulatedWorld:
    return SimulatedWorld(Behaviour(takeover=request.param))


async def test_a_reader_that_another_one_drives_out_says_so_once_a_minute_for_all_its_shards(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
):
    async with reading(world, Reader(world), Reader(world)):
        await world.clock.advance(60.0)
        (first, second) = warnings_in(caplog)
        assert "orders/shardId-00000000000" in first
        assert f"stream/{STREAM}/consumer/reports:" in first
        assert "kinesis.stream.efo.consumername" in first
        assert "3 times in a row" in second
        await world.clock.advance(240.0)
        assert 6 <= len(warnings_in(caplog)) <= 10


async def test_readers_that_drive_each_other_out_call_less_and_less_often(world: SimulatedWorld):
    readers = Reader(world), Reader(world)
    async with reading(world, *readers):
        await world.clock.advance(120.0)
        before = sum(reader.calls for reader in readers)
        await world.clock.advance(120.0)
        calls = sum(reader.calls for reader in readers) - before
    # A subscription and a refusal for each turn, of half a minute, at each shard.
    assert calls <= SHARDS * 2 * (120 // 30 + 2)


async def test_both_readers_get_every_record_within_forty_seconds(world: SimulatedWorld):
    readers = Reader(world), Reader(world)
    async with reading(world, *readers):
        await world.clock.advance(120.0)
        for _ in range(20):
            world.put(1)
            await world.clock.advance(3.0)
        await world.clock.advance(40.0)
        for reader in readers:
            assert len(reader.sink.records) == 20
            assert any(isinstance(one, RecordsProcessed) for one in reader.events)


async def test_the_one_that_is_left_reads_without_delay_and_without_a_warning(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
):
    stays = Reader(world)
    async with reading(world, stays):
        async with reading(world, Reader(world, **{"kinesis.stream.efo.deregister": "never"})):
            await world.clock.advance(60.0)
        await world.clock.advance(400.0)
        caplog.clear()
        world.put(10)
        await world.clock.advance(1.0)
        assert len(stays.sink.records) == 10
        await world.clock.advance(400.0)
    assert warnings_in(caplog) == []


async def test_one_reader_that_is_restarted_is_not_taken_for_two(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    for _ in range(4):
        async with reading(world, Reader(world, **{"kinesis.stream.efo.deregister": "never"})):
            await world.clock.advance(7.0)
    assert warnings_in(caplog) == []
