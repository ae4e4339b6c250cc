"""Records one by one in a plain loop: ``for record in records(stream="orders")``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from datetime import datetime
from threading import Thread
from typing import Any, Generic, Self, Unpack

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Options, Properties, Scalar
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.event_loop import CLOSED_AT_EXIT, OpenInThread
from kinesis_publishers.events import EventSink
from kinesis_publishers.formats import Decoder, Format
from kinesis_publishers.formats.format import DecodedRecord, T, value_of
from kinesis_publishers.model import Shard, ShardKey
from kinesis_publishers.processing.calls import call_plain
from kinesis_publishers.processing.checkpointing import Checkpointing
from kinesis_publishers.processing.deliveries import given
from kinesis_publishers.processing.error_policies import DeadLetter, StopOnError, check_callback
from kinesis_publishers.processing.reading import RecordStream, read
from kinesis_publishers.processing.signals import stopped_by_signals
from kinesis_publishers.tracebacks import ShortTraceback


def records(
    properties: Properties | Mapping[str, Scalar] | None = None,
    *,
    decode: str | Format[T] | Decoder[T] | None = None,
    on_error: StopOnError | DeadLetter | None = None,
    on_ready: Callable[[datetime], None] | None = None,
    on_shard_begin: Callable[[Shard], None] | None = None,
    on_shard_end: Callable[[Shard], None] | None = None,
    on_shard_lost: Callable[[ShardKey], None] | None = None,
    on_watermark: Callable[[datetime], None] | None = None,
    on_stop: Callable[[], None] | None = None,
    events: EventSink | None = None,
    clock: Clock | None = None,
    **options: Unpack[Options],
) -> RecordIterator[T]:
    """Read the records of all shards of the configured streams, one by one, in a plain loop.

    It is :func:`~kinesis_publishers.read` for programs without an event loop of their own, and for
    notebooks: ``for record in records(stream="orders", region="eu-west-1")``. Reading runs in a
    thread of its own. A request for the next record says that the previous one has been processed;
    with ``application`` the next run continues after it.

    SIGTERM and Ctrl-C end the loop as they end that of ``read``, and Ctrl-C then raises
    ``KeyboardInterrupt``.

    The arguments and errors are those of ``read``, but ``on_ready``, ``on_shard_end`` and the like
    are plain functions. They run in a thread of their own, while the loop waits for a record.
    """
    hooks = given(
        on_ready=on_ready,
        on_shard_begin=on_shard_begin,
        on_shard_end=on_shard_end,
        on_shard_lost=on_shard_lost,
        on_watermark=on_watermark,
        on_stop=on_stop,
    )
    asynchronous: dict[str, Any] = {}
    for name, hook in hooks.items():
        check_callback(name, hook)
        asynchronous[name] = _in_a_thread(hook)
    with ShortTraceback():
        properties = Properties.of(properties, options)
    stream = read(
        properties,
        decode=decode,
        on_error=on_error,
        **asynchronous,
        events=events,
        clock=clock,
    )
    return RecordIterator(stream)


def _in_a_thread(hook: Callable[..., None]) -> Callable[..., Awaitable[None]]:
    async def call(*subject: object) -> None:
        what = " for ".join([repr(hook), *map(str, subject)])
        await asyncio.to_thread(call_plain, what, hook, *subject)

    return call


class RecordIterator(Iterator[DecodedRecord[T]]):
    """The records that :func:`records` reads; opened by the first record, or by ``with``.

    It is used once, by one thread. Leaving ``with`` without an exception, by ``break`` for example,
    says that the current record has been processed; after an exception the next run reads it again.
    A loop without ``with`` that is left early ends reading at once, and the next run reads the
    current record again: ``break`` looks like an exception there.
    """

    def __init__(self, stream: RecordStream[T]) -> None:
        # A separate object: the exit handler must not keep this one alive.
        self._reading = _Reading(stream)
        self._stream, self._take_at_once = stream, stream.take_at_once
        # The loop is in another thread than the stream.
        self._tracing, stream.tracing, self._span = stream.tracing, None, ExitStack()

    def __next__(self) -> DecodedRecord[T]:
        if self._tracing is not None:
            self._span.close()
        # A call that was interrupted has a record on its way, which comes first.
        record = self._take_at_once() if self._reading.pending is None else None
        if record is None:
            with ShortTraceback():
                record = self._reading.next()
        if record is None:
            raise StopIteration
        if self._tracing is not None:
            self._span.enter_context(self._tracing.processing_span(record, value_of(record)))
        return record

    def stage(self) -> None:
        """Record the current record as processed before the next one is asked for."""
        self._reading.checkpointing().stage()

    def checkpoint(self, transaction: Any = None, **request: Any) -> None:
        """Record the current record as processed: see :meth:`AsyncCheckpointing.checkpoint`."""
        self._reading.checkpointing().checkpoint(transaction, **request)

    def _repr_html_(self) -> str:
        return self._stream._repr_html_()

    def pause(self) -> None:
        """Read nothing more, and let the next record wait; any thread may call it."""
        self._reading.call(self._stream.pause)

    def resume(self) -> None:
        """Continue after :meth:`pause`; any thread may call it."""
        self._reading.call(self._stream.resume)

    def stop(self) -> None:
        """End the iteration after the current record; any thread may call it."""
        self._reading.stop()

    def close(self) -> None:
        """Stop reading, and count the current record as not processed."""
        self._reading.close()

    def __enter__(self) -> Self:
        with ShortTraceback():
            self._reading.open()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._span.__exit__(kind, error, traceback)
        with ShortTraceback():
            self._reading.end(error)

    def __del__(self) -> None:
        if hasattr(self, "_reading"):
            self._reading.close()


class _Reading(Generic[T]):
    """A stream of records in its own thread, from the first record to the end."""

    def __init__(self, stream: RecordStream[T]) -> None:
        self._stream = stream
        self._opened: OpenInThread[RecordStream[T]] | None = None
        self._signals = ExitStack()
        self.pending: Future[DecodedRecord[T] | None] | None = None
        self._is_over = self._is_interrupted = False

    def open(self) -> None:
        if self._opened is not None:
            return
        if self._is_over:
            raise ClosedError(
                "These records were read in a `with` or a loop that has ended: call records() "
                "again for each use"
            )
        self._opened = OpenInThread(self._stream, name="kinesis-records")
        CLOSED_AT_EXIT.add(self)
        # Not in the loop that may run in this thread, and waits for it.
        self._signals.enter_context(stopped_by_signals(self._stop_by, in_loop=False))

    def checkpointing(self) -> Checkpointing:
        if self._opened is None:
            raise RuntimeError("There is no current record: call this in the body of the loop")
        self._opened.process.check("this reader")
        return Checkpointing(self._stream.checkpointing, self._opened.loop.start)

    def next(self) -> DecodedRecord[T] | None:
        """Wait for the next record; return ``None`` at the end."""
        if self._is_over:
            return None
        self.open()
        assert self._opened is not None
        self._opened.process.check("this reader")
        if self.pending is None:
            self.pending = self._opened.loop.start(_next_or_none(self._stream))
        # If this is interrupted, the next call waits for the same record.
        wait([self.pending])
        if self._is_over:
            raise ClosedError("Reading was closed by another thread, or by the end of the main one")
        pending, self.pending = self.pending, None
        try:
            record = pending.result()
        except BaseException as error:
            self.end(error)
            raise
        if record is None:
            self.end(None)
        return record

    def _stop_by(self, one: signal.Signals) -> None:
        self._is_interrupted = one is signal.SIGINT
        self.stop()

    def stop(self) -> None:
        self.call(self._stream.stop)

    def call(self, control: Callable[[], None]) -> None:
        """Call a method of the stream on its event loop, if it is open."""
        if (opened := self._opened) is not None:
            opened.loop.call(control)
        else:
            control()

    def close(self) -> None:
        self.end(GeneratorExit())

    def end(self, error: BaseException | None) -> None:
        """Write the progress, after an ``error`` without the current record; close everything."""
        is_interrupted = self._is_interrupted and error is None
        self._is_over = True
        opened, self._opened = self._opened, None
        if opened is None:
            return
        CLOSED_AT_EXIT.discard(self)
        self._signals.close()
        if opened.process.is_left:
            return
        if self.pending is not None:
            self.pending.cancel()
            # It may have taken a record, which the loop never got.
            error = error or GeneratorExit()
        if opened.loop.is_current:
            # The garbage collector runs in any thread, and this one would wait for itself.
            Thread(target=opened.close, args=(error,)).start()
        else:
            opened.close(error)
        if is_interrupted:
            raise KeyboardInterrupt


async def _next_or_none(stream: RecordStream[T]) -> DecodedRecord[T] | None:
    return await anext(stream, None)
