"""Stores on servers that are killed, cut off, suspended, and shared by workers in any order."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field

from kinesis_publishers import (
    Properties,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.assembly import checkpoint_store_class
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.events import CallRetried
from kinesis_publishers.model import Checkpoint, CheckpointVersion, CheckpointWrite
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.servers import SERVERS

if TYPE_CHECKING:
    from kinesis_publishers import Event
    from kinesis_publishers.abc import CheckpointStore
    from tests.servers import Server

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SHARED = ShardKey(ARN, "shardId-000000000000")
WORKERS = 4


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def application(request: pytest.FixtureRequest) -> str:
    """An application for each test: they share the server."""
    return f"{request.node.originalname}"


def store_on(
    server: Server, application: str, context: CheckpointStoreContext | None = None
) -> CheckpointStore:
    properties = Properties.parse(
        {"kinesis.streams": "orders", "kinesis.checkpoint.application": application}
        | server.properties
    )
    kind = checkpoint_store_class(server.properties["kinesis.checkpoint.store"])
    context = context or store_context(application)
    # A server takes its time to start again.
    return kind.from_properties(
        properties, evolve(context, retry=evolve(context.retry, outage_seconds=60))
    )


def write_of(
    key: ShardKey, expected: CheckpointVersion | None = None, number: int = 1
) -> CheckpointWrite:
    position = StartingPosition.after(SequenceNumber(str(number)))
    checkpoint = Checkpoint(
        shard=key,
        stream_created_at=datetime(2026, 1, 1, tzinfo=UTC),
        progress=ShardProgress(position=position),
    )
    return CheckpointWrite(checkpoint=checkpoint, expected=expected)


@define
class Worker:
    """Writes a shard of its own, and one that it shares with all others, as often as it can."""

    store: CheckpointStore
    own: ShardKey
    confirmed: list[CheckpointVersion] = field(factory=list)
    won: list[CheckpointVersion] = field(factory=list)
    count: int = 0
    has_written: asyncio.Event = field(factory=asyncio.Event)

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.count += 1
            last = self.confirmed[-1] if self.confirmed else None
            answer = await self.store.save([write_of(self.own, last, self.count)])
            self.confirmed.append(answer[self.own])
            stored = (await self.store.load()).get(SHARED)
            try:
                answer = await self.store.save([write_of(SHARED, stored and stored.version)])
            except StaleCheckpointError:
                continue
            else:
                self.won.append(answer[SHARED])
            finally:
                self.has_written.set()

    async def write_again(self) -> None:
        """Return when a write that has begun from now on has been confirmed."""
        for _ in range(2):
            self.has_written.clear()
            await self.has_written.wait()


async def test_a_server_that_is_killed_keeps_every_confirmed_write(
    server: Server, application: str
) -> None:
    stop = asyncio.Event()
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
        workers = [
            Worker(
                await opened.enter_async_context(store_on(server, application)),
                ShardKey(ARN, f"shardId-{number:012}"),
            )
            for number in range(1, WORKERS + 1)
        ]
        for worker in workers:
            tasks.create_task(worker.work(stop))
        for _ in range(2):
            await asyncio.gather(*(worker.write_again() for worker in workers))
            server.kill()
            server.start()
        await asyncio.gather(*(worker.write_again() for worker in workers))
        stop.set()
    async with store_on(server, application) as store:
        stored = await store.load()
    for worker in workers:
        assert stored[worker.own].version == worker.confirmed[-1]
        assert stored[worker.own].checkpoint == write_of(worker.own, None, worker.count).checkpoint
    wins = [one.number for worker in workers for one in worker.won]
    assert len(set(wins)) == len(wins), "two writers were told that they have the same version"
    assert stored[SHARED].version.number >= max(wins)


async def test_connections_that_are_cut_are_opened_again(server: Server, application: str) -> None:
    events: list[Event] = []
    context = evolve(store_context(application), events=events.append)
    async with store_on(server, application, context) as store:
        version = (await store.save([write_of(SHARED)]))[SHARED]
        server.cut_connections()
        version = (await store.save([write_of(SHARED, version, 2)]))[SHARED]
        assert (await store.load())[SHARED].version == version
    assert any(isinstance(one, CallRetried) for one in events), "nothing was cut"


@pytest.mark.long
async def test_a_server_that_stands_still_is_not_waited_for(
    server: Server, application: str
) -> None:
    retried = asyncio.Event()
    context = evolve(store_context(application), events=lambda _: retried.set())
    async with store_on(server, application, context) as store:
        version = (await store.save([write_of(SHARED)]))[SHARED]
        server.suspend()
        try:
            saving = asyncio.create_task(store.save([write_of(SHARED, version, 2)]))
            async with asyncio.timeout(60):
                await retried.wait()
        finally:
            server.resume()
        assert (await saving)[SHARED] == (await store.load())[SHARED].version


async def test_of_workers_that_write_the_same_rows_in_any_order_one_writes_each(
    server: Server, application: str
) -> None:
    """First they create them; none waits for another one that waits for it."""
    keys = [ShardKey(ARN, f"shardId-{number:012}") for number in range(1200)]

    async def write(order: int, store: CheckpointStore) -> None:
        mine = random.Random(order).sample(keys, len(keys))
        with suppress(StaleCheckpointError):
            await store.save([write_of(key, known.get(key), turn) for key in mine])

    async with AsyncExitStack() as opened:
        stores = [
            await opened.enter_async_context(store_on(server, application)) for _ in range(WORKERS)
        ]
        known: dict[ShardKey, CheckpointVersion] = {}
        for turn in (1, 2):
            async with asyncio.timeout(30):
                await asyncio.gather(*(write(order, store) for order, store in enumerate(stores)))
            known = {key: one.version for key, one in (await stores[0].load()).items()}
            assert known.keys() == {*keys}
            assert {one.number for one in known.values()} == {turn}
