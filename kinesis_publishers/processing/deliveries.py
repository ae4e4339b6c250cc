"""Keeps the deliveries that one task hands out, and their recorded progress."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from attrs import define, field

from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.model import SequenceNumber, ShardKey, ShardProgress, resume_after
from kinesis_publishers.progress.checkpointer import Checkpointer

_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")


@define(eq=False)
class HandedOut:
    """A delivery in progress, of at least one record.

    Attributes:
        recorded: the number of records that were recorded as processed.
        is_cut: whether another worker reads the records after the current one.
        is_lost: whether that worker has begun. Progress here is no longer recorded.
    """

    delivery: Delivery
    recorded: int = field(default=0, init=False)
    is_done: asyncio.Event = field(factory=asyncio.Event, init=False)
    is_cut: bool = field(default=False, init=False)
    is_lost: bool = field(default=False, init=False)


@define
class HookCall:
    """A call of one of the user's hooks, in its place among the deliveries.

    Attributes:
        subject: the argument: a shard that has ended, one that was lost, or a watermark.
        shard: the shard, if it is about one.
        end: the end of that shard.
    """

    hook: str
    subject: Any
    shard: ShardKey | None = None
    end: ShardStatus | None = None


_ENDED, _LOST, _WATERMARK = "on_shard_end", "on_shard_lost", "on_watermark"


def hooks_by_name(
    on_shard_end: Callable[..., _T] | None,
    on_shard_lost: Callable[..., _T] | None,
    on_watermark: Callable[..., _T] | None,
) -> dict[str, Callable[..., _T]]:
    """Return the hooks that are not ``None``."""
    hooks = {_ENDED: on_shard_end, _LOST: on_shard_lost, _WATERMARK: on_watermark}
    return {name: hook for name, hook in hooks.items() if hook is not None}


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


Item: TypeAlias = HandedOut | HookCall


class Deliveries(DeliverySink):
    """Queues what a fetcher delivers, in the order of arrival, and records what was processed.

    A shard has one delivery at a time: the fetcher keeps what it reads ahead. Only :meth:`record`
    and :meth:`record_end` write to the checkpointer.
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
                if isinstance(one, HookCall) and one.end and one.shard == shard:
                    self.waiting.remove(one)
            self._add(HookCall(_LOST, shard, shard))

    async def hand_out_watermark(self, instant: datetime) -> None:
        """Queue a watermark. It replaces an earlier one that is still queued."""
        if (waiting := self._waiting_watermark()) is not None:
            # It may be reported now: everything before it has been processed.
            waiting.subject = instant
        else:
            self._add(HookCall(_WATERMARK, instant))

    def _waiting_watermark(self) -> HookCall | None:
        calls = (one for one in self.waiting if isinstance(one, HookCall))
        return next((one for one in calls if one.hook == _WATERMARK), None)

    def observe(self, status: ShardStatus) -> None:
        if status.progress.is_ended:
            self._add(HookCall(_ENDED, status.shard, status.shard.key, status))

    def put_back(self, call: HookCall) -> None:
        """Hand out a call once more: the hook failed, or was cancelled."""
        if not (call.hook == _WATERMARK and self._waiting_watermark()):  # A later one.
            self.waiting.appendleft(call)

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

    def record_end(self, call: HookCall, *, was_told: bool) -> None:
        """Record the end of a shard, if the call reports one: it is not read again.

        If a hook ``was_told``, its call covers the records that were held back. Otherwise these are
        read again, and so is the end.
        """
        if call.end is None:
            return
        key = call.end.shard.key
        if key in self._held_back and not was_told:
            _LOGGER.warning(
                "%s has ended, and its last records skipped their checkpoint: the next run reads "
                "them again. Handle them in on_shard_end.",
                key,
            )
        elif self.checkpointer is not None:
            self.checkpointer.record(key, call.end.progress)
