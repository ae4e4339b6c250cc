"""Reads one whole shard: keeps its position, and hands its records on."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime

from attrs import evolve

from kinesis_publishers.engine.alignment import latest_known
from kinesis_publishers.engine.delivery import ConsumerContext, Delivery, ShardStatus, user_records
from kinesis_publishers.engine.shard_loop import ShardLoop
from kinesis_publishers.errors import AggregationError, PositionTrimmedError
from kinesis_publishers.events import ShardEnded, ShardStarted, ShardStopped
from kinesis_publishers.model import (
    ChildShard,
    PositionType,
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
    resume_after,
)
from kinesis_publishers.tasks import TaskScope

# By how much a delivery of aggregates may be larger than the one before, as far as room goes.
_GROWTH = 2
# While so much waits behind a delivery in progress, no more is read ahead: one full page, or what
# several small ones bring together.
_ENOUGH_RECORDS = 1000
_ENOUGH_BYTES = 1024 * 1024


class ShardConsumer(ShardLoop):
    """Reads one shard, from a position to its end.

    While a delivery is in progress, a publisher that may reads on. What it brings waits in the
    pool, and becomes the next delivery: the progress is that of finished deliveries.

    While ``enough_records`` wait, no more is read; ``None`` stands for one full page.
    """

    def __init__(
        self,
        shard: Shard,
        progress: ShardProgress,
        context: ConsumerContext,
        enough_records: int | None = None,
    ) -> None:
        super().__init__(shard, progress, context)
        self._enough_records = enough_records
        self._status = ShardStatus(shard=shard, progress=progress)
        #: What continues the shard, as far as the last answer names it.
        self.child_shards: tuple[ChildShard, ...] = ()
        self._read_until: datetime | None = None
        # Of the last delivery: its records, and how many of them one stored record became.
        self._delivered = 0
        self._expansion = 1.0
        # What reads, what delivers beside it, and what waits for that.
        self._scope = TaskScope()
        self._reading: asyncio.Task[None] | None = None
        self._delivering: asyncio.Task[None] | None = None
        self._waiting: tuple[Delivery | None, ShardStatus] | None = None
        self._has_delivered = asyncio.Event()
        self._has_ended = False

    @property
    def status(self) -> ShardStatus:
        if self._room.oldest is None:
            return self._status
        # What arrived before it has been processed, although the last answer was another one.
        read_until = latest_known(self._status.read_until, self._room.oldest)
        return evolve(self._status, is_delivering=True, read_until=read_until)

    @property
    def progress(self) -> ShardProgress:
        return self._status.progress

    @property
    def is_delivering(self) -> bool:
        """Whether the application is processing records right now."""
        return self._room.oldest is not None

    def stop(self) -> None:
        """Make :meth:`run` return after the delivery in flight, or else after the next one.

        It interrupts no delivery: to avoid waiting for the next answer, which may be an empty one,
        cancel the task unless :attr:`is_delivering`. What was read ahead is dropped.
        """
        self._is_done = True
        if self._is_reading_ahead:
            self._drop_waiting()
            if self._reading is not None:
                self._reading.cancel()

    async def run(self) -> None:
        """Read until the end of the shard, or :meth:`stop`.

        Raises:
            DataLossError: records are gone, and the configuration does not tolerate it.
            PublisherCancelledError: the publisher stopped although nothing asked it to.
            ServiceError: a failure that retrying does not cure.
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
            progress = self.progress
            if not progress.is_ended:
                context.events(
                    ShardStopped(shard=self.shard.key, position=progress.position, error=error)
                )

    async def _read_and_deliver(self) -> None:
        try:
            await self._read(self.reached.position)
        except Exception:
            # What was read before the failure comes before it.
            await self._finish_delivering()
            raise
        await self._finish_delivering()
        if self._has_ended:
            self._status = evolve(
                self._status, progress=self.progress.ended(), child_shards=self.child_shards
            )
            self.context.events(ShardEnded(shard=self.shard.key))
            self.context.sink.observe(self.status)

    async def _finish_delivering(self) -> None:
        # A failure is raised by the scope, and cancels this.
        if self._delivering is not None:
            await asyncio.wait([self._delivering])

    async def _report_trimmed(self, error: PositionTrimmedError) -> None:
        now = self.context.clock.now()
        await self.context.data_loss.report_trimmed(self.shard, self.reached, now, cause=error)

    def _reach_end_of_shard(self) -> None:
        self._has_ended = True

    _leave_shard = _reach_end_of_shard

    @property
    def records_wanted(self) -> int | None:
        # Whole pages of many shards would be too much beyond the pool.
        pool = self.context.pool
        return pool.records_each if pool.filled > 1 else None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._end_run_if_done()
        await self.context.sink.wait_until_wanted(self.shard.key)
        wanted = self._expected(records), payload_bytes
        if not await self._has_room_ahead(*wanted):
            await self._room.acquire(*wanted)
        await self._end_run_if_done()

    async def _has_room_ahead(self, records: int, payload_bytes: int) -> bool:
        """Wait while too much has been read ahead; say whether there is room to do so now.

        It is room that no other shard waits for: those may have nothing to deliver.
        """
        while self._is_reading_ahead:
            if not self._has_enough() and self._room.try_acquire(records, payload_bytes):
                return True
            self._has_delivered.clear()
            await self._has_delivered.wait()
        return False

    def _has_enough(self) -> bool:
        delivery = None if self._waiting is None else self._waiting[0]
        return delivery is not None and (
            len(delivery.batch) >= (self._enough_records or _ENOUGH_RECORDS)
            or delivery.batch.payload_bytes >= _ENOUGH_BYTES
        )

    def _expected(self, records: int) -> int:
        """Return how many records may come of so many that Kinesis stored.

        That is at most twice as many as the last time. Publishers ask for some hundreds at least,
        which cost nothing, but would fill the pool if each of them were taken for an aggregate:
        while one shard is not worked through, no other one would be read.
        """
        expanded = math.ceil(records * self._expansion)
        return max(records, min(expanded, _GROWTH * self._delivered))

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        batch = self.context.in_order(batch)
        self.child_shards = batch.child_shards
        fresh = self._fresh(batch)
        try:
            await self._pass_on(*await self._take(fresh, batch))
        except BaseException as error:
            self._delivery_error = error
            if isinstance(error, AggregationError) and error.valid_records:
                # With the rest unread, the answer says nothing about the tip.
                await self(evolve(fresh.slice(0, error.valid_records), millis_behind_latest=None))
            raise
        # A fan-out subscription lasts for minutes: its end is not waited for.
        await self._end_run_if_done()
        return self.reached.processed

    async def _take(
        self, fresh: RecordBatch, answer: RecordBatch
    ) -> tuple[Delivery | None, ShardStatus]:
        """Return the records of ``fresh`` with their room, if any, and what ``answer`` leads to."""
        as_of = self._seen_until(fresh, answer)
        progress, delivery = evolve(self.reached, as_of=as_of), None
        if as_of is not None and not len(fresh) and _may_be_over(self.reached):
            progress = evolve(progress, position=_after_whole(progress))
        if len(fresh):
            # The record has come, even if nothing of it is delivered: it is not read again.
            is_found = progress.position.type is PositionType.AT_SEQUENCE_NUMBER
            await self._check_beginning(fresh)
            records = await user_records(fresh, progress.processed, self.context, self.shard)
            self._delivered, self._expansion = len(records), max(1.0, len(records) / len(fresh))
            if len(records) or is_found:
                progress = _progress_after(fresh, as_of)
            if len(records):
                delivery = Delivery(records, progress, await self._room.take(records))
        if delivery is None:
            self._room.release()
        self._read_until = latest_known(self._read_until, answer.read_until)
        return delivery, ShardStatus(
            shard=self.shard,
            progress=progress,
            millis_behind_latest=answer.millis_behind_latest,
            read_until=self._read_until,
            answered_at=self.context.clock.now(),
            child_shards=answer.child_shards,
            # Only what polls reads ahead: a subscription is not asked again.
            is_polled=self._publisher is not None and self._publisher.reads_ahead,
        )

    async def _pass_on(self, delivery: Delivery | None, status: ShardStatus) -> None:
        """Hand on what was taken; what was read ahead waits for the delivery in progress."""
        if self._publisher is None or not self._publisher.reads_ahead:
            # The publisher before it may have been one that reads ahead.
            await self._finish_delivering()
            await self._hand_on(delivery, status)
            self.reached = status.progress
            return
        self.reached = status.progress
        self._waiting = _joined(self._waiting and self._waiting[0], delivery), status
        if self._is_reading_ahead:
            return
        if delivery is None:
            # Nothing to wait for, as with every answer of an idle shard.
            await self._deliver_waiting()
        else:
            work = self._deliver_waiting()
            self._delivering = self._scope.spawn(work, name=f"deliver {self.shard}")
            # It is over after one turn with a sink that does not wait.
            await asyncio.sleep(0)

    @property
    def _is_reading_ahead(self) -> bool:
        return self._delivering is not None and not self._delivering.done()

    async def _deliver_waiting(self) -> None:
        while self._waiting is not None:
            taken, self._waiting = self._waiting, None
            await self._hand_on(*taken)
            self._has_delivered.set()

    async def _hand_on(self, delivery: Delivery | None, status: ShardStatus) -> None:
        if delivery is not None:
            await self._room.deliver(delivery)
        self._status = status
        self.context.sink.observe(self.status)

    def _drop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[0] is not None:
            waiting[0].release()

    async def _check_beginning(self, batch: RecordBatch) -> None:
        if not _may_be_over(self.reached):
            await super()._check_beginning(batch)

    def _seen_until(self, fresh: RecordBatch, answer: RecordBatch) -> datetime | None:
        instants = [self.reached.as_of, fresh.last_arrival]
        if answer.millis_behind_latest == 0:
            instants.append(answer.requested_at)
        return latest_known(*instants)


def _may_be_over(progress: ShardProgress) -> bool:
    """Return whether nothing is lost if the record in which reading continues is gone.

    Our own places inside an aggregate have an instant. The Kinesis Client Library's have none, and
    are inside of every record: the retention of an idle shard removes it after it was processed.
    """
    number = progress.processed
    is_inside = number is not None and number.sub_sequence_number is not None
    return is_inside and progress.as_of is None


def _after_whole(progress: ShardProgress) -> StartingPosition:
    assert progress.processed is not None, "it is inside a record"
    return StartingPosition.after(progress.processed.whole)


def _joined(first: Delivery | None, second: Delivery | None) -> Delivery | None:
    if first is None or second is None:
        return first or second
    batch, room = first.batch.joined(second.batch), first.reservation
    room.resize(len(batch), batch.payload_bytes)
    second.release()
    return Delivery(batch, second.progress, room)


def _progress_after(batch: RecordBatch, as_of: datetime | None) -> ShardProgress:
    last = batch.last_sequence_number
    assert last is not None, "an empty batch moves nothing"
    return ShardProgress(position=resume_after(last), as_of=as_of)
