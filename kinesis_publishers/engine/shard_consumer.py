"""Reads one whole shard: keeps its position, and hands its records on."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime

from attrs import evolve

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.engine.alignment import latest_known
from kinesis_publishers.engine.consumer_context import ConsumerContext, user_records
from kinesis_publishers.engine.delivery import Delivery, Gathering, ShardStatus
from kinesis_publishers.engine.shard_loop import ShardLoop
from kinesis_publishers.errors import AggregationError, PositionTrimmedError
from kinesis_publishers.events import ShardEnded, ShardStarted, ShardStopped
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
    resume_after,
)
from kinesis_publishers.tasks import TaskScope, wait_for_event

# The factor by which a delivery of aggregates is expected to exceed the one before.
_GROWTH = 2
# Deliveries in progress at once, with a sink that takes several.
_OVERLAPPING = 2
# The limits of reading ahead during a delivery: one full page, or several small ones.
_ENOUGH_RECORDS = 1000
_ENOUGH_BYTES = 1024 * 1024


class ShardConsumer(RecordBatchConsumer):
    """Reads one shard from a position to its end, or that of the context.

    During a delivery, a publisher that supports it reads ahead. The records wait in the pool and
    become the next delivery; at ``enough_records`` of them reading ahead pauses. The progress is
    that of finished deliveries.

    Attributes:
        is_at_end: whether everything before the end of the context has been delivered.
    """

    def __init__(
        self,
        shard: Shard,
        progress: ShardProgress,
        context: ConsumerContext,
        enough_records: int | None = None,
    ) -> None:
        self.shard, self.context = shard, context
        self._loop = ShardLoop(shard, progress, context, consumer=self, owner=self)
        # How many records wait while others are delivered, or until others come.
        self._enough = context.sink.gathering or Gathering(
            max_wait_seconds=0.0,
            max_records=enough_records or _ENOUGH_RECORDS,
            max_bytes=_ENOUGH_BYTES,
        )
        self._status = ShardStatus(shard=shard, progress=progress)
        self._read_until: datetime | None = None
        # The records of the last delivery, and their number per stored record.
        self._delivered = 0
        self._expansion = 1.0
        # The task that reads, the tasks that deliver meanwhile, and what waits for them.
        self._scope = TaskScope()
        self._reading: asyncio.Task[None] | None = None
        self._delivering: tuple[asyncio.Task[None], ...] = ()
        self._waiting: tuple[Delivery | None, ShardStatus] | None = None
        self._has_delivered = asyncio.Event()
        # Whether records wait for further ones, as the sink wants, and need to wait no longer.
        self._gathers, self._is_gathered = context.sink.gathering is not None, asyncio.Event()
        self._has_ended = self._is_past_end = self.is_at_end = False
        # Is set when what was handed on last is done: the status follows the order of reading.
        self._handed_on: asyncio.Event | None = None

    @property
    def status(self) -> ShardStatus:
        if not self._loop.room.is_delivering:
            return self._status
        # Everything that arrived before the delivery has been processed.
        read_until = latest_known(self._status.read_until, self._loop.room.oldest)
        return evolve(self._status, is_delivering=True, read_until=read_until)

    @property
    def progress(self) -> ShardProgress:
        return self._status.progress

    def stop(self) -> None:
        """Make :meth:`run` return after the delivery in progress, or after the next one.

        No delivery is interrupted. Unless the status says that one is in progress, cancel the task:
        the next answer may be empty. Records that were read ahead are dropped.
        """
        self._loop.is_done, self._is_past_end = True, False
        self._gathers = False
        self._is_gathered.set()
        if self._in_progress():
            self._drop_waiting()
            if self._reading is not None:
                self._reading.cancel()

    async def run(self) -> None:
        """Read until the end of the shard, or :meth:`stop`.

        Raises:
            DataLossError: records are gone, and the configuration does not tolerate it.
            PublisherCancelledError: the publisher stopped without a request.
            ServiceError: a retry cannot help.
        """
        context = self.context
        context.events(ShardStarted(shard=self.shard.key, position=self.progress.position))
        error: str | None = None
        try:
            await context.data_loss.check_retention(self.shard, self.progress, context.clock.now())
            async with self._scope as scope:
                self._reading = scope.spawn(self._read_and_deliver(), name=f"read {self.shard}")
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            self._drop_waiting()
            if not self.progress.is_ended:
                position = self.progress.position
                context.events(ShardStopped(shard=self.shard.key, position=position, error=error))

    async def _read_and_deliver(self) -> None:
        try:
            await self._loop.read()
        except Exception:
            # Deliver the records from before the failure first.
            await self._finish_delivering()
            raise
        await self._finish_delivering()
        self.is_at_end = self._is_past_end
        if self._has_ended:
            self._status = evolve(self._status, progress=self.progress.ended())
            self.context.events(ShardEnded(shard=self.shard.key))
            self.context.sink.observe(self.status)

    async def _finish_delivering(self) -> None:
        # The scope raises a failure, and cancels this.
        self._gathers = False
        self._is_gathered.set()
        while in_progress := self._in_progress():
            await asyncio.wait(in_progress)

    async def report_trimmed(self, error: PositionTrimmedError) -> None:
        await self.context.data_loss.report_trimmed(self.shard, self._loop.reached, cause=error)

    def reach_end_of_shard(self) -> None:
        self._has_ended = True

    leave_shard = reach_end_of_shard

    @property
    def records_wanted(self) -> int | None:
        # Full pages of many shards would exceed the pool by too much.
        pool = self.context.pool
        return pool.records_each if pool.filled > 1 else None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._loop.end_run_if_done()
        await self.context.sink.wait_until_wanted(self.shard.key)
        # At most twice the last delivery. Publishers ask for at least some hundred records: if each
        # counted as an aggregate, they would fill the pool, and one slow shard would stop all.
        expanded = math.ceil(records * self._expansion)
        wanted = max(records, min(expanded, _GROWTH * self._delivered))
        if not await self._has_room_ahead(wanted, payload_bytes):
            await self._loop.room.acquire(wanted, payload_bytes)
        await self._loop.end_run_if_done()

    async def _has_room_ahead(self, records: int, payload_bytes: int) -> bool:
        """Wait while too much was read ahead; return whether there is room to read ahead now.

        Only room that no other shard waits for counts: those may have nothing to deliver.
        """
        while self._in_progress():
            if not self._has_enough() and self._loop.room.try_acquire(records, payload_bytes):
                return True
            # Nothing more comes until this has been delivered.
            self._is_gathered.set()
            self._has_delivered.clear()
            await self._has_delivered.wait()
        return False

    def _has_enough(self) -> bool:
        delivery = self._waiting and self._waiting[0]
        return delivery is not None and self._enough.is_complete(delivery.batch)

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        batch = self.context.in_order(batch)
        fresh = self._loop.fresh(batch)
        is_empty, end = not len(batch), self.context.end
        if end is not None and (kept := end.before(fresh)) is not fresh:
            fresh = batch = kept
            self._is_past_end = True
        try:
            delivery, status = await self._take(fresh, batch)
            await self._pass_on(delivery, status)
        except BaseException as error:
            self._loop.delivery_error = error
            if isinstance(error, AggregationError) and error.valid_records:
                # With the rest unread, the answer says nothing about the tip.
                await self(fresh.cut(error.valid_records))
            raise
        # An answer with records may be cut off at an instant that others share, with a lag of 0.
        self._is_past_end |= is_empty and end is not None and end.is_reached(status)
        self._loop.is_done |= self._is_past_end
        # A fan-out subscription lasts for minutes: do not wait for its end.
        await self._loop.end_run_if_done()
        return self._loop.reached.processed

    async def _take(
        self, fresh: RecordBatch, answer: RecordBatch
    ) -> tuple[Delivery | None, ShardStatus]:
        """Return the delivery of ``fresh``, if it has records, and the status after ``answer``."""
        reached, delivery = self._loop.reached, None
        seen_at = answer.requested_at if answer.millis_behind_latest == 0 else None
        as_of = latest_known(reached.as_of, fresh.last_arrival, seen_at)
        progress, processed = evolve(reached, as_of=as_of), reached.processed
        if (last := fresh.last_sequence_number) is not None:
            if not _may_be_over(reached):
                await self._loop.check_beginning(fresh)
            records = await user_records(fresh, processed, self.context, self.shard)
            self._delivered, self._expansion = len(records), max(1.0, len(records) / len(fresh))
            # A record at the position was found, even if nothing of it is delivered: it is not
            # read again.
            if len(records) or reached.position.type is PositionType.AT_SEQUENCE_NUMBER:
                progress = ShardProgress(position=resume_after(last), as_of=as_of)
            if len(records):
                delivery = Delivery(records, progress, await self._loop.room.take(records))
        elif processed is not None and _may_be_over(reached) and as_of is not None:
            progress = evolve(progress, position=StartingPosition.after(processed.whole))
        if delivery is None:
            self._loop.room.release()
        self._read_until = latest_known(self._read_until, answer.read_until)
        return delivery, ShardStatus(
            shard=self.shard,
            progress=progress,
            millis_behind_latest=answer.millis_behind_latest,
            read_until=self._read_until,
            answered_at=self.context.clock.now(),
            child_shards=answer.child_shards,
            # Only polling reads ahead: a subscription makes no further calls.
            is_polled=self._loop.publisher is not None and self._loop.publisher.reads_ahead,
        )

    async def _pass_on(self, delivery: Delivery | None, status: ShardStatus) -> None:
        """Deliver records, or queue them behind the deliveries in progress."""
        sink, publisher = self.context.sink, self._loop.publisher
        reads_ahead = publisher is not None and publisher.reads_ahead
        if not (reads_ahead or sink.overlaps or self._gathers):
            # The previous publisher may have read ahead.
            await self._finish_delivering()
            await self._hand_on(delivery, status)
            self._loop.reached = status.progress
            return
        self._loop.reached = status.progress
        waiting = _joined(self._waiting and self._waiting[0], delivery)
        self._waiting = waiting, status
        if self._has_enough():
            self._is_gathered.set()
        at_once = _OVERLAPPING if sink.overlaps and waiting else 1
        if len(in_progress := self._in_progress()) >= at_once:
            return
        if waiting is None:
            # Every answer of an idle shard comes here: there is nothing to wait for.
            await self._deliver_waiting()
        else:
            work = self._deliver_waiting()
            task = self._scope.spawn(work, name=f"deliver {self.shard}")
            self._delivering = (*in_progress, task)
            # With a sink that does not wait, the delivery ends after one turn.
            await asyncio.sleep(0)

    def _in_progress(self) -> tuple[asyncio.Task[None], ...]:
        return tuple(one for one in self._delivering if not one.done())

    async def _deliver_waiting(self) -> None:
        while (taken := await self._take_waiting()) is not None:
            await self._hand_on(*taken)
            self._has_delivered.set()

    async def _take_waiting(self) -> tuple[Delivery | None, ShardStatus] | None:
        """Return what waits, with what comes meanwhile if the sink wants many records at once."""
        has_some = self._waiting is not None and self._waiting[0] is not None
        if self._gathers and has_some and not self._has_enough():
            self._is_gathered.clear()
            seconds, clock = self._enough.max_wait_seconds, self.context.clock
            await wait_for_event(self._is_gathered, timeout_seconds=seconds, clock=clock)
        taken, self._waiting = self._waiting, None
        return taken

    async def _hand_on(self, delivery: Delivery | None, status: ShardStatus) -> None:
        before = self._handed_on
        self._handed_on = done = asyncio.Event()
        if delivery is not None:
            await self._loop.room.deliver(delivery)
        if before is not None:
            await before.wait()
        self._status = status
        self.context.sink.observe(self.status)
        done.set()

    def _drop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[0] is not None:
            waiting[0].release()


def _may_be_over(progress: ShardProgress) -> bool:
    """Return whether nothing is lost if the record in which reading continues is gone.

    Our own positions inside an aggregate have an instant. Positions of the Kinesis Client Library
    have none, and are always inside a record: in an idle shard, the retention removes that record
    after it was processed.
    """
    number = progress.processed
    return progress.as_of is None and number is not None and number.sub_sequence_number is not None


def _joined(first: Delivery | None, second: Delivery | None) -> Delivery | None:
    if first is None or second is None:
        return first or second
    batch, room = first.batch.joined(second.batch), first.reservation
    room.resize(len(batch), batch.payload_bytes)
    second.release()
    return Delivery(batch, second.progress, room)
