"""Hands out the deliveries of a fetcher one after the other, to be processed record by record."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Self, TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties, extension_options
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.engine.sharing import SharedReading
from kinesis_publishers.engine.slow_calls import SlowCalls
from kinesis_publishers.event_loop import OwnProcess
from kinesis_publishers.events import EventSink
from kinesis_publishers.model import SequenceNumber, ShardKey, ShardProgress, resume_after
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.tasks import TaskScope

_LOGGER = logging.getLogger(__name__)

# How often progress is noted while deliveries are processed.
_NOTE_SECONDS = 0.2


@define(eq=False)
class HandedOut:
    """A delivery in progress.

    Attributes:
        delivery: the records, at least one.
        recorded: how many of them have been recorded as processed.
        is_done: is set when all of them are finished.
        is_cut: whether what follows the current record is for another worker.
        is_lost: whether that worker has begun already: what is processed here is not recorded.
    """

    delivery: Delivery
    recorded: int = field(default=0, init=False)
    is_done: asyncio.Event = field(factory=asyncio.Event, init=False)
    is_cut: bool = field(default=False, init=False)
    is_lost: bool = field(default=False, init=False)


@frozen
class Withdrawn:
    """A shard that another worker has taken from this one, to be told of."""

    shard: ShardKey


@define
class Watermark:
    """An instant before which all has been processed, to be told of."""

    instant: datetime


def _progress_within(delivery: Delivery, count: int) -> ShardProgress:
    """Return how far a shard has been processed with ``count`` records of a delivery.

    After the last record of an aggregate, the whole aggregate counts and is not read again.
    """
    batch = delivery.batch
    if count >= len(batch):
        return delivery.progress
    number, following = batch.sequence_numbers[count - 1 : count + 1]
    subs = batch.sub_sequence_numbers
    sub = subs[count - 1] if subs is not None and number == following else None
    return ShardProgress(
        position=resume_after(SequenceNumber(number, sub)), as_of=batch.slice(0, count).last_arrival
    )


Item: TypeAlias = HandedOut | ShardStatus | Withdrawn | Watermark


class DeliveryFeed(DeliverySink):
    """Runs a fetcher in the background and hands out what it delivers, in the order of arrival.

    A shard has one delivery at a time; what is read ahead meanwhile stays with the fetcher. Only
    what :meth:`record` reports counts as processed and is written to the checkpoint store.

    One task opens, reads and closes: if the event loop ends before the context is left, the
    cancellation of that task writes what was processed and closes everything.

    Attributes:
        process: where it was opened, or made until then.
        notes: each calls :meth:`record` for a delivery in progress; they are called periodically,
            because a single record may take any time.
        is_stopping: whether no more is handed out.
        slow_calls: what calls for deliveries are reported to; there once the feed is open.
    """

    slow_calls: SlowCalls
    takes_failures = True

    def __init__(
        self,
        open_fetcher: Callable[[DeliverySink], AbstractAsyncContextManager[KinesisDataFetcher]],
        clock: Clock,
    ) -> None:
        self._open_fetcher = open_fetcher
        self._clock = clock
        self._waiting: deque[Item] = deque()
        # What is being processed or waits, by shard: one delivery of each.
        self._in_progress: dict[ShardKey, HandedOut] = {}
        self._sharing: SharedReading | None = None
        self._changes = tuple(asyncio.Event() for _ in range(3))
        self._is_open, self._has_ended, self._has_news = self._changes
        self._failure: Exception | None = None
        self._checkpointer: Checkpointer | None = None
        # Shards whose last records have been processed and must not be recorded yet.
        self._held_back: set[ShardKey] = set()
        self._reading: asyncio.Task[None] | None = None
        self.process = OwnProcess()
        self.notes: set[Callable[[], None]] = set()
        self.is_stopping = False

    @classmethod
    def from_properties(
        cls,
        properties: Properties,
        *,
        events: EventSink | None,
        clock: Clock,
        has_watermarks: bool = False,
    ) -> Self:
        """Return a feed whose fetcher records nothing by itself.

        ``has_watermarks`` lets it hand out watermarks, too.

        Raises:
            ConfigError: the properties cannot work; every problem is named.
        """
        if idle := properties.given_keys(extension_options()):
            _LOGGER.warning("Only Spark reads %s: no effect here", ", ".join(idle))
        open_fetcher = partial(
            KinesisDataFetcher.from_properties,
            properties.without_end(),
            records_deliveries=False,
            events=events,
            clock=clock,
        )
        feed = cls(open_fetcher, clock)
        if has_watermarks:
            feed._open_fetcher = partial(open_fetcher, on_watermark=feed.hand_out_watermark)
        return feed

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
            async with self._open_fetcher(self) as fetcher:
                self._checkpointer, self._sharing = fetcher.checkpointer, fetcher.sharing
                self.slow_calls = fetcher.slow_calls
                self._is_open.set()
                try:
                    await self._read(fetcher)
                    # Deliveries in progress may be recorded although no more is read.
                    await asyncio.Event().wait()
                except asyncio.CancelledError as error:
                    self._note()
                    await self._write_rest(error)
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

    async def _read(self, fetcher: KinesisDataFetcher) -> None:
        try:
            async with TaskScope() as scope:
                if self._checkpointer is not None:
                    scope.spawn(self._note_periodically(), name="note progress")
                await fetcher.run()
                scope.cancel()
        except Exception as failure:  # noqa: BLE001 - as in _hold_open
            self._fail(failure)
        self._has_ended.set()
        self._has_news.set()

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        else:
            self._failure.add_note(f"also failed: {failure!r}")

    async def _note_periodically(self) -> None:
        while True:
            await self._clock.sleep(_NOTE_SECONDS)
            self._note()

    def _note(self) -> None:
        for note in tuple(self.notes):
            note()

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.stop()
        try:
            await self._write_rest(error)
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

    async def _write_rest(self, error: BaseException | None) -> None:
        if self._checkpointer is None:
            return
        if error is None:
            await self._checkpointer.flush()
        else:
            await self._checkpointer.flush_despite(error)

    async def watch_store(self) -> None:
        """Raise as soon as a checkpoint can no longer be written; return if reading ends otherwise.

        Another reader may already process what has been handed out.

        Raises:
            KinesisPublishersError: another reader has written a checkpoint, or the store has
                failed.
        """
        await self._has_ended.wait()
        self.raise_if_store_failed()

    def raise_if_store_failed(self) -> None:
        """Raise as :meth:`watch_store` does if a checkpoint can no longer be written."""
        if self._checkpointer is not None and self._checkpointer.has_failed:
            self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def is_held_back(self, handed: HandedOut) -> bool:
        """Say whether earlier records of the shard have been processed but not recorded yet."""
        return handed.delivery.shard.key in self._held_back

    async def next(self) -> Item | None:
        """Return what comes next, ``None`` after :meth:`stop`.

        Raises:
            KinesisPublishersError: reading has failed.
        """
        while not self.is_stopping:
            self._raise_if_failed()
            if self._waiting:
                return self._waiting.popleft()
            self._has_news.clear()
            await self._has_news.wait()
        return None

    def may_continue(self, handed: HandedOut) -> bool:
        """Say whether the next record of a delivery may be processed at this moment.

        Raises:
            ClosedError: this process was forked off.
        """
        self.process.check("this reader")
        key = handed.delivery.shard.key
        return not handed.is_cut and (self._sharing is None or self._sharing.may_deliver(key))

    async def permission(self, handed: HandedOut) -> bool:
        """Wait until a delivery may be processed further; say whether it may at all.

        Raises:
            KinesisPublishersError: reading has failed, and nothing would end the wait.
        """
        while not (handed.is_cut or self.is_stopping or self.may_continue(handed)):
            if self._has_ended.is_set():
                self._raise_if_failed()
            await self._clock.sleep(_NOTE_SECONDS)
        return not handed.is_cut

    def put_back(self, item: Item) -> None:
        """Let :meth:`next` return ``item`` once more: it has not been handled."""
        if not (isinstance(item, Watermark) and self._waiting_watermark()):  # A later one.
            self._waiting.appendleft(item)

    def stop(self) -> None:
        """Hand out no more; what has been handed out may still be recorded."""
        self.is_stopping = True
        self._has_news.set()

    def record(self, handed: HandedOut, count: int) -> None:
        """Note that the first ``count`` records of a delivery have been processed."""
        if count <= handed.recorded or handed.is_lost:
            return
        key = handed.delivery.shard.key
        self._held_back.discard(key)
        if self._checkpointer is not None:
            progress = _progress_within(handed.delivery, count)
            self._checkpointer.record(key, progress, records=count - handed.recorded)
        handed.recorded = count

    def finish(self, handed: HandedOut) -> None:
        """Let the next delivery of the shard come; this records nothing."""
        if handed.recorded < len(handed.delivery.batch) and not handed.is_cut:
            self._held_back.add(handed.delivery.shard.key)
        handed.is_done.set()

    def record_end(self, end: ShardStatus, *, was_told: bool) -> None:
        """Note that a shard has been processed to its end: it is not read again.

        Args:
            was_told: whether a hook was called for it, which then covers the records that were held
                back. Otherwise these come again, and the end with them.
        """
        key = end.shard.key
        if key in self._held_back and not was_told:
            _LOGGER.warning(
                "%s has ended, and its last records skipped their checkpoint: the next run reads "
                "them again. Handle them in on_shard_end.",
                key,
            )
        elif self._checkpointer is not None:
            self._checkpointer.record(key, end.progress)

    async def deliver(self, delivery: Delivery) -> None:
        handed = HandedOut(delivery)
        key = delivery.shard.key
        self._in_progress[key] = handed
        self._waiting.append(handed)
        self._has_news.set()
        try:
            await handed.is_done.wait()
        finally:
            if self._in_progress.get(key) is handed:
                del self._in_progress[key]
            delivery.release()

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        self._held_back.discard(shard)
        handed = self._in_progress.get(shard)
        if handed is not None:
            handed.is_cut, handed.is_lost = True, is_lost
            if handed in self._waiting:
                self._waiting.remove(handed)
                handed.is_done.set()
        if is_lost:
            for one in tuple(self._waiting):
                if isinstance(one, ShardStatus) and one.shard.key == shard:
                    self._waiting.remove(one)
            self._waiting.append(Withdrawn(shard))
            self._has_news.set()

    async def hand_out_watermark(self, instant: datetime) -> None:
        """Let :meth:`next` return a watermark once, in place of an earlier one that waits."""
        if (waiting := self._waiting_watermark()) is not None:
            # It may be told of now: all before it has been processed.
            waiting.instant = instant
        else:
            self._waiting.append(Watermark(instant))
            self._has_news.set()

    def _waiting_watermark(self) -> Watermark | None:
        return next((one for one in self._waiting if isinstance(one, Watermark)), None)

    def observe(self, status: ShardStatus) -> None:
        if status.progress.is_ended:
            self._waiting.append(status)
            self._has_news.set()
