"""A running fetcher whose stream loses records under it, by polling and by enhanced fan-out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import (
    Delivery,
    DeliverySink,
    KinesisDataFetcher,
    Properties,
)
from kinesis_publishers.errors import PositionTrimmedError, StreamRecreatedError
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import Event

MINUTE, HOUR = 60.0, 3600.0
PROPERTIES = {
    "aws.region": "us-east-1",
    "kinesis.streams": STREAM,
    "kinesis.stream.initpos": "TRIM_HORIZON",
    "kinesis.stream.efo.consumername": "reports",
    "kinesis.shard.discovery.intervalmillis": "3600000",
}
# Over days, polls and reports of every few seconds would take long.
RARELY = {"kinesis.shard.getrecords.intervalmillis": "60000"}


class GatedSink(DeliverySink):
    """Takes nothing while its gate is closed."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.payloads: list[bytes] = []

    async def deliver(self, delivery: Delivery) -> None:
        await self.gate.wait()
        self.payloads.extend(delivery.batch.payloads)
        delivery.release()


class World(SimulatedWorld):
    """A stream that keeps its records for a week, and what reads it."""

    def __init__(self) -> None:
        super().__init__(Behaviour())
        self.sink = GatedSink()
        self.events: list[Event] = []
        self.keep_for(168)

    def keep_for(self, hours: int) -> None:
        with self.service.lock:
            self.service.state.find_active(STREAM).retention_hours = hours

    def create_again(self, *, shards: int = 2) -> None:
        with self.service.lock:
            state = self.service.state
            state.delete(state.find(STREAM))
            state.create(STREAM, "PROVISIONED", shards)

    @asynccontextmanager
    async def reading(
        self, publisher: str, *, fails_on_data_loss: bool = True, **more: str
    ) -> AsyncIterator[asyncio.Task[None]]:
        properties = Properties.parse(
            PROPERTIES | {"kinesis.stream.recordpublisher": publisher} | more
        )
        parts = self.parts(properties, self.events.append, fails_on_data_loss=fails_on_data_loss)
        self.fetcher = fetcher = KinesisDataFetcher(parts, self.sink)
        task = asyncio.create_task(fetcher.run())
        try:
            await self.clock.advance(10.0)
            yield task
        finally:
            fetcher.stop()
            task.cancel()
            closing = asyncio.gather(task, parts.factory.close(), return_exceptions=True)
            while not closing.done():
                await self.clock.advance(1.0)

    async def block_for_days(self) -> int:
        """Let three days of records come that are not taken; return how many."""
        self.sink.gate.clear()
        for _ in range(3):
            self.put(40)
            await self.clock.advance(24 * HOUR)
        self.put(40)
        return 160

    @property
    def losses(self) -> list[DataLossTolerated]:
        return [one for one in self.events if isinstance(one, DataLossTolerated)]


@pytest.fixture(autouse=True)
def _rare_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinesis_publishers.readers.consumers.LOOK_SECONDS", HOUR)


@pytest.fixture(params=["POLLING", "EFO"])
def publisher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_reader_behind_goes_on_while_the_retention_is_what_it_was(publisher: str) -> None:
    world = World()
    async with world.reading(publisher, **RARELY):
        count = await world.block_for_days()
        world.sink.gate.set()
        await world.clock.advance(10 * MINUTE)
    assert len(world.sink.payloads) == count


async def test_a_retention_that_is_shortened_under_a_reader_behind_is_an_error(
    publisher: str,
) -> None:
    world = World()
    async with world.reading(publisher, **RARELY) as task:
        await world.block_for_days()
        world.keep_for(24)
        world.sink.gate.set()
        with pytest.raises(PositionTrimmedError, match=r"removed unread|no longer available"):
            await world.within_time(task)


async def test_where_that_is_tolerated_it_is_reported_and_the_rest_read(publisher: str) -> None:
    world = World()
    async with world.reading(publisher, fails_on_data_loss=False, **RARELY):
        await world.block_for_days()
        world.keep_for(24)
        world.sink.gate.set()
        await world.clock.advance(10 * MINUTE)
    assert world.sink.payloads[-1].startswith(b"3:000159")
    assert len(world.sink.payloads) < 160
    assert world.losses
    for loss in world.losses:
        assert loss.since is not None
        assert loss.until is not None


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("is_blocked", [False, True], ids=["at the tip", "between two polls"])
async def test_a_stream_that_is_created_again_under_a_reader_is_an_error_that_says_so(
    publisher: str, *, is_blocked: bool, shards: int
) -> None:
    world = World()
    async with world.reading(publisher) as task:
        world.put(40)
        if is_blocked:
            world.sink.gate.clear()
        await world.clock.advance(60.0)
        world.create_again(shards=shards)
        world.put(40)
        await world.clock.advance(600.0)
        world.sink.gate.set()
        with pytest.raises(StreamRecreatedError, match="deleted and created again"):
            await world.within_time(task)
    if not is_blocked:
        assert len(world.sink.payloads) == 40


async def test_the_next_discovery_notices_a_stream_that_was_created_again(publisher: str) -> None:
    world = World()
    interval = {"kinesis.shard.discovery.intervalmillis": "10000"}
    async with world.reading(publisher, **interval) as task:
        world.put(40)
        world.sink.gate.clear()
        await world.clock.advance(60.0)
        world.create_again()
        with pytest.raises(StreamRecreatedError, match="deleted and created again"):
            await world.within_time(task)
    assert world.sink.payloads == []


async def test_where_that_is_tolerated_the_new_stream_is_read_from_its_beginning(
    publisher: str,
) -> None:
    world = World()
    async with world.reading(publisher, fails_on_data_loss=False):
        world.put(40)
        await world.clock.advance(60.0)
        world.create_again(shards=3)
        world.put(40)
        await world.clock.advance(600.0)
    assert len(world.sink.payloads) == 80
    (loss,) = world.losses
    assert "deleted and created again" in loss.message


async def test_shards_of_the_new_stream_are_read_although_those_of_the_old_one_were_finished(
    publisher: str,
) -> None:
    world = World()
    interval = {"kinesis.shard.discovery.intervalmillis": "10000"}
    async with world.reading(publisher, fails_on_data_loss=False, **interval):
        world.put(40)
        await world.clock.advance(5.0)
        for status in world.fetcher.statuses:
            world.fetcher.finish_shard(status.shard.key)
        await world.clock.advance(60.0)
        world.create_again()
        world.put(40)
        await world.clock.advance(60.0)
    assert len(world.sink.payloads) == 80
