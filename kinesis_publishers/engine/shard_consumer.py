"""Reads one whole shard: keeps its position, and hands its records on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attrs import evolve

from kinesis_publishers.engine.delivery import ShardStatus, user_records
from kinesis_publishers.engine.shard_loop import ShardLoop
from kinesis_publishers.errors import AggregationError
from kinesis_publishers.events import ShardEnded, ShardStarted, ShardStopped
from kinesis_publishers.model import PositionType, ShardProgress, resume_after

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.engine.delivery import ConsumerContext
    from kinesis_publishers.errors import PositionTrimmedError
    from kinesis_publishers.model import ChildShard, RecordBatch, SequenceNumber, Shard

__all__ = ["ShardConsumer"]

# By how much a delivery of aggregates may be larger than the one before, as far as room goes.
_GROWTH = 2


class ShardConsumer(ShardLoop):
    """Reads one shard, from a position to its end."""

    def __init__(self, shard: Shard, progress: ShardProgress, context: ConsumerContext) -> None:
        super().__init__(shard, progress, context)
        #: What continues the shard, as far as the last answer names it.
        self.child_shards: tuple[ChildShard, ...] = ()
        self._millis_behind_latest: int | None = None
        self._read_until: datetime | None = None
        # Of the last delivery: its records, and how many of them one stored record became.
        self._delivered = 0
        self._expansion = 1.0

    @property
    def status(self) -> ShardStatus:
        return ShardStatus(
            shard=self.shard,
            progress=self.progress,
            millis_behind_latest=self._millis_behind_latest,
            read_until=self._read_until,
            is_delivering=self.is_delivering,
        )

    @property
    def is_delivering(self) -> bool:
        """Whether the application is processing records right now."""
        return self._room.is_delivering

    def stop(self) -> None:
        """Make :meth:`run` return after the delivery in flight, or else after the next one.

        It interrupts nothing: to avoid waiting for the next answer, which may be an empty one,
        cancel the task unless :attr:`is_delivering`.
        """
        self._is_done = True

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
            await self._read(self.progress.position)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            progress = self.progress
            if not progress.is_ended:
                context.events(
                    ShardStopped(shard=self.shard.key, position=progress.position, error=error)
                )

    async def _report_trimmed(self, error: PositionTrimmedError) -> None:
        now = self.context.clock.now()
        await self.context.data_loss.report_trimmed(self.shard, self.progress, now, cause=error)

    def _reach_end_of_shard(self) -> None:
        self.progress = self.progress.ended()
        self.context.events(ShardEnded(shard=self.shard.key))
        self.context.sink.observe(self.status)

    _leave_shard = _reach_end_of_shard

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._end_run_if_done()
        await self._room.acquire(self._expected(records), payload_bytes)
        await self._end_run_if_done()

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
            # With nothing handed on, the position stays as it is.
            self._room.release()
            self.progress = evolve(self.progress, as_of=as_of)
        self._millis_behind_latest = batch.millis_behind_latest
        self._read_until = _latest(self._read_until, batch.read_until)
        self.context.sink.observe(self.status)
        # A fan-out subscription lasts for minutes: its end is not waited for.
        await self._end_run_if_done()
        return self.progress.processed

    def _seen_until(self, fresh: RecordBatch, answer: RecordBatch) -> datetime | None:
        instants = [self.progress.as_of, fresh.last_arrival]
        if answer.millis_behind_latest == 0:
            instants.append(answer.requested_at)
        return _latest(*instants)

    async def _deliver(self, batch: RecordBatch, as_of: datetime | None) -> bool:
        """Hand on what is in ``batch``, which is not empty; say whether the position moves."""
        processed = self.progress.processed
        try:
            await self._check_beginning(batch)
            records = await user_records(batch, processed, self.context, self.shard)
            self._delivered, self._expansion = len(records), max(1.0, len(records) / len(batch))
            if len(records):
                await self._room.deliver(records, _progress_after(batch, as_of))
            # The record has come, even if nothing of it is delivered: it is not read again.
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
