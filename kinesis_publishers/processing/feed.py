"""Runs a fetcher in the background and hands out its deliveries one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Self

from kinesis_publishers.abc import SharedReading
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import MetricsConfig, Properties, extension_options
from kinesis_publishers.engine.slow_calls import SlowCalls
from kinesis_publishers.event_loop import OwnProcess
from kinesis_publishers.events import EventSink
from kinesis_publishers.formats import open_tracing
from kinesis_publishers.processing.deliveries import READY, STOP, Deliveries, HookCall, Item
from kinesis_publishers.processing.handed_out import Cutting, HandedOut
from kinesis_publishers.readers.bounds import bounds_of
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from kinesis_publishers.formats.spans import Tracing

_LOGGER = logging.getLogger(__name__)

# The period in which progress is noted while deliveries are processed.
_NOTE_SECONDS = 0.2


class DeliveryFeed:
    """Opens, runs and closes a fetcher in its own task.

    If the event loop ends before the context is left, the cancellation of that task writes what was
    processed and closes everything.

    Attributes:
        process: the process that opened the feed; until then, the one that made it.
        notes: functions that record a delivery in progress; called periodically, because a single
            record may take any time.
        is_stopping: whether handing out has ended.
        followers: are set when handing out ends.
        slow_calls: set once the feed is open.
        tracing: makes spans; ``None`` unless the program traces.
    """

    slow_calls: SlowCalls

    def __init__(
        self,
        open_fetcher: Callable[[Deliveries], AbstractAsyncContextManager[KinesisDataFetcher]],
        clock: Clock,
        cutting: Cutting | None = None,
        hooks: Container[str] = (),
        tracing: Tracing | None = None,
    ) -> None:
        self._open_fetcher, self._hooks, self.tracing = open_fetcher, hooks, tracing
        self.clock = clock
        self._sharing: SharedReading | None = None
        self._changes = tuple(asyncio.Event() for _ in range(3))
        self._is_open, self._has_ended, self._has_news = self._changes
        self._failure: Exception | None = None
        self.deliveries = Deliveries(self._has_news.set, cutting, hooks)
        self._has_told_stop = False
        self._reading: asyncio.Task[None] | None = None
        self.process = OwnProcess()
        self.notes: set[Callable[[], None]] = set()
        self.is_stopping = False
        self.followers: set[asyncio.Event] = set()

    @classmethod
    def from_properties(
        cls,
        properties: Properties,
        hooks: Container[str],
        events: EventSink | None,
        clock: Clock | None,
        cutting: Cutting | None = None,
    ) -> Self:
        """Return a feed whose fetcher records nothing itself; ``hooks`` may ask for watermarks."""
        if idle := properties.given_keys(extension_options()):
            _LOGGER.warning("Only Spark reads %s: no effect here", ", ".join(idle))
        clock, (properties, _) = clock or SystemClock(), bounds_of(properties, clock)

        def open_fetcher(sink: Deliveries) -> AbstractAsyncContextManager[KinesisDataFetcher]:
            return KinesisDataFetcher.from_properties(
                properties,
                sink,
                on_watermark=sink.hand_out_watermark if "on_watermark" in hooks else None,
                records_deliveries=False,
                events=events,
                clock=clock,
            )

        tracing = open_tracing() if MetricsConfig.from_properties(properties).traces else None
        return cls(open_fetcher, clock, cutting, hooks, tracing)

    async def __aenter__(self) -> Self:
        self.process = OwnProcess()
        for event in self._changes:
            event.clear()
        self._reading = asyncio.create_task(self._hold_open(), name="read streams")
        try:
            await self._is_open.wait()
            self._raise_if_failed()
        except BaseException as error:
            await self._stop_reading(error)
            raise
        return self

    async def _hold_open(self) -> None:
        try:
            async with self._open_fetcher(self.deliveries) as fetcher:
                self.deliveries.checkpointer = fetcher.checkpointer
                self._sharing = fetcher.sharing
                self.slow_calls = fetcher.slow_calls
                self._is_open.set()
                try:
                    await self._read(fetcher)
                    # Deliveries in progress may be recorded although no more is read.
                    await asyncio.Event().wait()
                except asyncio.CancelledError as error:
                    self._note()
                    if fetcher.checkpointer is not None:
                        await fetcher.checkpointer.flush_despite(error)
                    for problem in getattr(error, "__notes__", ()):
                        _LOGGER.warning("While reading was stopped: %s", problem)
                    raise
        except Exception as failure:  # noqa: BLE001 - raised by the next call of next(), or at the end
            self._fail(failure)
        except asyncio.CancelledError:
            if self._reading is not None:
                self._fail(RuntimeError("the task 'read streams' was cancelled from outside"))
            raise
        finally:
            for event in self._changes:
                event.set()
            self._wake()

    async def _read(self, fetcher: KinesisDataFetcher) -> None:
        try:
            async with TaskScope() as scope:
                if self.deliveries.checkpointer is not None:
                    scope.spawn(self._note_periodically(), name="note progress")
                if READY in self._hooks:
                    # From then on, each shard has a place, and the first checkpoints are written.
                    await fetcher.prepare()
                    self.deliveries.call(READY, self.clock.now())
                await fetcher.run()
                scope.cancel()
        except Exception as failure:  # noqa: BLE001 - as in _hold_open
            self._fail(failure)
        self._has_ended.set()
        self._wake()

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        else:
            self._failure.add_note(f"also failed: {failure!r}")

    async def _note_periodically(self) -> None:
        while True:
            await self.clock.sleep(_NOTE_SECONDS)
            self._note()

    def _note(self) -> None:
        for note in tuple(self.notes):
            note()

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.stop()
        checkpointer = self.deliveries.checkpointer
        try:
            if checkpointer and error:
                await checkpointer.flush_despite(error)
            elif checkpointer:
                await checkpointer.flush_at_end()
        finally:
            await self._stop_reading(error)

    async def _stop_reading(self, error: BaseException | None) -> None:
        reading, self._reading = self._reading, None
        assert reading is not None, "the feed has not been entered"
        reading.cancel()
        await asyncio.wait([reading])
        if error is None:
            self._raise_if_failed()
        elif self._failure is not None:
            error.add_note(f"Reading has failed, too: {self._failure!r}")

    async def watch_store(self) -> None:
        """Raise as soon as no checkpoint can be written; return if reading ends for another reason.

        Another reader may already be processing what was handed out.
        """
        await self._has_ended.wait()
        self.raise_if_store_failed()

    def raise_if_over(self) -> bool:
        """Return whether handing out has ended; raise if that is because reading has failed."""
        if self._has_ended.is_set():
            self._raise_if_failed()
        return self.is_stopping or self._has_ended.is_set()

    def raise_if_store_failed(self) -> None:
        if (checkpointer := self.deliveries.checkpointer) and checkpointer.has_failed:
            self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def next(self) -> Item | None:
        """Return the next item, ``None`` at the end; raise if reading has failed.

        After :meth:`stop` it returns what must be finished, and then ``None``.
        """
        deliveries = self.deliveries
        while (
            not self.is_stopping
            or deliveries.waiting
            or any(one.has_parts_to_come for one in deliveries.shards.values())
        ):
            self._raise_if_failed()
            if not self.is_stopping:
                await deliveries.wait_until_wanted()
            if deliveries.waiting:
                item = deliveries.waiting.popleft()
                if self.tracing is not None and isinstance(item, HandedOut):
                    with self.tracing.processing_span(item.batch, operation="receive"):
                        return item
                return item
            if self._has_ended.is_set():
                break
            self._has_news.clear()
            await self._has_news.wait()
        if self.is_stopping and STOP in self._hooks and not self._has_told_stop:
            self._has_told_stop = True
            return HookCall(STOP, None, 0)
        return None

    def begin(self, handed: HandedOut, index: int) -> bool:
        """Return whether a record, and those before it, may be processed. Any thread may call."""
        self.process.check("this reader")
        return not self._is_held_up(handed) and handed.begin(index)

    def _is_held_up(self, handed: HandedOut) -> bool:
        if self.deliveries.is_paused and not self.is_stopping:
            return True
        return self._sharing is not None and not self._sharing.may_deliver(handed.key)

    async def permission(self, handed: HandedOut, index: int | None = None) -> bool:
        """Wait until processing may continue; return whether it may.

        ``index`` is that of a record; without it, any record of the delivery must be allowed.
        """

        def is_wanted() -> bool:
            return not handed.work.is_cut if index is None else handed.may_begin(index)

        self.process.check("this reader")
        while is_wanted() and self._is_held_up(handed) and not self.is_stopping:
            if self._has_ended.is_set():
                # Nothing else would end the wait.
                self._raise_if_failed()
            await self.clock.sleep(_NOTE_SECONDS)
        return is_wanted() and (self._sharing is None or self._sharing.may_deliver(handed.key))

    def stop(self) -> None:
        """Hand out nothing more but what must be finished; progress may still be recorded."""
        if not self.is_stopping:
            self.is_stopping = True
            self.deliveries.stop()
        self._wake()

    def _wake(self) -> None:
        for event in (self._has_news, *self.followers):
            event.set()
