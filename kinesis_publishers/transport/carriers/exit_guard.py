"""Ends what a thread outside of Python is doing before the interpreter goes away.

pyreqwest's thread calls into Python to wake an event loop. If that happens while the interpreter
finalizes, the process is aborted (``PyGILState_Release``) or never ends. So at exit everything that
is open is closed first, and the calls that are under way get the time to end.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import time
from typing import Protocol

from kinesis_publishers.errors import ClosedError

__all__ = ["EXIT_GUARD"]

_ABANDON_SECONDS = 5.0
# A call into Python takes microseconds once it gets the lock, which sleeping gives free.
_SETTLE_SECONDS = 0.2


class _Abandonable(Protocol):
    async def abandon(self) -> None: ...


class _ExitGuard:
    """What has to be abandoned before the interpreter ends, each with its event loop."""

    def __init__(self) -> None:
        self._open: dict[_Abandonable, asyncio.AbstractEventLoop] = {}
        self._is_exiting = False
        self._is_registered = False

    def add(self, resource: _Abandonable) -> None:
        """Abandon ``resource`` at exit, unless it is discarded before.

        Raises:
            ClosedError: the interpreter is about to end.
        """
        if self._is_exiting:
            raise ClosedError("SubscribeToShard: the interpreter is ending")
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._abandon_all)
        self._open[resource] = asyncio.get_running_loop()

    def discard(self, resource: _Abandonable) -> None:
        """Forget ``resource``: it is closed."""
        self._open.pop(resource, None)

    def _abandon_all(self) -> None:
        self._is_exiting = True
        for resource, loop in list(self._open.items()):
            with contextlib.suppress(OSError, RuntimeError, concurrent.futures.TimeoutError):
                if loop.is_running():  # in a daemon thread
                    asyncio.run_coroutine_threadsafe(resource.abandon(), loop).result(
                        _ABANDON_SECONDS
                    )
                    continue
                asyncio.run(asyncio.wait_for(resource.abandon(), _ABANDON_SECONDS))
            self.discard(resource)
        # Those in daemon threads fail now, and whoever uses them closes them.
        deadline = time.monotonic() + _ABANDON_SECONDS  # no clock is injected this late
        while self._open and time.monotonic() < deadline:
            time.sleep(_SETTLE_SECONDS / 10)
        time.sleep(_SETTLE_SECONDS)


EXIT_GUARD = _ExitGuard()
