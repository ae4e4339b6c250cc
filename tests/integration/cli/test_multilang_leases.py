"""Shards that move between workers of one application."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kinesis_publishers import read
from kinesis_publishers.cli.shared.kcl_properties import daemon_config
from tests.integration.cli.daemon_support import STREAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.cli.daemon_support import Daemon, Played

_LEASES = {"failoverTimeMillis": "1000"}


@asynccontextmanager
async def another_worker(daemon: Daemon, **more: str) -> AsyncIterator[asyncio.Queue[int]]:
    """Run a reader of the same application; yield what it reads."""
    properties = daemon_config(daemon.pairs(**more)).properties
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def run() -> None:
        async with read(properties) as records:
            async for record in records:
                seen.put_nowait(int(record.data))

    task = asyncio.create_task(run())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.wait([task])


async def two_shards(daemon: Daemon) -> tuple[Played, Played]:
    """Let two shards continue the first one; return their processors."""
    daemon.server.reshard(STREAM, 2)
    parent = await daemon.begun()
    await parent.expect("shardEnded")
    assert await parent.checkpoint() is None
    parent.done("shardEnded")
    await parent.close()
    return await daemon.begun(), await daemon.begun()


async def first_message(processors: tuple[Played, Played], action: str) -> Played:
    """Return the processor that gets a message first; it is ``action``."""
    reading = {asyncio.create_task(one.expect(action)): one for one in processors}
    done, others = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    for one in others:
        one.cancel()
    (first,) = done
    first.result()
    return reading[first]


async def test_a_shard_that_another_worker_wants_may_be_checkpointed_before(
    daemon: Daemon,
) -> None:
    daemon.more |= _LEASES
    async with daemon.running():
        processors = await two_shards(daemon)
        async with another_worker(daemon) as seen:
            left = await first_message(processors, "shutdownRequested")
            (kept,) = {*processors} - {left}
            assert await left.checkpoint() is None
            left.done("shutdownRequested")
            await left.take("leaseLost")
            await left.close()
            numbers = [*daemon.put(1, "key-0"), *daemon.put(1, "key-1"), *daemon.put(1, "key-2")]
            here = await kept.take_records(1)
            there = [await seen.get()]
            while len(here) + len(there) < len(numbers):
                there.append(await seen.get())
            assert sorted(here + there) == numbers


async def test_a_shard_that_is_taken_from_a_busy_processor_is_lost_without_a_checkpoint(
    daemon: Daemon,
) -> None:
    daemon.more |= _LEASES | {"gracefulLeaseHandoffTimeoutMillis": "0"}
    async with daemon.running() as running:
        processors = await two_shards(daemon)
        for number in range(4):
            daemon.put(1, f"key-{number}")
        for one in processors:
            await one.expect("processRecords")
        async with another_worker(daemon) as seen:
            # It has begun, and repeats what is not checkpointed.
            await seen.get()
            errors = [await one.checkpoint() for one in processors]
            assert sorted(map(str, errors)) == ["None", "ShutdownException"]
            lost, kept = processors if errors[0] else processors[::-1]
            lost.done("processRecords")
            await lost.take("leaseLost")
            await lost.close()
            kept.done("processRecords")
            daemon.stop()
            await kept.take("shutdownRequested")
            await kept.take("leaseLost")
            await kept.close()
            await running


async def test_fan_out_is_the_default_and_its_consumer_stays(daemon: Daemon) -> None:
    daemon.more["retrievalMode"] = "FANOUT"
    daemon.put(2)
    async with daemon.running() as running:
        processor = await daemon.begun()
        assert await processor.take_records(2) == [0, 1]
        daemon.put(1)
        assert await processor.take_records(1) == [2]
        daemon.stop()
        await processor.take("shutdownRequested")
        await processor.take("leaseLost")
        await processor.close()
        await running
    assert set(daemon.server.consumers(STREAM)) == {"tests"}
