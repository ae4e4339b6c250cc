"""The producer for threads: its calls block where a coroutine would wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final, Self, Unpack

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Options, Properties, Scalar
from kinesis_publishers.errors import ClosedError, KinesisPublishersError
from kinesis_publishers.event_loop import CLOSED_AT_EXIT, OpenInThread
from kinesis_publishers.events import EventSink
from kinesis_publishers.formats import Encoder, Format
from kinesis_publishers.producing.checking import Data, Item
from kinesis_publishers.producing.producer import CHUNK_RECORDS, KinesisProducer
from kinesis_publishers.producing.records import ManyPuts, PutResult, Row

# The records before the buffer: handing them over one by one would cost ten times as much.
_LINE_RECORDS: Final = 500
_LINE_BYTES: Final = 1024 * 1024
_NOT_TAKEN: Final = "the producer was closed before the record had a place in the buffer"


class BlockingProducer:
    """A :class:`~kinesis_publishers.producing.producer.KinesisProducer` for any number of threads.

    It runs in a thread of its own. ``with BlockingProducer.from_properties(properties) as
    producer`` is the usual way to open one; leaving the context delivers what was put, and so does
    the end of the interpreter. The records of one thread enter the producer in their order.
    """

    def __init__(self, opened: OpenInThread[KinesisProducer]) -> None:
        self._opened = opened
        self._producer = opened.value
        self._line: list[tuple[Row, Future[PutResult]]] = []
        self._line_bytes = 0
        # Guards the line, and says that it has become shorter.
        self._turn = threading.Condition()
        self._is_closed = False
        # In the loop's thread: its holder takes the line.
        self._taking = asyncio.Lock()
        CLOSED_AT_EXIT.add(self)

    @classmethod
    def from_properties(
        cls,
        properties: Properties | Mapping[str, Scalar] | None = None,
        *,
        encode: str | Format[Any] | Encoder | None = None,
        events: EventSink | None = None,
        clock: Clock | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """Open a producer, as :meth:`KinesisProducer.from_properties` does with the same errors."""
        opening = KinesisProducer.from_properties(
            properties, encode=encode, events=events, clock=clock, **options
        )
        return cls(OpenInThread(opening, name="kinesis-producer"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending_records(self) -> int:
        """The number of records that were put and are neither written nor given up."""
        return self._producer.pending_records + len(self._line)

    def put(
        self, data: Data, partition_key: str | None = None, explicit_hash_key: str | None = None
    ) -> Future[PutResult]:
        """Return once a record has a place in the buffer, with the future of its result.

        As :meth:`KinesisProducer.put`, which says what the arguments are. The place may be one of
        the 500 before the buffer; the future then has the ``BufferFullError``. With
        ``kinesis.producer.spill.path`` the place is in the buffer or on disk.

        Raises:
            InvalidRecordError: the service would refuse the record; nothing was put. One that is
                too large for the stream may have this error in its future.
            ClosedError: the producer is closed, or cannot be used here.
        """
        self._opened.process.check("this producer")
        future: Future[PutResult] = _new_future()
        with self._producer.sending(future):
            item = self._producer.checker.encoded((data, partition_key, explicit_hash_key))
            with self._turn:
                row = self._producer.checker.row_of(item)
                # A callback of a future cannot wait: it would be for itself.
                if not self._opened.loop.is_current:
                    self._turn.wait_for(self._has_room)
                self._check_open()
                self._line.append((row, future))
                self._line_bytes += len(row[0])
                waits = self._producer.has_spool and not self._opened.loop.is_current
                if len(self._line) == 1 or waits:
                    taking = self._opened.loop.start(self._take_line())
            if waits:
                wait([taking])
        return future

    def put_many(self, records: Iterable[Item]) -> Future[Sequence[PutResult]]:
        """Return once all records have had a place in the buffer, with the future of their results.

        As :meth:`KinesisProducer.put_many`, which says what the arguments and errors are; the
        records are iterated over in this thread. A callback of a future must not call it.
        """
        self._check_thread("put_many")
        future: Future[Sequence[PutResult]] = _new_future()
        put = ManyPuts(future)
        left = iter(records)
        with self._producer.sending(future):
            try:
                while chunk := list(islice(left, CHUNK_RECORDS)):
                    self._run(partial(self._producer.put_chunk, chunk, put))
            finally:
                try:
                    self._opened.loop.call(put.complete)
                except RuntimeError:  # The loop has ended, and so has everything that was put.
                    put.complete()
        return future

    def flush(self) -> None:
        """Send everything now, and return when each record so far is written or given up.

        A callback of a future must not call it.

        Raises:
            RecordsNotWrittenError: as of :meth:`KinesisProducer.flush`.
            ClosedError: as of :meth:`put`.
        """
        self._check_thread("flush")
        self._run(self._producer.flush)

    def close(self, *, timeout_seconds: float | None = None) -> None:
        """Take no more records, deliver those that were put, and end.

        Raises:
            RecordsNotWrittenError: as of :meth:`KinesisProducer.close`, which says what
                ``timeout_seconds`` is.
        """
        if self._opened.process.is_left:
            return  # It is the parent's.
        self._check_thread("close")
        CLOSED_AT_EXIT.discard(self)
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            self._turn.notify_all()
        try:
            self._opened.loop.start(self._close(timeout_seconds)).result()
        finally:
            self._opened.close()

    def _check_thread(self, name: str) -> None:
        self._opened.process.check("this producer")
        if self._opened.loop.is_current:
            raise RuntimeError(
                f"{name}() was called by a callback of a future, which runs in the thread that "
                "writes: it would wait for itself. Call it in another thread; put() may be called"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this producer is closed")

    def _has_room(self) -> bool:
        is_short = len(self._line) < _LINE_RECORDS and self._line_bytes < _LINE_BYTES
        return is_short or self._is_closed

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work`` after the records in the line, and wait for it."""

        async def run() -> None:
            await self._take_line()
            await work()

        with self._turn:
            self._check_open()
            done = self._opened.loop.start(run())
        done.result()

    async def _take_line(self) -> None:
        async with self._taking:
            with self._turn:
                line, self._line = self._line, []
                self._line_bytes = 0
                self._turn.notify_all()
            done = 0
            try:
                for row, future in line:
                    try:
                        await self._producer.put_row(row, future)
                    except KinesisPublishersError as problem:
                        self._producer.refuse(row, future, problem)
                    done += 1
            finally:
                for row, future in line[done:]:
                    self._producer.refuse(row, future, ClosedError(_NOT_TAKEN))

    async def _close(self, timeout_seconds: float | None) -> None:
        if timeout_seconds is None:
            await self._take_line()
        else:
            clock = self._producer.clock
            end = clock.monotonic() + timeout_seconds
            with suppress(TimeoutError):
                async with clock.timeout(timeout_seconds):
                    await self._take_line()
            timeout_seconds = max(0.0, end - clock.monotonic())
            with self._turn:
                line, self._line = self._line, []
            for row, future in line:
                self._producer.refuse(row, future, ClosedError(_NOT_TAKEN))
        await self._producer.close(timeout_seconds=timeout_seconds)


def _new_future() -> Future[Any]:
    future: Future[Any] = Future()
    # It cannot be cancelled: the record is under way.
    future.set_running_or_notify_cancel()
    return future
