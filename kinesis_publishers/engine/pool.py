"""One budget of records and bytes for everything that has been read and not yet handed on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from kinesis_publishers.errors import ClosedError
from kinesis_publishers.events import EventSink, PoolUsed, ignore_event

# A call for fewer costs more than the room that it saves.
_FEWEST_RECORDS = 100


class Reservation:
    """A share of the pool; release it exactly when the records have been handed on.

    Releasing twice does nothing, so that a ``finally`` may release what was handed over already.
    """

    __slots__ = ("_pool", "payload_bytes", "records")

    def __init__(self, pool: PendingPool, records: int, payload_bytes: int) -> None:
        self._pool: PendingPool | None = pool
        self.records = records
        self.payload_bytes = payload_bytes

    def resize(self, records: int, payload_bytes: int) -> None:
        """Replace the estimate by what really came; never waits: it is in memory."""
        if self._pool is not None:
            self._pool._change(records - self.records, payload_bytes - self.payload_bytes)
            self.records = records
            self.payload_bytes = payload_bytes

    def release(self) -> None:
        """Give the share back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool._change(-self.records, -self.payload_bytes)


class PendingPool:
    """Limits what all shards of a fetcher hold in memory together.

    Space is taken before records are asked for and given back when they are handed on. Waiters are
    served in the order in which they came, so that no shard starves. A request that is larger than
    the whole pool is served when the pool is empty: it goes through alone.

    One event loop only; not thread-safe.

    Args:
        events: is told how much is in the pool, after each delivery and release.

    Attributes:
        records: in the pool now, reserved ones included.
        payload_bytes: in the pool now, reserved ones included.
    """

    def __init__(
        self, *, max_records: int, max_bytes: int, events: EventSink = ignore_event
    ) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.records = self.payload_bytes = 0
        self._waiters: deque[tuple[int, int, asyncio.Future[Reservation], Hashable | None]] = (
            deque()
        )
        # The most that have waited at a time since none did.
        self._most_waiters = 0
        self._is_closed = False
        self._events = events

    @property
    def waiter_count(self) -> int:
        """How many callers wait for space."""
        return len(self._waiters)

    @property
    def filled(self) -> float:
        """Which share of the pool is taken; more than 1 if something went through beyond it."""
        return max(self.records / self._max_records, self.payload_bytes / self._max_bytes)

    @property
    def records_each(self) -> int:
        """How many records of 1 KiB the pool has for each caller that needs some, at least 100."""
        most = min(self._max_records, self._max_bytes // 1024)
        return max(_FEWEST_RECORDS, most // max(1, self._most_waiters))

    @property
    def waiting(self) -> set[Hashable]:
        """The owners that wait for space."""
        return {one[3] for one in self._waiters}

    def favour(self, owner: Hashable) -> None:
        """Serve the request of ``owner`` that waits, however full the pool is."""
        for waiter in self._waiters:
            if waiter[3] == owner and not waiter[2].done():
                self._waiters.remove(waiter)
                waiter[2].set_result(self._take(*waiter[:2]))
                return

    def try_acquire(self, records: int, payload_bytes: int) -> Reservation | None:
        """Take this much room if it is free and no other caller waits; else return ``None``.

        Raises:
            ClosedError: the pool was closed.
        """
        if self._is_closed:
            raise ClosedError("the pending pool is closed")
        if self._waiters or not self._has_room(records, payload_bytes):
            return None
        return self._take(records, payload_bytes)

    async def acquire(
        self, records: int, payload_bytes: int, owner: Hashable | None = None
    ) -> Reservation:
        """Wait until this much room is free, and take it.

        Args:
            owner: the caller, for :meth:`favour`.

        Raises:
            ClosedError: the pool was closed, before or while waiting.
        """
        reservation = self.try_acquire(records, payload_bytes)
        if reservation is not None:
            return reservation
        future: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        waiter = (records, payload_bytes, future, owner)
        self._waiters.append(waiter)
        self._most_waiters = max(self._most_waiters, len(self._waiters))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # Served and cancelled in the same turn: its caller will not release it.
                future.result().release()
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                # The next in line may fit where this one did not.
                self._serve_waiters()
            raise

    def close(self) -> None:
        """Refuse every further request, and those that wait."""
        self._is_closed = True
        while self._waiters:
            future = self._waiters.popleft()[2]
            if not future.done():
                future.set_exception(ClosedError("the pending pool is closed"))

    def _has_room(self, records: int, payload_bytes: int) -> bool:
        is_empty = self.records == 0 and self.payload_bytes == 0
        return is_empty or (
            self.records + records <= self._max_records
            and self.payload_bytes + payload_bytes <= self._max_bytes
        )

    def _take(self, records: int, payload_bytes: int) -> Reservation:
        self.records += records
        self.payload_bytes += payload_bytes
        return Reservation(self, records, payload_bytes)

    def _change(self, records: int, payload_bytes: int) -> None:
        self.records += records
        self.payload_bytes += payload_bytes
        self._serve_waiters()
        self._events(
            PoolUsed(
                records=self.records,
                payload_bytes=self.payload_bytes,
                max_records=self._max_records,
                max_bytes=self._max_bytes,
                waiters=len(self._waiters),
            )
        )

    def _serve_waiters(self) -> None:
        while self._waiters:
            records, payload_bytes, future, _ = self._waiters[0]
            if future.done():  # cancelled, and its task has not run yet
                self._waiters.popleft()
                continue
            if not self._has_room(records, payload_bytes):
                return
            self._waiters.popleft()
            future.set_result(self._take(records, payload_bytes))
        if self.filled <= 1:
            self._most_waiters = 0
