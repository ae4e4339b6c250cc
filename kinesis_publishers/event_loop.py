"""The bridge from threads, and their blocking calls, to asyncio; it refuses forks."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - for the order at the end; see below
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

from kinesis_publishers.errors import ClosedError

_T = TypeVar("_T")
_LOGGER = logging.getLogger(__name__)


FORKED: Final = "%s was opened before this process was forked: open one in each process"


class OwnProcess:
    """The process that opened something; a fork, with ``is_left``, has no loop or connections."""

    def __init__(self) -> None:
        self.is_left = False
        _PROCESSES.add(self)

    def check(self, what: str) -> None:
        """Check that this process opened ``what``, before taking a lock that a fork inherits."""
        if self.is_left:
            raise ClosedError(FORKED % what)


_PROCESSES: Final[WeakSet[OwnProcess]] = WeakSet()


def _leave_in_child() -> None:
    for one in _PROCESSES:
        one.is_left = True


os.register_at_fork(after_in_child=_leave_in_child)


class Usability(OwnProcess):
    """Refuses calls before the opening, after the end, in other loops and in forked processes.

    Attributes:
        ended: why it cannot be used; empty while it can.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self.ended = "was not opened: use it as `async with`"
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> asyncio.AbstractEventLoop:
        """Allow calls in the running event loop, which is returned."""
        self._loop, self.ended = asyncio.get_running_loop(), ""
        return self._loop

    @property
    def is_open(self) -> bool:
        """Whether it may be used in this process."""
        return not (self.ended or self.is_left)

    def check_open(self) -> None:
        """Raise ``ClosedError`` unless it may be used in this process."""
        if not self.is_open:
            self.check(self._what)
            raise ClosedError(f"{self._what} {self.ended}")

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return its event loop; raise ``ClosedError`` if it cannot be used in the running one."""
        self.check_open()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise ClosedError(
                f"{self._what} belongs to another event loop: open one in each, or a "
                "BlockingProducer for threads"
            )
        return loop


class EventLoopThread:
    """An event loop in a separate thread, which runs during blocking calls.

    The thread is a daemon: Spark ends the process of a stopped query by SIGKILL or by exiting, and
    the exit must not wait for a subscription.
    """

    def __init__(self, *, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # It resolves names. From Python 3.12 on no thread starts at the end of the interpreter, so
        # it starts one now.
        self._executor = ThreadPoolExecutor(thread_name_prefix=name)
        self._executor.submit(int)
        self._loop.set_default_executor(self._executor)
        # The loop has only weak references to tasks: a waiting task could be collected.
        self._started = set[Future[Any]]()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # Also after a SystemExit, which leaves the loop: callers wait for the futures.
            self._clean_up()

    def _clean_up(self) -> None:
        try:
            # Repeat while there are tasks: another thread may have started one.
            while asyncio.all_tasks(self._loop):
                self._loop.run_until_complete(_cancel_other_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # The loop's own method starts a thread.
            self._executor.shutdown()
        finally:
            self._loop.close()

    @property
    def is_current(self) -> bool:
        """Whether this is the loop's thread."""
        return threading.current_thread() is self._thread

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run ``work`` as a task; the future receives its result or error."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        return future

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Schedule ``function`` in the loop's thread; do not wait for it."""
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancel all tasks, wait until they have cleaned up, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class OpenInThread(Generic[_T]):
    """The value of an async context manager that is kept open in a thread with an event loop.

    The context is entered at once; :meth:`close` leaves it. What uses ``value`` runs on ``loop``.
    """

    def __init__(self, context: AbstractAsyncContextManager[_T], *, name: str) -> None:
        self.process = OwnProcess()
        self.loop = EventLoopThread(name=name)
        self._resources = AsyncExitStack()
        try:
            self.value = self.loop.start(self._resources.enter_async_context(context)).result()
        except BaseException:
            self.loop.close()
            raise

    def close(self, error: BaseException | None = None) -> None:
        """Leave the context, with ``error`` if there was one, and end the thread."""
        kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
        try:
            self.loop.start(self._resources.__aexit__(kind, error, traceback)).result()
        finally:
            self.loop.close()


async def _cancel_other_tasks() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Closeable(Protocol):
    def close(self) -> None: ...


CLOSED_AT_EXIT: Final[set[_Closeable]] = set()
"""What is closed at the end of the interpreter; who closes it before takes it out."""


def close_all() -> None:
    """Close everything that is still open."""
    for one in tuple(CLOSED_AT_EXIT):
        try:
            one.close()
        except Exception as error:  # noqa: BLE001 - nobody is there who could handle it
            _LOGGER.error("At the end of the program %r could not be closed: %s", one, error)


# This must run before the threads of concurrent.futures end, which resolve names. Later
# registrations run earlier, and that module has been loaded. Functions of atexit run after.
getattr(threading, "_register_atexit", atexit.register)(close_all)
