"""Owns time: the wall clock, the monotonic clock, sleeping and timeouts.

Nothing else in the package calls ``datetime.now``, ``time.monotonic``, ``asyncio.timeout`` or
``asyncio.sleep`` with a delay, so that a test decides what time it is.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

__all__ = ["Clock", "SystemClock"]


class Clock(ABC):
    """The time that a component sees."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the wall-clock time as an aware UTC ``datetime``."""

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds since an arbitrary point; never goes backwards."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds`` (0 or less: let other tasks run once)."""

    @abstractmethod
    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a context whose body is cancelled, with ``TimeoutError``, after ``seconds``.

        It says itself whether it has ``expired()``: the body may raise a ``TimeoutError`` of its
        own.
        """


class SystemClock(Clock):
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        return asyncio.timeout(seconds)
