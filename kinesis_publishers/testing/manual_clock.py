"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from kinesis_publishers.clock import Clock

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# Enough turns for a woken task to run through the awaits of one iteration and to park again.
_SETTLE_TURNS = 50


class ManualClock(Clock):
    """A :class:`~kinesis_publishers.clock.Clock` whose time a test advances.

    Sleepers wake in the order of their deadlines, each at exactly its deadline: ``advance(10)``
    over a loop that sleeps 2 s runs five iterations, not one.

    Args:
        start: the first wall-clock time, aware; 2026-01-01T00:00Z by default.
    """

    def __init__(self, start: datetime = _EPOCH) -> None:
        self._start = start
        self._elapsed_seconds = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timeouts: set[asyncio.Future[None]] = set()
        self._count = 0
        self._has_sleepers = asyncio.Event()
        #: Every delay that was asked for, in order, in seconds.
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_seconds)

    def monotonic(self) -> float:
        return self._elapsed_seconds

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = self._wake_after(seconds)
        self._has_sleepers.set()
        await future

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as scope:
            expiry = self._wake_after(seconds)
            self._timeouts.add(expiry)

            def expire(future: asyncio.Future[None]) -> None:
                # It may expire in the very turn in which the body ends.
                if future in self._timeouts:
                    scope.reschedule(loop.time())

            expiry.add_done_callback(expire)
            try:
                yield scope
            finally:
                self._timeouts.discard(expiry)
                expiry.cancel()

    def _wake_after(self, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._elapsed_seconds + seconds, self._count, future))
        return future

    @property
    def sleeper_count(self) -> int:
        """How many tasks are asleep now; timeouts do not count."""
        waiting = (future for *_, future in self._sleepers if not future.done())
        return sum(future not in self._timeouts for future in waiting)

    @property
    def is_awaited(self) -> bool:
        """Whether anything waits for this clock to move, timeouts included."""
        return any(not future.done() for _, _, future in self._sleepers)

    async def wait_for_sleepers(self, count: int = 1) -> None:
        """Wait in real time until ``count`` tasks are asleep, for code that does real I/O first."""
        while self.sleeper_count < count:
            self._has_sleepers.clear()
            await self._has_sleepers.wait()

    async def advance(self, seconds: float) -> None:
        """Move time on by ``seconds`` and let every task that is due run until it parks again."""
        target = self._elapsed_seconds + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, future = heapq.heappop(self._sleepers)
            self._elapsed_seconds = max(self._elapsed_seconds, deadline)
            if not future.done():
                future.set_result(None)
                await self.settle()
        self._elapsed_seconds = target
        await self.settle()

    async def settle(self) -> None:
        """Let ready tasks run without moving time."""
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)
