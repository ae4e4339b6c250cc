"""The pending pool under random use: hypothesis looks for an order of steps that breaks it."""

from __future__ import annotations

import asyncio
from itertools import takewhile

import pytest
from attrs import define
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_publishers.engine.pool import PendingPool, Reservation
from kinesis_publishers.errors import ClosedError
from tests.examples import examples

MAX_RECORDS, MAX_BYTES = 10, 100
RECORDS = st.integers(0, 14)
SIZES = st.integers(0, 140)
INDEX = st.integers(0, 1000)


@define(eq=False)
class Request:
    """One call of ``acquire``, in the order in which the calls were made."""

    records: int
    payload_bytes: int
    task: asyncio.Task[Reservation]


class PendingPoolMachine(RuleBasedStateMachine):
    """Acquires, resizes, releases, cancels and closes; the reservations are the model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pool = PendingPool(max_records=MAX_RECORDS, max_bytes=MAX_BYTES)
        self.waiting: list[Request] = []
        self.held: list[Reservation] = []
        self.has_grown = False
        self.is_closed = False

    def turn(self) -> None:
        """Let every task that is ready run, then sort the requests by what became of them."""
        self.loop.run_until_complete(settle())
        served = [one.task.done() for one in self.waiting]
        for request in [one for one in self.waiting if one.task.done()]:
            self.waiting.remove(request)
            if request.task.cancelled():
                continue
            if request.task.exception() is not None:
                assert isinstance(request.task.exception(), ClosedError)
                assert self.is_closed
                continue
            self.held.append(request.task.result())
        first_in_line = len(list(takewhile(bool, served)))
        assert not any(served[first_in_line:]), "a shard was served before one that came earlier"

    @rule(records=RECORDS, payload_bytes=SIZES)
    def acquire(self, records: int, payload_bytes: int) -> None:
        task = self.loop.create_task(self.pool.acquire(records, payload_bytes))
        self.waiting.append(Request(records, payload_bytes, task))
        self.turn()

    @precondition(lambda self: self.held)
    @rule(index=INDEX, records=RECORDS, payload_bytes=SIZES)
    def resize(self, index: int, records: int, payload_bytes: int) -> None:
        reservation = self.held[index % len(self.held)]
        grows = records > reservation.records or payload_bytes > reservation.payload_bytes
        self.has_grown = self.has_grown or grows
        reservation.resize(records, payload_bytes)
        self.turn()

    @precondition(lambda self: self.held)
    @rule(index=INDEX, times=st.integers(1, 2))
    def release(self, index: int, times: int) -> None:
        reservation = self.held.pop(index % len(self.held))
        for _ in range(times):
            reservation.release()
        self.turn()

    @precondition(lambda self: self.waiting)
    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        request = self.waiting.pop(index % len(self.waiting))
        request.task.cancel()
        self.turn()
        assert request.task.cancelled()

    @precondition(lambda self: self.waiting and self.held)
    @rule(held=INDEX, waiting=INDEX)
    def release_and_cancel_in_one_turn(self, held: int, waiting: int) -> None:
        self.held.pop(held % len(self.held)).release()
        request = self.waiting.pop(waiting % len(self.waiting))
        request.task.cancel()
        self.turn()
        assert request.task.cancelled()

    @rule(is_meant=st.integers(0, 9))
    def close(self, is_meant: int) -> None:
        if is_meant == 0:
            self.is_closed = True
            self.pool.close()
            self.turn()
            assert self.waiting == []

    @invariant()
    def the_pool_holds_what_is_reserved(self) -> None:
        assert self.pool.records == sum(one.records for one in self.held) >= 0
        assert self.pool.payload_bytes == sum(one.payload_bytes for one in self.held) >= 0
        assert self.pool.waiter_count == len(self.waiting)

    @invariant()
    def the_limits_hold(self) -> None:
        is_within = self.pool.records <= MAX_RECORDS and self.pool.payload_bytes <= MAX_BYTES
        sizes = [(one.records, one.payload_bytes) for one in self.held]
        is_alone = len([size for size in sizes if size != (0, 0)]) <= 1
        assert is_within or is_alone or self.has_grown
        self.has_grown = self.has_grown and not is_within

    @invariant()
    def a_request_that_fits_is_not_kept_waiting(self) -> None:
        if not self.waiting:
            return
        first = self.waiting[0]
        fits = (
            self.pool.records + first.records <= MAX_RECORDS
            and self.pool.payload_bytes + first.payload_bytes <= MAX_BYTES
        )
        is_empty = self.pool.records == 0 and self.pool.payload_bytes == 0
        assert not fits
        assert not is_empty

    def teardown(self) -> None:
        for request in self.waiting:
            request.task.cancel()
        self.turn()
        for reservation in self.held:
            reservation.release()
        assert (self.pool.records, self.pool.payload_bytes) == (0, 0)
        assert self.pool.waiter_count == 0
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


TestPendingPool = pytest.mark.deep(PendingPoolMachine.TestCase)
TestPendingPool.settings = settings(max_examples=examples(30, deep=True), stateful_step_count=30)
