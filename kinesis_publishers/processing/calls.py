"""Calls the user's functions in threads: the callback for a delivery, and hooks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from kinesis_publishers.errors import NotProcessedError, ProcessingCancelledError
from kinesis_publishers.event_loop import FORKED, OwnProcess
from kinesis_publishers.model import Record, RecordBatch
from kinesis_publishers.tasks import cancelled_from_outside_only

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


class ResultError(TypeError):
    """A callback has returned what it must not return: no policy takes that for its records."""


LEFT_OUT: Final = object()
"""What a function returns for records that are not for it: they cover none before them."""

Process: TypeAlias = "Callable[[Any], ScanResult | None]"


class BatchParts:
    """A batch that is processed as a whole or, if that fails, in parts, until a record is alone.

    Attributes:
        taken: how many records, from the first one on, need no more calls.
        scattered: the indices of others behind them that need none.
    """

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        # The indices of the remaining parts; the last of the list is the next part.
        self._parts: list[Sequence[int]] = [range(len(batch))]
        self._largest = len(batch)
        self.taken = 0
        self.scattered: list[int] = []

    @property
    def is_done(self) -> bool:
        return not self._parts

    @property
    def current(self) -> RecordBatch:
        return self._batch.take(self._parts[-1])

    @property
    def last(self) -> int:
        """The index of the last record of the next part."""
        part = self._parts[-1]
        return part[-1] if part else 0  # A batch may be empty.

    @property
    def is_cut(self) -> bool:
        """Whether the next part was cut from a batch, and is not a single record."""
        return 1 < len(self._parts[-1]) < self._largest

    def divide(self) -> bool:
        """Halve the next part; return ``False`` for a single record."""
        part = self._parts[-1]
        if len(part) < 2:
            return False
        middle = len(part) // 2
        self._parts[-1:] = [part[middle:], part[:middle]]
        return True

    def pick(self, is_first: Callable[[Record], bool]) -> bool:
        """Make a part of the records for which that holds, before the others; ``False`` if none."""
        part = self._parts[-1]
        wanted = [index for index, one in zip(part, self.current, strict=True) if is_first(one)]
        if 0 < len(wanted) < len(part):
            rest = sorted({*part}.difference(wanted))
            self._parts[-1:] = [rest, wanted]
            self._largest = len(wanted)
        return bool(wanted)

    def pass_over(self) -> None:
        """Count the next part as taken."""
        self.scattered += self._parts.pop()
        self.taken = min((part[0] for part in self._parts), default=len(self._batch))
        self.scattered = [index for index in self.scattered if index >= self.taken]

    def keep(self, failed: Iterable[Any]) -> int:
        """Count the next part as taken but for the records that have failed; return how many.

        Raises:
            ResultError: what has failed is not of this part.
        """
        ids = {one.id if isinstance(one, Record) else one for one in failed}
        part, current = self._parts[-1], self.current
        kept = [index for index, one in zip(part, current, strict=True) if one.id in ids]
        if len(kept) < len(ids):
            raise ResultError(
                "the callback returned a list of what is not in its batch: it may return the "
                "records that have failed"
            )
        if kept and len(kept) < len(part):
            self._parts[-1:] = [kept, sorted({*part}.difference(kept))]
            self.pass_over()
            self._largest = len(kept)
        return len(kept)


class DeliveryCalls:
    """The calls for what was handed out; one thread at a time changes the state, any may read it.

    Args:
        per_batch: whether the callback takes all records at once, or in parts after a failure.
        holds: whether earlier records of the shard have skipped their checkpoint, and no later one
            has covered them.
        may_begin: is called before each call with the index of its last record; :meth:`run` returns
            if the result is false.
        is_too_old: whether a record goes to the error policy, and not to the callback.
        may_skip: whether the callback may skip checkpoints, which only later records can cover.

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
        may_begin: Callable[[int], bool] = lambda _: True,
        is_too_old: Callable[[Record], bool] | None = None,
        may_skip: bool = True,
    ) -> None:
        self._process = process
        self.batch = batch
        self._holds = holds
        self._may_begin = may_begin
        self._is_too_old = is_too_old
        self._may_skip = may_skip
        self.parts = BatchParts(batch) if per_batch else None
        self.taken = self.processed = 0
        self.wants_no_more = False
        # Kept from call to call: finding the place again would take longer with every record.
        self._records = iter(batch)
        self._record: Record | None = None
        self._is_stopping = threading.Event()

    @property
    def is_done(self) -> bool:
        return self.parts.is_done if self.parts is not None else self.taken == len(self.batch)

    @property
    def scattered(self) -> Sequence[int]:
        """The indices of further records that may be recorded, behind those."""
        return () if self.parts is None or self._holds else self.parts.scattered

    @property
    def next_index(self) -> int:
        """The index of the last record of the next call."""
        return self.taken if self.parts is None else self.parts.last

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
        while self._goes_on():
            try:
                error = self._take(call_in_thread(self._process, self._checked()))
            except Exception as raised:  # noqa: BLE001 - the error policy decides what follows
                error = raised
            if error is not None or self.parts is not None:
                return error
        return None

    async def run_async(self) -> Exception | None:
        """Do the same with an async callback, on the event loop."""
        while self._goes_on():
            try:
                with cancelled_from_outside_only(ProcessingCancelledError, "the callback"):
                    result: object = self._process(self._checked())
                    error = self._take(await result if inspect.isawaitable(result) else result)
            except Exception as raised:  # noqa: BLE001 - the error policy decides what follows
                error = raised
            if error is not None or self.parts is not None:
                return error
        return None

    def _goes_on(self) -> bool:
        is_over = self.is_done or self.wants_no_more or self._is_stopping.is_set()
        return not is_over and self._may_begin(self.next_index)

    def _checked(self) -> Record | RecordBatch:
        """Return what the next call takes, unless that is for the error policy."""
        current, is_too_old = self.current, self._is_too_old
        if is_too_old is not None:
            if self.parts is not None:
                is_late = self.parts.pick(is_too_old)
            else:
                is_late = is_too_old(cast("Record", current))
            if is_late:
                error = NotProcessedError("older than max_age")
                error.is_too_old = True
                raise error
        if self.batch.failures:
            check_event_times(current, self.batch)
        return current

    def _take(self, result: object) -> Exception | None:
        """Count what the callback has taken; return the error of what it returns as failed."""
        if result is None:
            self._holds = False
            self.pass_over()
            return None
        if self.parts is not None and isinstance(result, list | tuple):
            records = len(self.parts.current)
            if failed := self.parts.keep(result):
                self._holds, self.taken = False, self.parts.taken
                self.processed = self.taken
                return NotProcessedError(f"{failed} of {records} records were returned as failed")
            return self._take(None)
        if result is LEFT_OUT:
            self.pass_over()
            return None
        if not isinstance(result, ScanResult):
            may_be = ", or a list of failed records" if self.parts is not None else ""
            raise ResultError(
                f"the callback returned {result!r:.200}; it may return None, "
                f"ScanResult.SKIP_CHECKPOINT or ScanResult.STOP{may_be}"
            )
        if result is ScanResult.SKIP_CHECKPOINT and not self._may_skip:
            raise ResultError(
                "the callback returned SKIP_CHECKPOINT: that needs ordered_by='shard'"
            )
        self._holds = result is ScanResult.SKIP_CHECKPOINT
        self.wants_no_more = result is ScanResult.STOP
        self.pass_over()
        return None

    def pass_over(self) -> None:
        """Count :attr:`current` as taken; as processed unless earlier records are held back."""
        self._record = None
        if self.parts is None:
            self.taken += 1
        else:
            self.parts.pass_over()
            self.taken = self.parts.taken
        if not self._holds:
            self.processed = self.taken
