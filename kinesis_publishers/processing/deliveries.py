"""Keeps the deliveries that are handed out, and records their progress."""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import deque
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
from kinesis_publishers.processing.handed_out import Cutting, HandedOut, Work
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
    """

    takes_failures = True

    def __init__(
        self,
        note_news: Callable[[], object],
        cutting: Cutting | None = None,
        hooks: Container[str] = (),
    ) -> None:
        self._note_news = note_news
        self._cutting = cutting or Cutting()
        self.overlaps, self.gathering = self._cutting.overlaps, self._cutting.gathering
        self.waiting: deque[Item] = deque()
        # The deliveries of each shard that are queued or being processed, in their order.
        self._works: dict[ShardKey, deque[Work]] = {}
        # By lane: the part that is queued or being processed, and what follows it.
        self._lanes: dict[tuple[ShardKey, int | None], deque[HandedOut]] = {}
        # The shards whose last records were processed and must not be recorded yet.
        self._held_back: set[ShardKey] = set()
        self._order = count()
        self._hooks = hooks
        self._begun: set[ShardKey] = set()
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()
        self._is_stopping = False
        self.checkpointer: Checkpointer | None = None

    def _add(self, item: Item) -> None:
        if not (self._is_stopping and isinstance(item, HookCall)):
            # The parts that came first hold back the progress.
            insort(self.waiting, item, key=attrgetter("order"))
            self._note_news()

    def call(self, hook: str, subject: Any, shard: ShardKey | None = None) -> None:
        """Queue a call of a hook, if there is one of that name."""
        if hook in self._hooks:
            self._add(HookCall(hook, subject, next(self._order), shard))

    def _note_begin(self, shard: Shard) -> None:
        if shard.key not in self._begun:
            self._begun.add(shard.key)
            self.call(BEGUN, shard, shard.key)

    def pause(self, *, is_paused: bool) -> None:
        """Read and hand out nothing more, or resume."""
        if is_paused and not self._is_stopping:
            self._is_wanted.clear()
        else:
            self._is_wanted.set()

    @property
    def is_paused(self) -> bool:
        """Whether nothing may begin for now. Any thread may ask."""
        return not self._is_wanted.is_set()

    async def wait_until_wanted(self, shard: ShardKey | None = None) -> None:
        await self._is_wanted.wait()

    async def deliver(self, delivery: Delivery) -> None:
        self._note_begin(delivery.shard)
        cutting = self._cutting
        work = Work(delivery, not cutting.overlaps, cutting.per_batch)
        if self._is_stopping:
            work.cut()
        before = self._works.get(work.key, ())
        self._works[work.key] = deque([*(one for one in before if not one.is_left), work])
        self._open(work.key)
        try:
            await work.has_ended.wait()
        finally:
            # What is done of it may still be recorded, in its order.
            work.is_left = True
            delivery.release()

    def _open(self, key: ShardKey) -> None:
        """Hand out what may be in flight of a shard."""
        works, cutting = self._works.get(key, ()), self._cutting
        in_flight = sum(work.opened - work.done for work in works)
        for work in works:
            batch = work.delivery.batch
            while work.opened < work.limit:
                start, at_once = work.opened, cutting.records_at_once
                stop = len(batch) if at_once is None else min(start + at_once, len(batch))
                is_much = in_flight + stop - start > cutting.max_in_flight
                if at_once is not None and in_flight and is_much:
                    return
                work.opened, in_flight = stop, in_flight + stop - start
                self._hand_out(work, start, stop)

    def _hand_out(self, work: Work, start: int, stop: int) -> None:
        batch = work.delivery.batch
        if self._cutting.is_whole:
            parts = [HandedOut(work, batch, next(self._order))]
        else:
            cut, order = self._cutting.cut(batch, start, stop), next(self._order)
            parts = [
                HandedOut(work, batch.take(places), order, lane, places) for lane, places in cut
            ]
        work.parts += parts
        for part in parts:
            if part.lane is None:
                self._add(part)
                continue
            lane = self._lanes.setdefault((part.key, part.lane), deque())
            lane.append(part)
            if len(lane) == 1:
                self._add(part)

    def stop(self) -> None:
        """Begin no record that may be left to the next run.

        Records before one that has been begun are finished, so that none is repeated.
        """
        self._is_stopping = True
        self._is_wanted.set()
        for item in [one for one in self.waiting if isinstance(one, HookCall)]:
            self.waiting.remove(item)
        for works in self._works.values():
            self._cut(works)
        self._note_news()

    def _cut(self, works: Sequence[Work]) -> None:
        """Leave the records of a shard behind the last one that was begun."""
        for work in reversed(works):
            work.cut()
            if work.limit:
                break
        self._drop_parts(works)

    def _drop_parts(self, works: Sequence[Work]) -> None:
        for lane in self._lanes.values():
            for part in [*lane][1:]:
                if part.work in works and not part.may_begin(0):
                    lane.remove(part)
                    part.work.parts.remove(part)
        for item in [one for one in self.waiting if isinstance(one, HandedOut)]:
            if item.work in works and not item.may_begin(0):
                self.waiting.remove(item)
                self.finish(item)

    @property
    def has_parts_to_come(self) -> bool:
        """Whether parts wait for those before them in their lanes."""
        return any(part.may_begin(0) for lane in self._lanes.values() for part in [*lane][1:])

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        self._held_back.discard(shard)
        self._begun.discard(shard)
        works = list(self._works.get(shard, ()))
        for work in works:
            work.is_withdrawn, work.is_lost = True, is_lost
        if is_lost:
            for work in works:
                work.limit = 0
            self._drop_parts(works)
        else:
            self._cut(works)
        for work in works:
            self._end_if_finished(work)
        if is_lost:
            for one in tuple(self.waiting):
                if isinstance(one, HookCall) and one.end and one.shard == shard:
                    self.waiting.remove(one)
            self._add(HookCall(_LOST, shard, next(self._order), shard))

    async def hand_out_watermark(self, instant: datetime) -> None:
        """Queue a watermark. It replaces an earlier one that is still queued."""
        if (waiting := self._waiting_watermark()) is not None:
            # It may be reported now: everything before it has been processed.
            waiting.subject = instant
        else:
            self._add(HookCall(_WATERMARK, instant, next(self._order)))

    def _waiting_watermark(self) -> HookCall | None:
        calls = (one for one in self.waiting if isinstance(one, HookCall))
        return next((one for one in calls if one.hook == _WATERMARK), None)

    def observe(self, status: ShardStatus) -> None:
        self._note_begin(status.shard)
        key = status.shard.key
        if EMPTY in self._hooks:
            self._hand_out_empty(status)
        if status.progress.is_ended:
            self._begun.discard(key)
            self._add(HookCall(_ENDED, status.shard, next(self._order), status.shard.key, status))

    def _hand_out_empty(self, status: ShardStatus) -> None:
        key, at, behind = status.shard.key, status.answered_at, status.millis_behind_latest
        calls = (one for one in self.waiting if isinstance(one, HookCall))
        is_waiting = any(one.hook == EMPTY and one.shard == key for one in calls)
        if at is not None and not is_waiting and not self._works.get(key):
            empty = RecordBatch(shard=status.shard, requested_at=at, millis_behind_latest=behind)
            self.call(EMPTY, empty, key)

    def put_back(self, call: HookCall) -> None:
        """Hand out a call once more: the hook failed, or was cancelled."""
        if not (call.hook == _WATERMARK and self._waiting_watermark()):  # A later one.
            self.waiting.appendleft(call)

    def is_held_back(self, handed: HandedOut) -> bool:
        """Return whether earlier records of the shard were processed but not recorded yet."""
        return handed.key in self._held_back

    def record(self, handed: HandedOut, done: int, scattered: Sequence[int] = ()) -> None:
        """Record the first ``done`` records of what was handed out as processed.

        ``scattered`` ones behind them count once those before them are done.
        """
        if handed.work.is_lost or (done <= handed.noted and not scattered):
            return
        recorded = handed.work.done
        if handed.note(done, scattered):
            works = self._works.get(handed.key)
            if works and works[0] is handed.work:
                self._record(handed.work, handed.work.done - recorded)
            self._open(handed.key)

    def leave(self, handed: HandedOut, taken: int) -> None:
        """Leave all but the first ``taken`` records of what was handed out to the next run."""
        handed.work.limit = min(handed.work.limit, handed.place_of(taken))

    def _record(self, work: Work, records: int) -> None:
        self._held_back.discard(work.key)
        if self.checkpointer is not None:
            progress = progress_within(work.delivery, work.done)
            self.checkpointer.record(work.key, progress, records=records)

    def finish(self, handed: HandedOut) -> None:
        """Allow what follows; this records nothing.

        The next delivery of the shard may come once all parts of this one are finished, unless some
        of its records are left to the next run.
        """
        work, lane = handed.work, self._lanes.get((handed.key, handed.lane))
        if handed.noted < len(handed.batch) and not work.is_cut:
            self._held_back.add(work.key)
        if lane is not None and lane and lane[0] is handed:
            lane.popleft()
            if lane:
                self._add(lane[0])
            else:
                del self._lanes[handed.key, handed.lane]
        work.parts.remove(handed)
        self._end_if_finished(work)
        self._note_news()

    def _end_if_finished(self, work: Work) -> None:
        works = self._works.get(work.key, ())
        # In their order: what is behind the deliveries may count none before the one before it.
        while works and not works[0].parts and works[0].opened >= works[0].limit:
            first = works[0]
            if first.is_cut and not first.is_withdrawn:
                return
            works.popleft()
            first.has_ended.set()
            for later in works if first.is_cut else ():
                # Another worker begins before them.
                later.is_lost, later.limit = True, 0
            if works and works[0].done and not works[0].is_lost:
                self._record(works[0], works[0].done)

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
