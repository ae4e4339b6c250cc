"""Keeps the deliveries that one task hands out, and their recorded progress."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.model import SequenceNumber, ShardKey, ShardProgress, resume_after
from kinesis_publishers.progress.checkpointer import Checkpointer

_LOGGER = logging.getLogger(__name__)


@define(eq=False)
class HandedOut:
    """A delivery in progress.

    Attributes:
        delivery: the records, at least one.
        recorded: the number of records that were recorded as processed.
        is_done: set when the whole delivery is finished.
        is_cut: whether another worker reads the records after the current one.
        is_lost: whether that worker has begun. Progress here is no longer recorded.
    """

    delivery: Delivery
    recorded: int = field(default=0, init=False)
    is_done: asyncio.Event = field(factory=asyncio.Event, init=False)
    is_cut: bool = field(default=False, init=False)
    is_lost: bool = field(default=False, init=False)


@frozen
class Withdrawn:
    """Reports a shard that another worker took from this one."""

    shard: ShardKey


@define
class Watermark:
    """Reports an instant before which everything has been processed."""

    instant: datetime


def _progress_within(delivery: Delivery, count: int) -> ShardProgress:
    """Return the progress of a shard after ``count`` records of a delivery.

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


class Deliveries(DeliverySink):
    """Queues what a fetcher delivers, in the order of arrival, and records what was processed.

    A shard has one delivery at a time: the fetcher keeps what it reads ahead. Only :meth:`record`
    and :meth:`record_end` write to the checkpointer.

    Args:
        note_news: is called when an item was added.

    Attributes:
        waiting: the items to hand out.
        checkpointer: takes what was processed; ``None`` without a checkpoint store.
    """

    takes_failures = True

    def __init__(self, note_news: Callable[[], object]) -> None:
        self._note_news = note_news
        self.waiting: deque[Item] = deque()
        # The delivery of each shard that is queued or being processed.
        self._in_progress: dict[ShardKey, HandedOut] = {}
        # The shards whose last records were processed and must not be recorded yet.
        self._held_back: set[ShardKey] = set()
        self.checkpointer: Checkpointer | None = None

    def _add(self, item: Item) -> None:
        self.waiting.append(item)
        self._note_news()

    async def deliver(self, delivery: Delivery) -> None:
        handed = HandedOut(delivery)
        key = delivery.shard.key
        self._in_progress[key] = handed
        self._add(handed)
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
            if handed in self.waiting:
                self.waiting.remove(handed)
                handed.is_done.set()
        if is_lost:
            for one in tuple(self.waiting):
                if isinstance(one, ShardStatus) and one.shard.key == shard:
                    self.waiting.remove(one)
            self._add(Withdrawn(shard))

    async def hand_out_watermark(self, instant: datetime) -> None:
        """Queue a watermark. It replaces an earlier one that is still queued."""
        if (waiting := self._waiting_watermark()) is not None:
            # It may be reported now: everything before it has been processed.
            waiting.instant = instant
        else:
            self._add(Watermark(instant))

    def _waiting_watermark(self) -> Watermark | None:
        return next((one for one in self.waiting if isinstance(one, Watermark)), None)

    def observe(self, status: ShardStatus) -> None:
        if status.progress.is_ended:
            self._add(status)

    def put_back(self, item: Item) -> None:
        """Hand out ``item`` once more: it was not handled."""
        if not (isinstance(item, Watermark) and self._waiting_watermark()):  # A later one.
            self.waiting.appendleft(item)

    def is_held_back(self, handed: HandedOut) -> bool:
        """Return whether earlier records of the shard were processed but not recorded yet."""
        return handed.delivery.shard.key in self._held_back

    def record(self, handed: HandedOut, count: int) -> None:
        """Record the first ``count`` records of a delivery as processed."""
        if count <= handed.recorded or handed.is_lost:
            return
        key = handed.delivery.shard.key
        self._held_back.discard(key)
        if self.checkpointer is not None:
            progress = _progress_within(handed.delivery, count)
            self.checkpointer.record(key, progress, records=count - handed.recorded)
        handed.recorded = count

    def finish(self, handed: HandedOut) -> None:
        """Allow the next delivery of the shard; this records nothing."""
        if handed.recorded < len(handed.delivery.batch) and not handed.is_cut:
            self._held_back.add(handed.delivery.shard.key)
        handed.is_done.set()

    def record_end(self, end: ShardStatus, *, was_told: bool) -> None:
        """Record the end of a shard, which has been processed: it is not read again.

        Args:
            was_told: whether a hook was called. It then covers the records that were held back.
                Otherwise these are read again, and so is the end.
        """
        key = end.shard.key
        if key in self._held_back and not was_told:
            _LOGGER.warning(
                "%s has ended, and its last records skipped their checkpoint: the next run reads "
                "them again. Handle them in on_shard_end.",
                key,
            )
        elif self.checkpointer is not None:
            self.checkpointer.record(key, end.progress)
