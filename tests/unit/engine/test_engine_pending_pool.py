"""The budget of everything that was read and not yet handed on."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_publishers.engine.pool import PendingPool, Reservation
from kinesis_publishers.errors import ClosedError


def pool_of(records: int = 10, payload_bytes: int = 1000) -> PendingPool:
    return PendingPool(max_records=records, max_bytes=payload_bytes)


async def ask(pool: PendingPool, records: int, payload_bytes: int) -> asyncio.Task[Reservation]:
    task = asyncio.create_task(pool.acquire(records, payload_bytes))
    await settle()
    return task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("records", "payload_bytes"), [(7, 1), (1, 700)])
async def test_both_limits_hold_on_their_own(records: int, payload_bytes: int):
    pool = pool_of()
    first = await pool.acquire(4, 400)
    waiting = await ask(pool, records, payload_bytes)
    assert not waiting.done()
    first.release()
    assert (await waiting).records == records


async def test_a_request_larger_than_the_pool_goes_through_alone():
    pool = pool_of()
    first = await pool.acquire(1, 1)
    oversized = await ask(pool, 11, 5000)
    assert not oversized.done()
    first.release()
    reservation = await oversized
    behind = await ask(pool, 1, 1)
    assert not behind.done()
    reservation.release()
    (await behind).release()


async def test_waiters_are_served_in_the_order_in_which_they_came():
    pool = pool_of()
    first = await pool.acquire(9, 100)
    large, small = await ask(pool, 5, 100), await ask(pool, 1, 100)
    assert not small.done(), "the small one would fit, but it came later"
    first.release()
    await settle()
    assert large.done()
    assert small.done()


async def test_a_waiter_that_gives_up_lets_those_behind_it_pass():
    pool = pool_of()
    await pool.acquire(9, 100)
    large, small = await ask(pool, 5, 100), await ask(pool, 1, 100)
    large.cancel()
    await settle()
    assert small.done()
    assert pool.records == 10


async def test_a_waiter_that_is_served_and_cancelled_in_the_same_turn_leaks_nothing():
    pool = pool_of()
    first = await pool.acquire(9, 100)
    waiting = await ask(pool, 5, 100)
    first.release()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    assert (pool.records, pool.payload_bytes) == (0, 0)


async def test_a_smaller_true_size_lets_waiters_in():
    pool = pool_of()
    estimate = await pool.acquire(10, 1000)
    waiting = await ask(pool, 5, 500)
    estimate.resize(2, 50)
    await settle()
    assert waiting.done()
    assert (pool.records, pool.payload_bytes) == (7, 550)


async def test_a_larger_true_size_is_taken_without_waiting():
    pool = pool_of()
    estimate = await pool.acquire(1, 10)
    estimate.resize(50, 5000)
    assert (pool.records, pool.payload_bytes) == (50, 5000)
    waiting = await ask(pool, 1, 1)
    assert not waiting.done()
    estimate.release()
    assert (await waiting).records == 1


async def test_resizing_what_was_given_back_changes_nothing():
    pool = pool_of()
    reservation = await pool.acquire(1, 10)
    reservation.release()
    reservation.resize(5, 50)
    assert (pool.records, pool.payload_bytes) == (0, 0)


async def test_closing_refuses_those_that_wait_and_those_that_come():
    pool = pool_of()
    held = await pool.acquire(10, 10)
    waiting = await ask(pool, 1, 1)
    pool.close()
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await pool.acquire(1, 1)
    held.release()
    assert (pool.records, pool.payload_bytes) == (0, 0)
