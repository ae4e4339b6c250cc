"""Keeps the deliveries that are handed out, and records their progress."""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from itertools import count
from operator import attrgetter
from typing import Any, TypeAlias

from attrs import define, field

from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.model import (
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    resume_after,
)
from kinesis_publishers.processing.handed_out import Cutting, HandedOut
from kinesis_publishers.processing.shard_works import ShardWorks
from kinesis_publishers.progress.checkpointer import Checkpointer

_LOGGER = logging.getLogger(__name__)


@define
class HookCall:
    """A call of one of the user's hooks, in its place among the deliveries.

    Attributes:
        subject: the argument, as a shard that has ended, or a watermark; ``None`` for none.
        shard: the shard, if it is about one.
        order: its place among what was handed out.
        end: the end of that shard.
    """

    hook: str
    subject: Any
    order: int = field(eq=False)
    shard: ShardKey | None = None
    end: ShardStatus | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the hook is called with."""
        return () if self.subject is None else (self.subject,)


_ENDED, _LOST, _WATERMARK = "on_shard_end", "on_shard_lost", "on_watermark"
#: After these no records of their shard come.
ENDS = (_ENDED, _LOST)
BEGUN, READY, STOP, EMPTY = "on_shard_begin", "on_ready", "on_stop", "empty_batch"


def given(**hooks: Callable[..., Any] | None) -> dict[str, Callable[..., Any]]:
    """Return the hooks that are not ``None``, by name."""
    return {name: hook for name, hook in hooks.items() if hook is not None}


def progress_within(delivery: Delivery, records: int) -> ShardProgress:
    """Return the progress of a shard after the first ``records`` of a delivery.

    After the last record of an aggregate, the whole aggregate counts and is not read again.
    """
    batch = delivery.batch
    if records >= len(batch):
        return delivery.progress
    number, following = batch.sequence_numbers[records - 1 : records + 1]
    subs = batch.sub_sequence_numbers
    sub = subs[records - 1] if subs is not None and number == following else None
    return ShardProgress(
        position=resume_after(SequenceNumber(number, sub)),
        as_of=batch.slice(0, records).last_arrival,
    )


Item: TypeAlias = HandedOut | HookCall


class Deliveries(DeliverySink):
    """Queues what a fetcher delivers, in the order of arrival, and records what was processed.

    The progress of a shard is the last record before the first one that is not done. Only
    :meth:`record` and :meth:`record_end` write to the checkpointer.

    Attributes:
        shards: the deliveries of each shard that is being read.
        is_paused: whether nothing may begin for now. Any thread may ask.
    """

    takes_failures = True

    def __init__(
        self,
        note_news: Callable[[], object],
        cutting: Cutting | None = None,
        hooks: Container[str] = (),
    ) -> None:
        self._note_news = note_news
        cutting = cutting or Cutting()
        self.overlaps, self.gathering = cutting.overlaps, cutting.gathering
        self.waiting: deque[Item] = deque()
        self._order = count()
        self.shards = defaultdict[ShardKey, ShardWorks](lambda: ShardWorks(cutting, self._order))
        self._hooks = hooks
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()
        self.is_paused = self._is_stopping = False
        self.checkpointer: Checkpointer | None = None

    def _add(self, *items: Item) -> None:
        for item in items:
            if not (self._is_stopping and isinstance(item, HookCall)):
                # The parts that came first hold back the progress.
                insort(self.waiting, item, key=attrgetter("order"))
                self._note_news()

    def call(self, hook: str, subject: Any, shard: ShardKey | None = None) -> None:
        """Queue a call of a hook, if there is one of that name."""
        if hook in self._hooks:
            self._add(HookCall(hook, subject, next(self._order), shard))

    def _begun(self, shard: Shard) -> ShardWorks:
        works = self.shards[shard.key]
        if not works.has_begun:
            works.has_begun = True
            self.call(BEGUN, shard, shard.key)
        return works

    def pause(self, *, is_paused: bool) -> None:
        """Read and hand out nothing more, or resume."""
        self.is_paused = is_paused and not self._is_stopping
        if self.is_paused:
            self._is_wanted.clear()
        else:
            self._is_wanted.set()

    async def wait_until_wanted(self, shard: ShardKey | None = None) -> None:
        await self._is_wanted.wait()

    async def deliver(self, delivery: Delivery) -> None:
        works = self._begun(delivery.shard)
        work = works.add(delivery)
        if self._is_stopping:
            work.cut()
        self._add(*works.open())
        try:
            await work.has_ended.wait()
        finally:
            # What is done of it may still be recorded, in its order.
            work.is_left = True
            delivery.release()

    def stop(self) -> None:
        """Begin no record that may be left to the next run.

        Records before one that has been begun are finished, so that none is repeated.
        """
        self._is_stopping = True
        self.pause(is_paused=False)
        for works in self.shards.values():
            works.cut()
        self._drop(lambda _: True)
        self._note_news()

    def _drop(self, is_moot: Callable[[HookCall], bool]) -> None:
        """Drop the records that may not begin, and the calls that are moot."""
        for item in tuple(self.waiting):
            is_over = is_moot(item) if isinstance(item, HookCall) else not item.may_begin(0)
            if is_over:
                self.waiting.remove(item)
                if isinstance(item, HandedOut):
                    self.finish(item)

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        works = self.shards[shard]
        works.withdraw(is_lost=is_lost)
        self._drop(lambda one: is_lost and one.end is not None and one.shard == shard)
        self._end_finished(shard)
        if is_lost:
            self._add(HookCall(_LOST, shard, next(self._order), shard))

    async def hand_out_watermark(self, instant: datetime) -> None:
        """Queue a watermark. It replaces an earlier one that is still queued."""
        if (waiting := self._waiting_call(_WATERMARK)) is not None:
            # It may be reported now: everything before it has been processed.
            waiting.subject = instant
        else:
            self._add(HookCall(_WATERMARK, instant, next(self._order)))

    def _waiting_call(self, hook: str, shard: ShardKey | None = None) -> HookCall | None:
        calls = (one for one in self.waiting if isinstance(one, HookCall))
        return next((one for one in calls if (one.hook, one.shard) == (hook, shard)), None)

    def observe(self, status: ShardStatus) -> None:
        shard, works = status.shard, self._begun(status.shard)
        if EMPTY in self._hooks and not (works or self._waiting_call(EMPTY, shard.key)):
            at, behind = status.answered_at, status.millis_behind_latest
            if at is not None:
                empty = RecordBatch(shard=shard, requested_at=at, millis_behind_latest=behind)
                self.call(EMPTY, empty, shard.key)
        if status.progress.is_ended:
            works.has_begun = False
            self._add(HookCall(_ENDED, shard, next(self._order), shard.key, status))

    def put_back(self, call: HookCall) -> None:
        """Hand out a call once more: the hook failed, or was cancelled."""
        if not (call.hook == _WATERMARK and self._waiting_call(_WATERMARK)):  # A later one.
            self.waiting.appendleft(call)

    def record(self, handed: HandedOut, done: int, scattered: Sequence[int] = ()) -> None:
        """Record the first ``done`` records of what was handed out as processed.

        ``scattered`` ones behind them count once those before them are done.
        """
        work = handed.work
        if work.is_lost or (done <= handed.noted and not scattered):
            return
        recorded = work.done
        if handed.note(done, scattered):
            works = self.shards[handed.key]
            if work is works.first:
                self._record(works, work.done - recorded)
            self._add(*works.open())

    def _record(self, works: ShardWorks, records: int) -> None:
        works.is_held_back = False
        if self.checkpointer is not None and (work := works.first) is not None:
            progress = progress_within(work.delivery, work.done)
            self.checkpointer.record(work.key, progress, records=records)

    def finish(self, handed: HandedOut) -> None:
        """Allow what follows; this records nothing.

        The next delivery of the shard may come once all parts of this one are finished, unless some
        of its records are left to the next run.
        """
        works = self.shards[handed.key]
        self._add(*works.finish(handed))
        self._end_finished(handed.key)
        self._note_news()

    def _end_finished(self, shard: ShardKey) -> None:
        works = self.shards[shard]
        # In their order: what is behind the deliveries may count none before the one before it.
        while works.end_first():
            if (work := works.first) is not None and work.done and not work.is_lost:
                self._record(works, work.done)
        if works.is_idle:
            del self.shards[shard]

    def record_end(self, call: HookCall, *, was_told: bool) -> None:
        """Record the end of a shard, if the call reports one: it is not read again.

        If a hook ``was_told``, its call covers the records that were held back. Otherwise these are
        read again, and so is the end.
        """
        if call.end is None:
            return
        key = call.end.shard.key
        is_held_back = self.shards[key].is_held_back
        self.shards[key].is_held_back = False
        self._end_finished(key)
        if is_held_back and not was_told:
            _LOGGER.warning(
                "%s has ended, and its last records skipped their checkpoint: the next run reads "
                "them again. Handle them in on_shard_end.",
                key,
            )
        elif self.checkpointer is not None:
            self.checkpointer.record(key, call.end.progress)
