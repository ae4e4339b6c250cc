"""Scopes of asyncio tasks: a scope waits for its tasks, and the first failure stops the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

from kinesis_publishers.clock import Clock

_T = TypeVar("_T")


@contextmanager
def cancelled_from_outside_only(error_type: type[Exception], what: str) -> Iterator[None]:
    """Turn a CancelledError into an error unless the current task was cancelled.

    The exception then comes from ``what``, a part that cancelled itself, and would look like an
    orderly end.
    """
    requests = _cancel_requests()
    try:
        yield
    except asyncio.CancelledError as error:
        if _cancel_requests() > requests:
            raise
        raise error_type(
            f"{what} ended in a CancelledError without a request to stop: handle the "
            "cancellation of what it waits for"
        ) from error


async def cancellable(call: Callable[[], Awaitable[_T]]) -> _T:
    """Await ``call()``; raise ``CancelledError`` even if the call swallows a cancellation.

    Before Python 3.12 ``asyncio.wait_for``, with which redis-py sends every command, swallows one
    if its result is ready at the same moment. The call must not use an ``asyncio.TaskGroup``:
    before Python 3.13 a failed one leaves a cancellation behind.
    """
    requests = _cancel_requests()
    try:
        return await call()
    finally:
        # The result may hold a connection, and a traceback would hold the result.
        del call
        if _cancel_requests() > requests:
            raise asyncio.CancelledError


def _cancel_requests() -> int:
    # Compare two counts: before Python 3.13 a failed TaskGroup leaves a cancellation behind.
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class TaskScope:
    """An ``asyncio.TaskGroup`` that raises the first failure itself, not in a group.

    Leaving the scope waits for every task. If one fails, the others are cancelled, and the scope
    raises the first exception; others are attached as notes. A scope whose owner is cancelled
    always ends in ``CancelledError``; failures meanwhile become notes, too.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests = 0
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._requests = _cancel_requests()
        await self._group.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, *raised: Any) -> None:
        try:
            if raised[0] is None:
                raised = await self._end_of_tasks()
            await self._group.__aexit__(*raised)
        except BaseExceptionGroup as group:
            # Unpack only this group: a group that a task raised is that task's error.
            first, *rest = group.exceptions
            if _cancel_requests() > self._requests:
                # From Python 3.13 on, the group has repeated the cancellation.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
                first, rest = asyncio.CancelledError(), [first, *rest]
            for other in rest:
                first.add_note(f"also failed: {other!r}")
            raise first from first.__cause__
        finally:
            self._is_open = False
            del raised

    async def _end_of_tasks(self) -> Any:
        """Wait for every task; return the exception that ended the wait, if any.

        The group must not wait itself: before Python 3.13 the cancellation by which a failure ends
        its wait would stay behind, and look like one from outside.
        """
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError as error:
            return type(error), error, error.__traceback__
        return None, None, None

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run ``work`` as a task of this scope; a cancelled scope cancels the task at once."""
        try:
            task = self._group.create_task(work, name=name)
        except RuntimeError:
            # Before Python 3.13 the group does not close the coroutine.
            work.close()
            if not self._is_open:
                raise
            task = asyncio.create_task(asyncio.sleep(0), name=name)
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Ask every task of the scope to stop; leaving the scope waits until they have."""
        for task in tuple(self._tasks):
            task.cancel()


async def wait_for_event(event: asyncio.Event, *, timeout_seconds: float, clock: Clock) -> bool:
    """Wait until ``event`` is set or ``seconds`` have passed; return whether it is set."""
    if not event.is_set():
        async with TaskScope() as scope:
            # Takes a function and not a coroutine, which a task that is cancelled before its first
            # step would leave unawaited.
            async def end_with(wait: Callable[[], Coroutine[Any, Any, object]]) -> None:
                await wait()
                scope.cancel()

            scope.spawn(end_with(event.wait), name="event")
            scope.spawn(end_with(lambda: clock.sleep(timeout_seconds)), name="timeout")
    return event.is_set()
