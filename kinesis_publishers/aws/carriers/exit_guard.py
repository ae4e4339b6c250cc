"""Ends what a thread outside of Python is doing before the interpreter goes away.

pyreqwest's thread calls into Python to wake an event loop. If that happens while the interpreter
finalizes, the process is aborted (``PyGILState_Release``) or never ends. So at exit no call of it
may begin, everything that is open is closed, and the calls that are under way get the time to end.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol

from kinesis_publishers.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["EXIT_GUARD"]

_LOGGER = logging.getLogger(__name__)
_DAEMON_WARNING = (
    "pyreqwest is used by an event loop in a daemon thread: if that is blocked for more than 5 s "
    "when the interpreter ends, the process may be aborted. Stop reading before, or use httpx."
)
_ABANDON_SECONDS = 5.0
# A thread that waits for the interpreter's lock is seen nowhere. It takes microseconds once it has
# the lock, which sleeping gives free.
_SETTLE_SECONDS = 0.2
_PAUSE_SECONDS = 0.01


class _Abandonable(Protocol):
    async def abandon(self) -> None: ...


class _ExitGuard:
    """What has to be abandoned before the interpreter ends, and the calls that are under way."""

    def __init__(self) -> None:
        self._open: dict[_Abandonable, asyncio.AbstractEventLoop] = {}
        self._calls: dict[object, asyncio.AbstractEventLoop] = {}
        self._is_exiting = False
        self._is_registered = False
        self._has_warned = False

    def add(self, resource: _Abandonable) -> None:
        """Abandon ``resource`` at exit, unless it is discarded before.

        Raises:
            ClosedError: the interpreter is about to end.
        """
        self._refuse_when_exiting()
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._abandon_all)
        if threading.current_thread().daemon and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(_DAEMON_WARNING)
        self._open[resource] = asyncio.get_running_loop()

    def discard(self, resource: _Abandonable) -> None:
        """Forget ``resource``: it is closed."""
        self._open.pop(resource, None)

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Make a call of the foreign thread in the body: the exit waits for its end.

        Raises:
            ClosedError: the interpreter is about to end.
        """
        self._refuse_when_exiting()
        token = object()
        self._calls[token] = asyncio.get_running_loop()
        try:
            yield
        finally:
            del self._calls[token]

    def _refuse_when_exiting(self) -> None:
        if self._is_exiting:
            raise ClosedError("SubscribeToShard: the interpreter is ending")

    def _abandon_all(self) -> None:
        self._is_exiting = True
        deadline = time.monotonic() + _ABANDON_SECONDS  # no clock is injected this late
        resources = list(self._open.items())
        others = [one for one, loop in resources if not loop.is_running()]
        in_threads = [
            asyncio.run_coroutine_threadsafe(one.abandon(), loop)
            for one, loop in resources
            if loop.is_running()  # in a daemon thread
        ]
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            asyncio.run(_abandon(others))
        concurrent.futures.wait(in_threads, max(0.0, deadline - time.monotonic()))
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        time.sleep(_SETTLE_SECONDS)

    def _is_busy(self) -> bool:
        # A loop that was stopped never learns that a call has ended.
        if any(loop.is_running() for loop in list(self._calls.values())):
            return True
        # Threads that Python did not start appear here while they run Python code.
        known = {thread.ident for thread in threading.enumerate()}
        return not sys._current_frames().keys() <= known


async def _abandon(resources: Iterable[_Abandonable]) -> None:
    async with asyncio.timeout(_ABANDON_SECONDS):
        await asyncio.gather(*(one.abandon() for one in resources), return_exceptions=True)


EXIT_GUARD = _ExitGuard()
