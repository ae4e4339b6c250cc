"""Keeps records on disk that have no room in memory while the service is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from attrs import define, evolve, field

from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.config import ProducerConfig, WhenFull
from kinesis_publishers.errors import BufferFullError, ClosedError, RecordsNotWrittenError
from kinesis_publishers.events import SpoolFound
from kinesis_publishers.producing.buffer import Buffer
from kinesis_publishers.producing.records import (
    Putting,
    Row,
    Run,
    Written,
    columns_of_rows,
    row_bytes,
)
from kinesis_publishers.producing.spool import Spool

_T = TypeVar("_T")
_LOGGER = logging.getLogger(__name__)
# What is taken from the disk at once: the entries of a call.
_CHUNK_RECORDS: Final = 500
_CHUNK_BYTES: Final = 1024 * 1024


@define(eq=False)
class Spilling:
    """Puts records on disk, and from there into the buffer, in their order.

    As long as a record on disk is not in the buffer, every further one goes to the disk, which
    keeps the order of keys. A record stays on disk until it is written, or until its caller has
    the error; if its caller has ended, until it is written.

    To the producer it is the ``put`` of the records from the disk; their places are their numbers.
    """

    _services: WritingServices
    _spool: Spool
    _buffer: Buffer
    _enter: Callable[[Run], Awaitable[None]]
    _taken_up_to: int = field(default=0, init=False)
    _entered_up_to: int = field(default=0, init=False)
    # Of the records of this process: the call of `put`, the place in that, and its time.
    _callers: dict[int, tuple[Putting, int, float]] = field(factory=dict, init=False)
    # The sizes of the records that were taken, and of those that leave the disk.
    _taken: dict[int, int] = field(factory=dict, init=False)
    _gone: dict[int, int] = field(factory=dict, init=False)
    _end: Exception | None = field(default=None, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _has_work: asyncio.Event = field(factory=asyncio.Event, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    # Of the disk, while it lasts.
    _failure: RecordsNotWrittenError | None = field(default=None, init=False)
    # One thread: a write whose caller was cancelled is over before the next one begins.
    _executor: ThreadPoolExecutor = field(
        factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="kinesis-spool"), init=False
    )

    async def open(self) -> None:
        """Find what an earlier process has left, which is put first.

        Raises:
            InvalidOptionError: the disk cannot be used.
        """
        spool, arn = self._spool, self._services.arn
        await self._call(lambda: spool.load(arn))
        if count := spool.records:
            self._services.events(SpoolFound(stream_arn=arn, records=count, unknown=spool.unknown))
            self._buffer.on_disk += count
            self._has_work.set()

    async def append(self, run: Run) -> None:
        """Return once records are on disk; wait while there is no room for them.

        Raises:
            BufferFullError: there is no room, and the configuration forbids waiting.
            RecordsNotWrittenError: the disk has failed.
            ClosedError: the producer was closed meanwhile.
        """
        write: asyncio.Future[range] | None = None
        if not self._buffer.on_disk:
            _LOGGER.warning("Records for %s go to %s", self._services.name, self._spool.directory)
        self._buffer.on_disk += len(run)
        try:
            async with self._turn:
                await self._wait_for_room(run.size)
                write = self._call(lambda: self._spool.append([row[:4] for row in run.rows()]))
                write.add_done_callback(partial(self._note_append, run))
                # It ends, even if this call is cancelled.
                await asyncio.shield(write)
        finally:
            if write is None:
                self._buffer.on_disk -= len(run)

    async def _wait_for_room(self, size: int) -> None:
        spool, config = self._spool, self._services.config
        while self._end is None and spool.size + size > config.spill_bytes:
            # Nothing would make room: the records there are being sent, or stay for good.
            if self._entered_up_to >= spool.last_id:
                break
            if config.when_full is WhenFull.FAIL:
                raise BufferFullError(
                    f"The buffer is full, and {spool.directory} has {spool.size:,} bytes "
                    f"({ProducerConfig.spill_bytes.full_key})"
                )
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure
        if self._end is not None:
            raise self._end

    def _note_append(self, run: Run, write: asyncio.Future[range]) -> None:
        if write.exception() is not None:
            self._buffer.on_disk -= len(run)
            return
        for number, place in zip(write.result(), run.places, strict=True):
            self._callers[number] = run.put, place, run.put_at
        self._has_work.set()
        if self._end is not None:
            self.end(self._end)

    async def run(self) -> None:
        """Put what is on disk into the buffer, until cancelled or closed."""
        with suppress(ClosedError):
            while await self._has_work.wait():
                self._has_work.clear()
                while self._gone or self._taken_up_to < self._spool.last_id:
                    try:
                        await self._remove()
                        rows = await self._take()
                    except RecordsNotWrittenError as error:
                        _LOGGER.warning("%s. This is tried again", error)
                        self._failure = error
                        self._pulse()
                        await self._services.clock.sleep(self._services.config.retry.max_seconds)
                        continue
                    self._failure = None
                    if rows:
                        columns = columns_of_rows(list(rows.values()))
                        await self._enter(Run(self, list(rows), 0, 0.0, *columns))
                        self._entered_up_to = self._taken_up_to
                        self._buffer.on_disk -= len(rows)
                        self._pulse()

    async def _remove(self) -> None:
        gone, self._gone = self._gone, {}
        if gone:
            removal = self._call(lambda: self._spool.remove(gone))
            removal.add_done_callback(partial(self._note_removal, gone))
            # It ends, even if this call is cancelled.
            await asyncio.shield(removal)

    def _note_removal(self, gone: dict[int, int], removal: asyncio.Future[None]) -> None:
        if removal.exception() is not None:
            self._gone |= gone
        self._pulse()

    async def _take(self) -> dict[int, Row]:
        after = self._taken_up_to
        if after >= self._spool.last_id:
            return {}
        limits = {"most": _CHUNK_RECORDS, "most_bytes": _CHUNK_BYTES}
        rows = await self._call(lambda: self._spool.take(after, **limits))
        self._taken_up_to = max(rows)
        self._taken |= {number: row_bytes(row) for number, row in rows.items()}
        return rows

    async def drain(self) -> None:
        """Wait until what is on disk now has entered the buffer; raise if the disk has failed."""
        last = self._spool.last_id
        while self._entered_up_to < last and self._end is None:
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure

    def settle(self, places: Sequence[int], written: Written) -> None:
        """Report where records were written, and remove them from the disk."""
        for number, *columns in zip(places, *written.columns, strict=True):
            if (caller := self._callers.pop(number, None)) is not None:
                put, place, put_at = caller
                own: Any = tuple([one] for one in columns)
                put.settle([place], evolve(written, columns=own, put_at=put_at))
            self._let_go(number)

    def fail(self, places: Sequence[int], error: Exception) -> None:
        """Report that records were not written; those without a caller stay on disk."""
        stays = self._end is not None or isinstance(error, ClosedError)
        if stays:
            error = ClosedError(f"{error}; {self._spool.directory} keeps it for the next producer")
        for number in places:
            if (caller := self._callers.pop(number, None)) is not None:
                put, place, _ = caller
                put.fail([place], error)
                if not stays:
                    self._let_go(number)

    def _let_go(self, number: int) -> None:
        self._gone[number] = self._taken.pop(number)
        self._has_work.set()

    def end(self, error: Exception) -> None:
        """Put no more records into the buffer, and tell the callers of those that stay on disk."""
        self._end = error
        self.fail(list(self._callers), error)
        self._pulse()

    async def close(self) -> RecordsNotWrittenError | None:
        """Return an error, which is also logged, if records stay on disk; first :meth:`end`."""
        with suppress(RecordsNotWrittenError):
            await self._remove()
        await asyncio.to_thread(self._executor.shutdown)
        if not self._spool.records:
            return None
        left = RecordsNotWrittenError(
            f"{self._spool.records:,} of the records for {self._services.name} were not written, "
            f"or not for certain: {self._spool.directory} keeps them for the next producer"
        )
        _LOGGER.warning("%s", left)
        return left

    def _pulse(self) -> None:
        # Wakes those that wait now.
        self._changed.set()
        self._changed.clear()

    def _call(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)
