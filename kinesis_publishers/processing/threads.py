"""The threads in which a scan calls what the user has given it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CallThreads", "call_in_thread", "call_plain"]

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")


class CallThreads(ThreadPoolExecutor):
    """Threads for a number of calls at once; leaving the context waits for those that run.

    Not the event loop's own threads: these are few, and resolving a host name waits for one of
    them.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count, "kinesis-scan")

    def start(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run ``work`` in a thread, with the context variables that are set here."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self, context.run, work)

    async def call(
        self,
        name: str,
        callback: Callable[..., object],
        *arguments: object,
        then: Callable[[], None],
    ) -> None:
        """Call ``callback`` in a thread and, when it has returned, ``then`` on the event loop.

        A thread cannot be interrupted: if this is cancelled meanwhile, it is waited for all the
        same, and what it has done counts.

        Args:
            name: what is called, and for what.
            callback: is called with ``arguments``.
            then: notes that it has been done.

        Raises:
            Exception: what it has raised, with a note that names it.
            TypeError: its result would have to be awaited.
        """
        running = self.start(partial(call_plain, name, callback, *arguments))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if (error := running.exception()) is None:
                then()
            else:
                # Something else has ended the scan, and is what it raises.
                _LOGGER.error("%s has failed, too: %r", name, error)
            raise
        then()


def call_in_thread(callback: Callable[..., _T], *arguments: object) -> _T:
    """Call ``callback`` and return its result; a cancellation of something inside is a failure.

    Raises:
        RuntimeError: it has let out what has a meaning for the task that waits for the thread: a
            CancelledError would look as if that task had been cancelled, and a StopIteration
            would never reach it.
    """
    try:
        return callback(*arguments)
    except StopIteration as error:
        raise RuntimeError(
            f"{callback!r} raised StopIteration: it has asked an iterator for more than it has; "
            "give next() a default, or handle that there"
        ) from error
    except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
        raise RuntimeError(
            f"{callback!r} raised {type(error).__name__}: something that it waited for was "
            "cancelled, as a task of an event loop of its own; handle that there"
        ) from error


def call_plain(name: str, callback: Callable[..., object], *arguments: object) -> None:
    """Call ``callback``; refuse what would have to be awaited: it has done nothing.

    Which a lambda over an async function does not tell before it is called.
    """
    try:
        result = call_in_thread(callback, *arguments)
    except Exception as error:
        error.add_note(f"It was raised by {name}.")
        raise
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"{name} returned {result!r}, which nobody awaits: it is called in a thread, and has "
            "to be done when it returns"
        )
