"""Waking a coroutine from whatever thread stores a record."""

from __future__ import annotations

import asyncio

__all__ = ["Wakeup"]


class Wakeup:
    """Something that one coroutine waits for and anybody rings.

    ``arm`` and ``ring`` are called under the service's lock. A ring after ``arm`` is never lost,
    whether or not the coroutine waits already; one before ``arm`` is forgotten, because what it
    announced has been seen under the same lock.
    """

    def __init__(self) -> None:
        self._armed: asyncio.Future[None] | None = None

    def arm(self) -> asyncio.Future[None]:
        """Return what the coroutine awaits; its loop must be running."""
        self._armed = asyncio.get_running_loop().create_future()
        return self._armed

    def ring(self) -> None:
        """Wake the coroutine; from any thread."""
        armed, self._armed = self._armed, None
        # A server that was stopped has closed its loop; nobody waits there any more.
        if armed is not None and not armed.get_loop().is_closed():
            armed.get_loop().call_soon_threadsafe(_complete, armed)


def _complete(armed: asyncio.Future[None]) -> None:
    # The wait may have timed out meanwhile.
    if not armed.done():
        armed.set_result(None)
