"""The loop over one shard: runs its publisher, keeps its position, and hands its records on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attrs import Factory, define, evolve, field

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.engine.delivery import (
    ConsumerContext,
    DeliveryRoom,
    MissingShard,
    ShardStatus,
    drop_processed,
    user_records,
)
from kinesis_publishers.engine.publisher_checks import check_publisher, check_result
from kinesis_publishers.errors import (
    AggregationError,
    ConsumerNotFoundError,
    PositionTrimmedError,
    PublisherCancelledError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from kinesis_publishers.events import ShardEnded, ShardStarted, ShardStopped
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
    resume_after,
)
from kinesis_publishers.tasks import cancelled_from_outside_only

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model import ChildShard

__all__ = ["ShardConsumer"]


# By how much a delivery of aggregates may be larger than the one before, as far as room goes.
_GROWTH = 2


class _Stopped(BaseException):
    """Ends the run of a publisher that would go on delivering; never leaves this module."""


@define(eq=False)
class ShardConsumer(RecordBatchConsumer):
    """Reads one shard, from a position to its end.

    It is the consumer of its own publisher. The position follows what the sink has taken, never
    what was fetched; records at or before it are dropped, so that each is delivered once.

    Args:
        shard: what to read.
        progress: where to begin; it moves with every delivery.
        context: what the consumers of a fetcher share.
    """

    shard: Shard
    progress: ShardProgress
    context: ConsumerContext
    # What continues the shard, as far as the last answer names it.
    child_shards: tuple[ChildShard, ...] = field(default=(), init=False)
    _millis_behind_latest: int | None = field(default=None, init=False)
    _read_until: datetime | None = field(default=None, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _delivery_error: BaseException | None = field(default=None, init=False)
    # Of the last delivery: how many records there were, and how many of one that Kinesis stored.
    _delivered: int = field(default=0, init=False)
    _expansion: float = field(default=1.0, init=False)
    _room: DeliveryRoom = field(
        init=False,
        default=Factory(lambda self: DeliveryRoom(self.shard.key, self.context), takes_self=True),
    )
    _missing: MissingShard = field(
        init=False,
        default=Factory(lambda self: self.context.missing(self.shard), takes_self=True),
    )

    @property
    def status(self) -> ShardStatus:
        return ShardStatus(
            shard=self.shard,
            progress=self.progress,
            millis_behind_latest=self._millis_behind_latest,
            read_until=self._read_until,
        )

    @property
    def is_delivering(self) -> bool:
        """Whether the application is processing records right now."""
        return self._room.is_delivering

    def stop(self) -> None:
        """Make :meth:`run` return after the delivery in flight, or else after the next one.

        It interrupts nothing: to avoid waiting for the next answer, which may be an empty
        one, cancel the task unless :attr:`is_delivering`.
        """
        self._is_stopping = True

    async def run(self) -> None:
        """Read until the end of the shard, or :meth:`stop`.

        Raises:
            DataLossError: records are gone, and the configuration does not tolerate it.
            PublisherCancelledError: the publisher stopped although nobody asked it to.
            ServiceError: a failure that retrying does not mend.
        """
        context = self.context
        context.events(ShardStarted(shard=self.shard.key, position=self.progress.position))
        error: str | None = None
        try:
            await context.data_loss.check_retention(self.shard, self.progress, context.clock.now())
            await self._read()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            if not self.progress.is_ended:
                self._report_stop(error)

    async def _read(self) -> None:
        position: StartingPosition | None = self.progress.position
        while position is not None:
            position = await self._read_from(position)

    def _report_stop(self, error: str | None) -> None:
        position = self.progress.position
        self.context.events(ShardStopped(shard=self.shard.key, position=position, error=error))

    async def _read_from(self, position: StartingPosition) -> StartingPosition | None:
        """Read with one publisher; return where the next one begins, or ``None`` at the end."""
        before = self.progress.position
        try:
            publisher = await self.context.create_publisher(position, self.shard)
            check_publisher(publisher, self.shard)
            await self._run_publisher(publisher)
        except PositionTrimmedError as error:
            is_stuck = (
                position.type is PositionType.TRIM_HORIZON and self.progress.position == before
            )
            # What a delivery failed with has been reported already.
            if is_stuck or error is self._delivery_error:
                raise
            now = self.context.clock.now()
            await self.context.data_loss.report_trimmed(self.shard, self.progress, now, cause=error)
            # What is left comes after the position, or is dropped on arrival.
            return StartingPosition.trim_horizon()
        except (StreamNotFoundError, ShardNotFoundError, ConsumerNotFoundError) as error:
            if error is self._delivery_error:
                raise
            if not await self._missing.has_left(error, self.progress):
                return position if self.progress.position == before else self.progress.position
            self._end_shard()
        return None

    async def _run_publisher(self, publisher: RecordPublisher) -> None:
        while not self._is_stopping:
            result = await self._run_once(publisher)
            if result is RunResult.COMPLETE:
                self._end_shard()
                return

    async def _run_once(self, publisher: RecordPublisher) -> RunResult | None:
        """Run ``publisher``; return its result, or ``None`` if it was stopped from here."""
        try:
            with cancelled_from_outside_only(
                PublisherCancelledError, f"{self.shard}: run() of {type(publisher).__name__}"
            ):
                result = await publisher.run(self)
            check_result(result, publisher, self.shard, is_stopping=self._is_stopping)
            return result
        except _Stopped:
            return None
        except BaseExceptionGroup as group:
            self._raise_from(group)
            return None
        finally:
            # A run may end without the delivery that it asked for room for, as after a throttle.
            self._room.release()

    def _raise_from(self, group: BaseExceptionGroup[BaseException]) -> None:
        """Raise what comes from here, which a publisher's own TaskGroup has made a group of."""
        if group.subgroup(lambda error: error is self._delivery_error) is not None:
            assert self._delivery_error is not None, "it is in the group"
            raise self._delivery_error
        stopped, rest = group.split(_Stopped)
        if stopped is None:
            raise group
        if rest is not None:
            raise rest

    def _end_shard(self) -> None:
        self.progress = self.progress.ended()
        self.context.events(ShardEnded(shard=self.shard.key))
        self.context.sink.observe(self.status)

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        self._raise_if_stopping()
        await self._room.acquire(self._expected(records), payload_bytes)
        self._raise_if_stopping()

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
        self._missing.reset()
        fresh = drop_processed(batch, self.progress.processed, self.context.events)
        as_of = self._seen_until(fresh, batch)
        try:
            moves = len(fresh) > 0 and await self._deliver(fresh, as_of)
        except AggregationError as error:
            if error.valid_records:
                # With the rest unread, the answer says nothing about the tip.
                await self(evolve(fresh.slice(0, error.valid_records), millis_behind_latest=None))
            raise
        if moves:
            self.progress = _progress_after(fresh, as_of)
        else:
            # With nothing handed on, whatever there was, the position stays what it is.
            self._room.release()
            self.progress = evolve(self.progress, as_of=as_of)
        self._millis_behind_latest = batch.millis_behind_latest
        self._read_until = _latest(self._read_until, batch.read_until)
        self.context.sink.observe(self.status)
        self._raise_if_stopping()
        return self.progress.processed

    def _raise_if_stopping(self) -> None:
        # A fan-out subscription lasts for minutes: its end is not waited for.
        if self._is_stopping:
            raise _Stopped

    def _seen_until(self, fresh: RecordBatch, answer: RecordBatch) -> datetime | None:
        instants = [self.progress.as_of, fresh.last_arrival]
        if answer.millis_behind_latest == 0:
            instants.append(answer.requested_at)
        return _latest(*instants)

    async def _deliver(self, batch: RecordBatch, as_of: datetime | None) -> bool:
        """Hand on what is in ``batch``, which is not empty; say whether the position moves."""
        processed = self.progress.processed
        try:
            now, arrived = batch.requested_at, batch.slice(0, 1).last_arrival
            await self.context.data_loss.check_beginning(
                self.shard, self.progress, now, batch.first_sequence_number, arrived
            )
            records = await user_records(batch, processed, self.context, self.shard)
            self._delivered, self._expansion = len(records), max(1.0, len(records) / len(batch))
            if len(records):
                await self._room.deliver(records, _progress_after(batch, as_of))
            # The record itself has come, whatever is delivered of it: it is not asked for again.
            is_found = self.progress.position.type is PositionType.AT_SEQUENCE_NUMBER
            return len(records) > 0 or is_found
        except BaseException as error:
            self._delivery_error = error
            raise


def _progress_after(batch: RecordBatch, as_of: datetime | None) -> ShardProgress:
    last = batch.last_sequence_number
    assert last is not None, "an empty batch moves nothing"
    return ShardProgress(position=resume_after(last), as_of=as_of)


def _latest(*instants: datetime | None) -> datetime | None:
    return max((instant for instant in instants if instant is not None), default=None)
