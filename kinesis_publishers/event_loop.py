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
    """The process in which something was opened: a fork has neither its loop nor its connections.

    Attributes:
        is_left: whether this is a process that was forked off since.
    """

    def __init__(self) -> None:
        self.is_left = False
        _PROCESSES.add(self)

    def check(self, what: str) -> None:
        """Check that ``what`` was opened in this process; before any lock, which a fork inherits.

        Raises:
            ClosedError: it was not.
        """
        if self.is_left:
            raise ClosedError(FORKED % what)


_PROCESSES: Final[WeakSet[OwnProcess]] = WeakSet()


def _leave_in_child() -> None:
    for one in _PROCESSES:
        one.is_left = True


os.register_at_fork(after_in_child=_leave_in_child)


class EventLoopThread:
    """An event loop in a thread of its own, which runs during blocking calls.

    The thread is a daemon: Spark ends the process of a stopped query with SIGKILL or by exiting,
    and neither may wait for a subscription.
    """

    def __init__(self, *, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # Names are resolved in it. At the end of the interpreter no thread starts any more, from
        # Python 3.12 on: it has one from the beginning.
        self._executor = ThreadPoolExecutor(thread_name_prefix=name)
        self._executor.submit(int)
        self._loop.set_default_executor(self._executor)
        # The loop refers to its tasks weakly: one that waits for another could be collected.
        self._started = set[Future[Any]]()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # After a SystemExit as well, which leaves the loop: a caller waits for the futures.
            self._clean_up()

    def _clean_up(self) -> None:
        try:
            # Again while there are tasks: another thread may have started one meanwhile.
            while asyncio.all_tasks(self._loop):
                self._loop.run_until_complete(_cancel_other_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # The loop's own way to do that starts a thread.
            self._executor.shutdown()
        finally:
            self._loop.close()

    @property
    def is_current(self) -> bool:
        """Whether this is the loop's thread."""
        return threading.current_thread() is self._thread

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run ``work`` as a task; its result or error is the future's."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        return future

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function`` in the loop's thread, soon, and do not wait for it."""
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancel what still runs, wait until it has cleaned up, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class OpenInThread(Generic[_T]):
    """The value of an async context manager, kept open in a thread with an event loop of its own.

    Args:
        context: entered at once, left by :meth:`close`.

    Attributes:
        process: where the thread is.
        loop: runs everything that uses the value.
        value: the value that the context has yielded.
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
        """Leave the context, because of ``error`` perhaps, and end the thread."""
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


_OPEN: Final[set[_Closeable]] = set()


def close_at_exit(one: _Closeable) -> None:
    """Let the end of the interpreter close ``one``, which :func:`closed_before_exit` takes back."""
    _OPEN.add(one)


def closed_before_exit(one: _Closeable) -> None:
    """Say that ``one`` has been closed."""
    _OPEN.discard(one)


def close_all() -> None:
    """Close everything that the end of the interpreter would close."""
    for one in tuple(_OPEN):
        try:
            one.close()
        except Exception as error:  # noqa: BLE001 - nobody is there who could handle it
            _LOGGER.error("At the end of the program %r could not be closed: %s", one, error)


# Before the threads of concurrent.futures end, without which no name is resolved: what is
# registered later runs earlier, and their module has been loaded. Functions of atexit run after.
getattr(threading, "_register_atexit", atexit.register)(close_all)
