"""The source of time: this machine's clock and the service's, sleeping and timeouts.

Nothing else in the package calls ``datetime.now``, ``time.monotonic``, ``asyncio.timeout`` or
``asyncio.sleep`` with a delay, so that tests control the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Self

_LOGGER = logging.getLogger(__name__)

_NONE = timedelta()
# Where possible, a clock that runs while the machine is suspended: leases expire meanwhile.
_monotonic = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
# A Date header has a resolution of one second.
_SECOND = timedelta(seconds=1)
# Clocks drift, and may be corrected while a process runs.
_MEMORY_SECONDS = 600.0


class Clock(ABC):
    """The time that a component sees."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the wall-clock time as an aware UTC ``datetime``."""

    @property
    def skew(self) -> timedelta:
        """The current difference of :meth:`now` to this machine's clock."""
        return _NONE

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds since an arbitrary point; never goes backwards."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds`` (0 or less: let other tasks run once)."""

    @abstractmethod
    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a context whose body is cancelled, with ``TimeoutError``, after ``seconds``.

        Its ``expired()`` distinguishes this from a ``TimeoutError`` of the body itself.
        """


class SystemClock(Clock):
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return _monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        return asyncio.timeout(seconds)


class ServiceClock(Clock):
    """This machine's clock, corrected where the service's answers contradict it."""

    def __init__(self, machine: Clock) -> None:
        self.machine = machine
        # The least and the greatest lead of the service's clock, and since when they are known.
        # Replaced as a whole, because answers arrive in several threads.
        self._bounds: tuple[timedelta, timedelta, float] | None = None
        self._is_doubted = False
        self._reported = _NONE

    @classmethod
    def around(cls, clock: Clock | None) -> Self:
        """Return ``clock`` if it is a service clock, else one around it or this machine's clock."""
        return clock if isinstance(clock, cls) else cls(clock or SystemClock())

    @property
    def skew(self) -> timedelta:
        low, high, _ = self._bounds or (_NONE, _NONE, 0.0)
        # Too early is safe: a record put after a pinned LATEST must not be missed.
        return _NONE if low <= _NONE <= high else low

    def now(self) -> datetime:
        return self.machine.now() + self.skew

    def monotonic(self) -> float:
        return self.machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.machine.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        return self.machine.timeout(seconds)

    def observe(self, date: str | None, *, sent_at: datetime) -> None:
        """Learn from the ``Date`` header of an answer that has just arrived; ignore an invalid one.

        ``sent_at`` is the time of the request by this machine's clock.
        """
        try:
            told = parsedate_to_datetime(date or "").replace(tzinfo=UTC)
        except (TypeError, ValueError):
            return
        low, high = told - self.machine.now(), told + _SECOND - sent_at
        fresh = low, high, self.monotonic()
        known = self._bounds or fresh
        if fresh[2] - known[2] <= _MEMORY_SECONDS:
            low, high = max(known[0], low), min(known[1], high)
        else:
            known = fresh
        # One contradicting answer may come from a cache; two mean that the clock was set.
        self._is_doubted = low > high and not self._is_doubted
        if self._is_doubted:
            return
        self._bounds = fresh if low > high else (low, high, known[2])
        self._report(min(map(abs, self._bounds[:2])))

    def _report(self, least: timedelta) -> None:
        skew = self.skew
        change = abs(skew - self._reported)
        if skew and least > _SECOND and change > max(_SECOND, abs(self._reported) / 2):
            self._reported = skew
            _LOGGER.warning(
                "This machine's clock is %.0f s %s the service's. Positions are sent by the "
                "service's clock, so that no record is missed; let NTP correct this machine: "
                "with a difference of minutes AWS refuses the first signature of each client.",
                abs(skew.total_seconds()),
                "behind" if skew > _NONE else "ahead of",
            )
