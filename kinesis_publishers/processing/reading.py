"""Records one by one: ``async for record in read(properties)``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import datetime
from typing import Any, Self, TypeVar, Unpack

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Options, Properties, Scalar
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.events import EventSink
from kinesis_publishers.formats import Decoder, Format, decoder_of
from kinesis_publishers.formats.format import DecodedRecord, T, decoded, value_of
from kinesis_publishers.model import Record, Shard, ShardKey
from kinesis_publishers.model.html import html_table
from kinesis_publishers.processing.calls import check_event_times
from kinesis_publishers.processing.checkpointing import AsyncCheckpointing
from kinesis_publishers.processing.deliveries import HookCall, given
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    StopOnError,
    check_decode_policy,
    next_step,
    place_of,
)
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.processing.handed_out import HandedOut
from kinesis_publishers.processing.signals import CLOSING, interrupt, stopped_by_signals
from kinesis_publishers.readers.consumers import call_hook
from kinesis_publishers.readers.watermarks import OnWatermark
from kinesis_publishers.tracebacks import ShortTraceback

_Stream = TypeVar("_Stream", bound="RecordStream[Any]")

# How often other tasks run while records are taken without waiting.
_TURN_SECONDS = 0.01


def read(
    properties: Properties | Mapping[str, Scalar] | None = None,
    *,
    decode: str | Format[T] | Decoder[T] | None = None,
    on_error: StopOnError | DeadLetter | None = None,
    on_ready: Callable[[datetime], Awaitable[None]] | None = None,
    on_shard_begin: Callable[[Shard], Awaitable[None]] | None = None,
    on_shard_end: Callable[[Shard], Awaitable[None]] | None = None,
    on_shard_lost: Callable[[ShardKey], Awaitable[None]] | None = None,
    on_watermark: OnWatermark | None = None,
    on_stop: Callable[[], Awaitable[None]] | None = None,
    events: EventSink | None = None,
    clock: Clock | None = None,
    **options: Unpack[Options],
) -> RecordStream[T]:
    """Read the records of all shards of the configured streams, one by one.

    Use it as ``async with read(properties) as records`` and ``async for record in records``. A call
    for the next record says that the previous one has been processed; with
    ``kinesis.checkpoint.application`` the next run continues after it. The records of a shard come
    in their order, those of different shards batch by batch as they arrive.

    SIGTERM and Ctrl-C end the loop in an orderly way, unless the program handles them itself: the
    current record is finished, and its checkpoint is written. After Ctrl-C the loop then raises
    what ``asyncio.run`` makes of it, ``KeyboardInterrupt`` in the end; of several loops that read,
    the last one does. A second signal has its usual effect at once.

    Args:
        properties: what to read, and how; ``None`` if ``options`` say everything.
        decode: makes the ``value`` of each record from its payload: ``json``, ``text``,
            ``msgpack``, one of :mod:`kinesis_publishers.formats`, or your own function.
        on_error: what follows if ``decode``, or a ``WatermarkAssigner``, raises; the default is
            :class:`StopOnError`. The loop handles its own exceptions.
        on_ready: is awaited with an instant: what is put after it is read, also with LATEST.
        on_shard_begin: is awaited before the first record of a shard, or at an empty answer.
        on_shard_end: is awaited when a shard has ended and all of its records have been processed,
            before any record of the shards that continue it.
        on_shard_lost: is awaited when another worker has taken a shard because this one has not
            renewed its lease in time (``kinesis.lease.enabled``): that worker processes again what
            was not recorded yet. It is not for shards that are handed over.
        on_watermark: is awaited with each watermark: what happened before it has been processed, in
            all shards, but for the disorder (``kinesis.watermark.assigner``).
        on_stop: is awaited after a request to stop, when no more records come.
        events: takes diagnostic events, in addition to the sinks that the properties name.
        clock: the source of time; the default is this machine's clock.
        **options: the properties as keywords, which take precedence: see
            :class:`~kinesis_publishers.Options`.

    Raises:
        ConfigError: the properties cannot work; every problem is named.
        TypeError, ValueError: one of the functions cannot be called, or ``decode`` is no decoder.
    """
    hooks = given(
        on_ready=on_ready,
        on_shard_begin=on_shard_begin,
        on_shard_end=on_shard_end,
        on_shard_lost=on_shard_lost,
        on_watermark=on_watermark,
        on_stop=on_stop,
    )
    for name, hook in hooks.items():
        if not callable(hook):
            raise TypeError(f"{name} must be an async function, not {hook!r}")
    with ShortTraceback():
        properties = Properties.of(properties, options)
        check_decode_policy(on_error, properties, decode)
    feed = DeliveryFeed.from_properties(properties, hooks, events, clock)
    return RecordStream(feed, hooks, decode=decoder_of(decode), on_error=on_error)


class RecordStream(AsyncIterator[DecodedRecord[T]]):
    """The records that :func:`read` reads; opened by ``async with``, or by the first record.

    It is used once, by one task. Inside ``async with`` a call for the next record may be cancelled,
    by a timeout for example, and repeated.

    Leaving ``async with`` without an exception, by ``break`` for example, says that the current
    record has been processed; after an exception the next run reads it again. Without ``async
    with``, reading stops only at the end of the event loop if the loop is left early, and the
    current record is read again.
    """

    def __init__(
        self,
        feed: DeliveryFeed,
        hooks: Mapping[str, Callable[[Any], Awaitable[None]]],
        *,
        decode: Decoder | None = None,
        on_error: StopOnError | DeadLetter | None = None,
    ) -> None:
        self.feed = feed
        self.tracing = feed.tracing
        self.feed.notes.add(self._note)
        self._clock = feed.clock
        self._hooks = hooks
        self._decode = decode
        self._on_error = on_error or StopOnError()
        self._failed: tuple[Record, Exception] | None = None  # Until the policy was followed.
        self._resources, self._body = AsyncExitStack(), ExitStack()
        self._is_open = self._is_entered = self._is_over = self._is_asked = False
        self._is_interrupted = False
        self._task: asyncio.Task[object] | None = None
        self._handed: HandedOut | None = None
        self._records: Iterator[Any] = iter(())
        self._is_checked = False  # Whether one of them may go to the error policy.
        self._taken = self._processed = 0  # Of the records of the delivery.
        self._next_turn = 0.0
        self.checkpointing = AsyncCheckpointing(feed.deliveries, self._current)

    def _repr_html_(self) -> str:
        state = "ended" if self._is_over else "being read" if self._is_open else "not begun"
        return html_table(f"Records, {state}: iterate to read them", [])

    def pause(self) -> None:
        """Read nothing more, and let the next record wait; leases are kept."""
        self.feed.deliveries.pause(is_paused=True)
        self._next_turn = 0.0

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self.feed.deliveries.pause(is_paused=False)

    def stop(self) -> None:
        """End the iteration after the current record."""
        self.feed.stop()

    def part(self, feed: DeliveryFeed, kind: type[_Stream]) -> _Stream:
        """Return a stream of another feed that is read in the same way."""
        return kind(feed, self._hooks, decode=self._decode, on_error=self._on_error)

    def _current(self) -> tuple[HandedOut, int]:
        if self._handed is None or not self._taken:
            raise RuntimeError("There is no current record: call this in the body of the loop")
        return self._handed, self._taken

    def stage(self) -> None:
        """Record the current record as processed before the next one is asked for."""
        self.checkpointing.stage()

    async def checkpoint(self, transaction: Any = None, **request: Any) -> None:
        """Record the current record as processed: see :meth:`AsyncCheckpointing.checkpoint`."""
        await self.checkpointing.checkpoint(transaction, **request)

    async def __aenter__(self) -> Self:
        if self._is_entered or self._is_over:
            raise ClosedError(
                "This stream of records was used in an `async with` or a loop that has ended: call "
                "read() again for each use"
            )
        if not self._is_open:
            with ShortTraceback():
                await self._open()
        self._is_entered = True
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None and self._failed is None:
            self._processed = self._taken
        await self._close(error)

    def _stop_by(self, one: signal.Signals) -> None:
        self._is_interrupted = one is signal.SIGINT
        if self._is_interrupted and self._task is not None:
            CLOSING[self] = self._task, self._is_entered
        self.stop()

    async def _open(self) -> None:
        self._task = asyncio.current_task()
        async with AsyncExitStack() as stack:
            stack.callback(CLOSING.pop, self, None)
            stopped = stopped_by_signals(self._stop_by, is_open=lambda: self._is_open)
            stack.enter_context(stopped)
            await stack.enter_async_context(self.feed)
            self._resources = stack.pop_all()
        self._is_open = True

    async def _close(self, error: BaseException | None) -> None:
        if self._is_open and not self.feed.process.is_left:
            self._is_open, self._is_over = False, True
            kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
            self._body.__exit__(kind, error, traceback)
            try:
                if await self.checkpointing.settle(error):
                    self._processed = self._taken
                elif self.checkpointing.is_open:
                    self._processed = min(self._processed, self._taken - 1)
            finally:
                self._note()
                self.feed.notes.discard(self._note)
                await self._resources.__aexit__(kind, error, traceback)
        if error is None and self._is_interrupted:
            self._is_interrupted = False
            await interrupt()

    def take_at_once(self) -> DecodedRecord[T] | None:
        """Return the next record if that needs no wait: the previous one has been processed."""
        if self._is_open and self.feed.process.is_left:
            self.feed.process.check("this reader")
        if self._failed is not None or self.checkpointing.is_open or self.tracing is not None:
            return None
        self._processed = self._taken
        is_ending = self.feed.is_stopping or (self._handed is not None and self._handed.work.is_cut)
        if not is_ending and self._clock.monotonic() < self._next_turn:
            for record in self._records:
                self._taken += 1
                return self._decoded(record) if self._is_checked else record
        return None

    def _decoded(self, record: Any) -> DecodedRecord[T] | None:
        assert self._handed is not None
        try:
            check_event_times(record, self._handed.batch)
            return record if self._decode is None else decoded(record, self._decode)
        except Exception as error:  # noqa: BLE001 - the policy decides what follows
            self._failed = (record, error)
            return None

    async def _follow_policy(self) -> None:
        """Put aside the record that failed to decode, if any. It then counts as processed."""
        if self._failed is None:
            return
        record, error = self._failed
        step = next_step(self._on_error, error, 1, place_of(record), of="decode")
        assert isinstance(step, DeadLetter)
        await step.put_aside_in_thread(record, error)
        self._failed, self._processed = None, self._taken

    async def __anext__(self) -> DecodedRecord[T]:
        if (record := self.take_at_once()) is not None:
            return record
        if self._is_asked:
            raise RuntimeError(
                "Two tasks ask for the next record at once, which says that the previous one has "
                "been processed: let one task read, and hand records on from it"
            )
        self._is_asked = True
        self._body.close()
        try:
            with ShortTraceback():
                record = await self._next_in_turn()
        finally:
            self._is_asked = False
        assert self._handed is not None
        batch, watching = self._handed.batch, self.feed.slow_calls.watching
        call = "the body of the loop", batch.shard.key, batch, lambda: self._taken - 1
        self._body.enter_context(watching(*call))
        if self.tracing is not None:
            self._body.enter_context(self.tracing.processing_span(record, value_of(record)))
        return record

    async def _next_in_turn(self) -> DecodedRecord[T]:
        try:
            if not (self._is_open or self._is_over):
                await self._open()
            if self.checkpointing.is_open:
                await self._settle()
            await self._follow_policy()
            await self._take_turns()
            record = await self._next_record()
        except BaseException as error:
            # Inside `async with` the call may be repeated.
            if not (self._is_entered and isinstance(error, asyncio.CancelledError)):
                await self._close(error)
            raise
        if record is None:
            await self._close(None)
            raise StopAsyncIteration
        return record

    async def _settle(self) -> None:
        """Count the current record as its checkpoint says: one that was refused comes again."""
        is_committed = await self.checkpointing.settle(None)
        if self.checkpointing.take_refusal() and not is_committed and self._handed is not None:
            self._taken -= 1
            self._records = iter(self._handed.batch.slice(self._taken, len(self._handed.batch)))
        self._processed = self._taken

    async def _take_turns(self) -> None:
        """Yield to other tasks, which a loop that never waits would block.

        It comes before a record is taken: a record that is taken and, after a cancellation, not
        returned would count as processed with the next call.
        """
        self.feed.raise_if_store_failed()
        await self._clock.sleep(0)
        await self.feed.deliveries.wait_until_wanted()
        if self._handed is not None and not await self.feed.permission(self._handed):
            # The rest is for another worker.
            self._records = iter(())
        self._next_turn = self._clock.monotonic() + _TURN_SECONDS

    async def _next_record(self) -> DecodedRecord[T] | None:
        while not self._is_over:
            record = None if self.feed.is_stopping else next(self._records, None)
            if record is None:
                if not await self._take_delivery():
                    return None
                continue
            self._taken += 1
            value = self._decoded(record) if self._is_checked else record
            if value is not None:
                return value
            await self._follow_policy()
            await self._take_turns()
        return None

    async def _take_delivery(self) -> bool:
        """Wait for a delivery; return whether there is one."""
        self._note()
        if self._handed is not None and not self.feed.is_stopping:
            self.feed.deliveries.finish(self._handed)
            self._handed = None
        while isinstance(item := await self.feed.next(), HookCall):
            await self.call_hook(item)
        if item is None:
            return False
        self._handed, self._records = item, iter(item.batch)
        self._taken = self._processed = 0
        self._is_checked = self._decode is not None or bool(item.batch.failures)
        # It may have waited here for longer than it may be processed.
        if not await self.feed.permission(item):
            self._records = iter(())
        return True

    async def call_hook(self, call: HookCall) -> None:
        """Call what the program has for it, and record the end of a shard."""
        hook = self._hooks.get(call.hook)
        if hook is not None:
            try:
                await call_hook(call.hook, hook, self.feed.slow_calls, *call.arguments)
            except BaseException:
                # The next call after a cancellation calls the hook again first.
                self.feed.deliveries.put_back(call)
                raise
        self.feed.deliveries.record_end(call, was_told=hook is not None)

    def _note(self) -> None:
        if self._handed is not None:
            self.feed.deliveries.record(self._handed, self._processed)
