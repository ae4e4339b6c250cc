"""How fast a process starts to subscribe to shards."""

from __future__ import annotations

import asyncio

from kinesis_publishers import StartingPosition
from kinesis_publishers.testing.fakes import bounded_shard, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.fanout_support import fan_out_factory


async def test_ten_shards_start_at_once_and_ten_a_second_after_them():
    clock, started_at = ManualClock(), list[float]()
    factory = fan_out_factory(bounded_shard(1, 1), clock)

    async def start(number: int) -> None:
        await factory.create(StartingPosition.trim_horizon(), sample_shard(number))
        started_at.append(clock.monotonic())

    starting = asyncio.gather(*map(start, range(40)))
    await clock.advance(0)
    assert len(started_at) == 10
    await clock.advance(1.01)
    assert len(started_at) == 20
    await clock.advance(10)
    await starting
    assert 2.99 < started_at[-1] < 3.01
    # After a pause several may start at once again.
    await start(40)
    assert clock.sleeper_count == 0
