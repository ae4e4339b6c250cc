"""Calls the user's functions in threads: the callback for a delivery, and hooks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kinesis_publishers.event_loop import FORKED, OwnProcess
from kinesis_publishers.model import Record, RecordBatch

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")


class CallThreads(ThreadPoolExecutor):
    """Threads for a number of calls at once; leaving the context waits for running calls.

    The event loop's default threads are few, and resolving a host name needs one of them.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count, "kinesis-scan")
        self._process = OwnProcess()

    def start(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run ``work`` in a thread, with the caller's context variables."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self, context.run, self._run, work)

    def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        finally:
            if self._process.is_left:
                # A callback forked and returned: this thread is alone, and would wait forever.
                _LOGGER.error(FORKED, "This process ends: its scan")
                os._exit(1)

    async def call(
        self,
        name: str,
        callback: Callable[..., object],
        *arguments: object,
        then: Callable[[], None],
    ) -> None:
        """Do :func:`call_plain` in a thread and, when it has returned, ``then`` on the event loop.

        A thread cannot be interrupted: a cancellation waits for the call, which then counts.
        """
        running = self.start(partial(call_plain, name, callback, *arguments))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if (error := running.exception()) is None:
                then()
            else:
                # The scan raises the error that ended it, not this one.
                _LOGGER.error("%s has failed, too: %r", name, error)
            raise
        then()


def call_in_thread(callback: Callable[..., _T], *arguments: object) -> _T:
    """Call ``callback`` and return its result.

    Two exceptions mean something else to the task that waits for the thread: a CancelledError would
    look as if that task had been cancelled, and a StopIteration would never reach it.
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
    """Call ``callback``, which ``name`` describes in errors, and refuse an awaitable as its result.

    Only a call shows that a lambda wraps an async function.
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
            f"{name} returned {result!r}, which nothing awaits: it is called in a thread, and must "
            "be done when it returns"
        )


def check_event_times(item: Record | RecordBatch, batch: RecordBatch) -> None:
    """Raise the error that left a record of ``item`` without event time, if any."""
    if batch.failures:
        for record in item if isinstance(item, RecordBatch) else (item,):
            if (failure := batch.failures.get(record.id)) is not None:
                raise failure


class ScanResult(Enum):
    """What a callback may return; ``None`` says that its record has been processed."""

    SKIP_CHECKPOINT = "SKIP_CHECKPOINT"
    """The record was taken, but is not recorded as processed yet: a later record of its shard
    covers it, or the end of the shard once ``on_shard_end`` has been called."""

    STOP = "STOP"
    """The record has been processed, and no more are wanted."""


Process: TypeAlias = "Callable[[Any], ScanResult | None]"


class BatchParts:
    """A batch that is processed as a whole or, if that fails, in parts, until a record is alone.

    The first ``taken`` records need no more calls.
    """

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self.taken = 0
        # The ends of the remaining parts; the last of the list is the next part.
        self._ends = [len(batch)]

    @property
    def current(self) -> RecordBatch:
        return self._batch.slice(self.taken, self._ends[-1])

    @property
    def is_cut(self) -> bool:
        """Whether the next part is neither the batch nor a single record."""
        return 1 < self._ends[-1] - self.taken < len(self._batch)

    def divide(self) -> bool:
        """Halve the next part; return ``False`` for a single record."""
        end = self._ends[-1]
        if end - self.taken < 2:
            return False
        self._ends.append((self.taken + end) // 2)
        return True

    def pass_over(self) -> int:
        """Count the next part as taken; return how many records it has."""
        before, self.taken = self.taken, self._ends.pop()
        return self.taken - before


class DeliveryCalls:
    """The calls for one delivery; one thread at a time changes the state, any may read it.

    Args:
        per_batch: whether the callback takes all records at once, or in parts after a failure.
        holds: whether earlier records of the shard have skipped their checkpoint, and no later one
            has covered them.
        may_continue: is called before each call; :meth:`run` returns if the result is false.

    Attributes:
        parts: the remaining records if ``per_batch``.
        taken: the number of records that the callback has taken.
        processed: how many of them, from the first one on, may be recorded as processed.
        wants_no_more: whether the callback asked to stop.
    """

    def __init__(
        self,
        process: Process,
        batch: RecordBatch,
        per_batch: bool,
        holds: bool = False,
        may_continue: Callable[[], bool] = lambda: True,
    ) -> None:
        self._process = process
        self.batch = batch
        self._holds = holds
        self._may_continue = may_continue
        self.parts = BatchParts(batch) if per_batch else None
        self.taken = self.processed = 0
        self.wants_no_more = False
        # Kept from call to call: finding the place again would take longer with every record.
        self._records = iter(batch)
        self._record: Record | None = None
        self._is_stopping = threading.Event()

    @property
    def is_done(self) -> bool:
        return self.taken == len(self.batch)

    @property
    def current(self) -> Record | RecordBatch:
        if self.parts is not None:
            return self.parts.current
        if self._record is None:
            self._record = next(self._records)
        return self._record

    def stop(self) -> None:
        """Make :meth:`run` return after the current call. Any thread may call this."""
        self._is_stopping.set()

    def run(self) -> Exception | None:
        """Call until nothing is left or a decision is needed; return what a call raised.

        With ``per_batch`` there is one call.
        """
        while not (self.is_done or self.wants_no_more or self._is_stopping.is_set()):
            if not self._may_continue():
                return None
            try:
                check_event_times(self.current, self.batch)
                result = call_in_thread(self._process, self.current)
            except Exception as error:  # noqa: BLE001 - the error policy decides what follows
                return error
            self._take(result)
            if self.parts is not None:
                break
        return None

    def _take(self, result: object) -> None:
        if not (result is None or isinstance(result, ScanResult)):
            raise TypeError(
                f"the callback returned {result!r}; it may return None, "
                "ScanResult.SKIP_CHECKPOINT or ScanResult.STOP"
            )
        self._holds = result is ScanResult.SKIP_CHECKPOINT
        self.wants_no_more = result is ScanResult.STOP
        self.pass_over()

    def pass_over(self) -> None:
        """Count :attr:`current` as taken; as processed unless earlier records are held back."""
        self._record = None
        self.taken += 1 if self.parts is None else self.parts.pass_over()
        if not self._holds:
            self.processed = self.taken
