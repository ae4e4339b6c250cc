"""How long the next reader of a shard waits before it subscribes."""

from __future__ import annotations

import pytest

from kinesis_publishers.checkpoints import CheckpointMemory
from kinesis_publishers.events import SubscriptionStarted
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.model import StartingPosition
from kinesis_publishers.testing.fakes import sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.leases.lease_support import Worker

SHARD = sample_shard(0)
SUBSCRIBED = SubscriptionStarted(
    shard=SHARD.key, position=StartingPosition.trim_horizon(), consumer_arn="arn"
)


async def new_worker(name: str, clock: ManualClock, memory: CheckpointMemory) -> Leases:
    """Return one that wants the shard."""
    leases = (await Worker.begin(name, memory, clock, [SHARD])).leases
    leases.shards.mine([SHARD])
    return leases


async def test_a_reader_that_came_after_another_one_has_gone_on_waiting_for_it() -> None:
    clock, memory = ManualClock(), CheckpointMemory()
    first, second, third = [await new_worker(name, clock, memory) for name in ("1", "2", "3")]
    await first.taker.look()
    assert first.shards.mine([SHARD]) == {SHARD.key}
    first.shards.note_event(SUBSCRIBED)
    await clock.advance(1)
    await first.close()
    await second.taker.look()
    assert second.shards.mine([SHARD]) == set()
    await clock.advance(1)
    # It has not subscribed, and yet the wait is not over.
    await second.close()
    await third.taker.look()
    await clock.advance(2.5)
    assert third.shards.mine([SHARD]) == set()
    await clock.advance(0.5)
    assert third.shards.mine([SHARD]) == {SHARD.key}


@pytest.mark.parametrize("seconds", [0, 3, 5, 100])
async def test_the_wait_ends_five_seconds_after_the_last_subscription(seconds: float) -> None:
    clock, memory = ManualClock(), CheckpointMemory()
    first, second = [await new_worker(name, clock, memory) for name in ("1", "2")]
    await first.taker.look()
    first.shards.note_event(SUBSCRIBED)
    await clock.advance(seconds)
    await first.close()
    await second.taker.look()
    await clock.advance(max(0, 5 - seconds))
    assert second.shards.mine([SHARD]) == {SHARD.key}
