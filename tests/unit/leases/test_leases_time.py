"""When leases are taken, renewed, suspended and lost, to the second; and what it costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import ConnectionFailedError
from kinesis_publishers.events import LeaseLost
from kinesis_publishers.testing.fakes import sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.leases.lease_support import (
    FAILOVER,
    HANDOVER,
    Group,
    Worker,
    config,
    down,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SHARDS = [sample_shard(number) for number in range(2)]


@pytest.mark.parametrize("name", ["heir", "dead"], ids=["another one", "a new run of it"])
async def test_a_dead_workers_shard_is_taken_after_the_failover_time(
    group: Group, name: str
) -> None:
    # Rule 2: by the second worker's own clock, which is another one.
    other_clock = ManualClock()
    await other_clock.advance(86_400)
    await group.working("dead", SHARDS[:1])
    heir = await group.working(name, SHARDS[:1], clock=other_clock)
    await heir.look_for(FAILOVER - 1, other_clock)
    await other_clock.advance(0.9)
    await heir.look()
    assert heir.readable == set()
    await other_clock.advance(0.1)
    await heir.look()
    assert heir.readable == {0}
    assert group.lease(SHARDS[0]).switches == 2


async def test_a_dead_worker_lives_no_longer_because_a_shard_is_asked_for(group: Group) -> None:
    await group.working("dead", SHARDS)
    heir = await group.begin("heir", SHARDS)
    for _ in range(int(FAILOVER) - 1):
        await heir.leases.taker.look()
        await group.clock.advance(1)
    await heir.look()
    assert {group.lease(one).owner for one in SHARDS} == {"dead", "heir"}
    await group.clock.advance(1)
    await heir.look()
    assert heir.readable == {0, 1}


async def test_a_lease_is_renewed_twice_in_a_failover_time(group: Group) -> None:
    # Rule 5; the KCL renews after a third of it.
    one = await group.working("one", SHARDS[:1])
    before, renewed = one.store.calls["rows"], []
    for second in range(1, 13):
        await group.clock.advance(1)
        await one.look()
        if one.store.calls["rows"] > before:
            renewed.append(second)
        before = one.store.calls["rows"]
    assert renewed == [4, 8, 12]


async def test_nothing_is_delivered_while_the_store_is_down_for_longer(group: Group) -> None:
    # Rules 5 and 7: until the failover time after the last renewal was sent; then again at once.
    one = await group.begin("one", SHARDS)
    # Others may have seen a write before its answer has come.
    one.store.write_seconds = 2.0
    looking = asyncio.create_task(one.look())
    await group.clock.advance(2)
    await looking
    one.store.error = down()
    await group.clock.advance(FAILOVER - 2.1)
    assert one.readable == {0, 1}
    await group.clock.advance(0.1)
    assert one.readable == set()
    with pytest.raises(ConnectionFailedError):
        await one.look()
    one.store.error, one.store.write_seconds = None, 0.0
    await one.look()
    assert one.readable == {0, 1}
    assert not [event for event in one.events if isinstance(event, LeaseLost)]


async def test_a_hand_over_that_takes_too_long_ends_by_force(group: Group) -> None:
    # Rule 9.
    slow = await group.working("slow", SHARDS)
    thief = await group.working("thief", SHARDS)
    for _ in range(int(HANDOVER) - 1):
        await group.clock.advance(1)
        await slow.look()
        await thief.look()
    # It may finish what it has begun.
    assert (len(slow.readable), len(thief.readable)) == (2, 0)
    await group.clock.advance(1)
    await thief.look()
    assert len(thief.readable) == 1
    assert thief.readable.isdisjoint(slow.readable)
    await slow.look()
    assert len([event for event in slow.events if isinstance(event, LeaseLost)]) == 1


@pytest.mark.parametrize("dead", ["victim", "thief"])
async def test_a_hand_over_ends_if_one_of_both_dies(group: Group, dead: str) -> None:
    workers = {"victim": await group.begin("victim", SHARDS)}
    await workers["victim"].look()
    workers["thief"] = await group.begin("thief", SHARDS)
    await workers["thief"].look()
    del workers[dead]
    ((_, left),) = workers.items()
    for _ in range(2 * int(FAILOVER) + 2):
        await group.clock.advance(1)
        await left.look()
        await left.hand_over()
    assert left.readable == {0, 1}


async def test_the_first_writes_may_take_longer_than_a_renewal(group: Group) -> None:
    # Nothing is at stake before there is a lease; with one, the call is given up.
    one = await group.begin("one", [])
    one.store.write_seconds, one.shards = FAILOVER, SHARDS
    following = asyncio.create_task(one.follow())
    await group.clock.advance(FAILOVER)
    await following
    assert set(group.rows) >= {shard.key for shard in SHARDS}
    one.store.write_seconds = 0.0
    await one.look()
    one.store.write_seconds = FAILOVER
    await group.clock.advance(FAILOVER / 2)
    looking = asyncio.create_task(one.look())
    await group.clock.advance(FAILOVER)
    with pytest.raises(ConnectionFailedError, match="has not answered in"):
        await looking


async def test_a_store_that_is_down_at_the_start_is_an_error_at_once(group: Group) -> None:
    one = await group.begin("one", SHARDS)
    one.store.error = down()
    with pytest.raises(ConnectionFailedError):
        await one.leases.take_over({})


@pytest.mark.parametrize("phase", [0.1 * tenth for tenth in range(0, 50, 7)])
async def test_workers_move_shards_within_two_seconds_of_when_they_may(
    group: Group, phase: float
) -> None:
    first = await group.begin("first", SHARDS)
    async with keeping(first) as (killed,):
        await seconds_until(lambda: len(first.readable) == 2, [first], group.clock)
        await group.clock.advance(phase)
        second = await group.begin("second", SHARDS)
        async with keeping(second):
            both = [first, second]
            assert await seconds_until(lambda: len(second.readable) == 1, both, group.clock) <= 2
            await group.clock.advance(phase)
            killed.cancel()
            seconds = await seconds_until(lambda: len(second.readable) == 2, [second], group.clock)
            assert FAILOVER / 2 <= seconds <= FAILOVER + 2


@pytest.mark.parametrize(
    ("shards", "workers", "loads", "rows"),
    # The KCL: 18.1 writes per lease and minute (every 10000/3 - 25 ms), that is 725 rows one by
    # one, and 3 scans of the table per worker.
    [(40, 1, 38, 500), (40, 6, 225, 500)],
)
async def test_what_a_minute_costs(
    group: Group, shards: int, workers: int, loads: int, rows: int
) -> None:
    there = [sample_shard(number) for number in range(shards)]
    workers = [
        await group.begin(f"w{number}", there, config(f"w{number}")) for number in range(workers)
    ]

    def is_settled() -> bool:
        counts = [len(one.readable) for one in workers]
        is_leaving = any(group.lease(shard).leaving for shard in there)
        return sum(counts) == shards and max(counts) - min(counts) <= 1 and not is_leaving

    async with keeping(*workers):
        await seconds_until(is_settled, workers, group.clock)
        for one in workers:
            one.store.calls.clear()
        # Thirty looks, and ten renewals.
        await group.clock.advance(48)
        calls = sum((one.store.calls for one in workers), Counter[str]())
        assert 0.9 * loads <= calls["load"] * 60 / 48 <= loads
        assert 0.9 * rows <= calls["rows"] * 60 / 48 <= rows
        assert sum(len(one.readable) for one in workers) == shards


@asynccontextmanager
async def keeping(*workers: Worker) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Let workers look by themselves."""
    tasks = [asyncio.create_task(one.leases.keep(nullcontext)) for one in workers]
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def seconds_until(
    is_true: Callable[[], bool], workers: list[Worker], clock: ManualClock
) -> float:
    """Let time pass, and the workers read and hand over; return how long it took."""
    began_at = clock.monotonic()
    while True:
        for one in workers:
            one.leases.shards.mine(one.shards)
            await one.hand_over()
        if is_true():
            return clock.monotonic() - began_at
        await clock.advance(0.1)
