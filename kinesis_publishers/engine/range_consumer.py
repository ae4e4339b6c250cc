"""Reads one exact range of a shard: the same records each time, or an error."""

from __future__ import annotations

import math

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.engine.alignment import count_before
from kinesis_publishers.engine.consumer_context import ConsumerContext, user_records
from kinesis_publishers.engine.delivery import Delivery
from kinesis_publishers.engine.range_estimate import RangeEstimate
from kinesis_publishers.engine.shard_loop import ShardLoop
from kinesis_publishers.errors import AggregationError, PositionTrimmedError, ReplayMismatchError
from kinesis_publishers.events import RangeRead
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardProgress,
    ShardRange,
    resume_after,
)

# The planner of the range has seen the record at its end. A copy of the shard may still lack it:
# only a tip that lasts without it proves that it is gone.
_TIP_SECONDS = 1.0


class RangeConsumer(RecordBatchConsumer):
    """Reads one range and delivers its records, each once and in order.

    A publisher that continues after the last record is interrupted at its next wait.
    """

    def __init__(self, wanted: ShardRange, context: ConsumerContext) -> None:
        shard = Shard(stream_arn=wanted.shard.stream_arn, shard_id=wanted.shard.shard_id)
        progress = ShardProgress(position=wanted.start, as_of=wanted.as_of)
        self.shard, self.context = shard, context
        self._loop = ShardLoop(shard, progress, context, consumer=self, owner=self)
        self._wanted, self._end = wanted, wanted.end
        self._estimate = RangeEstimate(wanted.size)
        self._was_trimmed = False
        self._tip_since = math.inf

    @property
    def records_wanted(self) -> int | None:
        # Beyond the end of the shard nothing is fetched in vain.
        return None if self._end is None else self._estimate.records_wanted

    async def run(self) -> None:
        """Read the range.

        Raises:
            ReplayMismatchError: the record at the end of the range is missing.
            PositionTrimmedError: the first record of the range, or the shard, is gone.
            PublisherCancelledError: the publisher stopped without a request.
            ServiceError: a retry cannot help.
        """
        start, began_at = self._loop.reached.position, self.context.clock.monotonic()
        self._finish_if_ended()
        await self._loop.read()
        seconds = self.context.clock.monotonic() - began_at
        self.context.events(
            RangeRead(shard=self.shard.key, start=start, end=self._end, seconds=seconds)
        )

    async def report_trimmed(self, error: PositionTrimmedError) -> None:
        place = self._loop.reached.position
        message = f"the position where reading continues, {place}, is no longer available."
        self.context.data_loss.report(self.shard.key, message, cause=error)
        self._was_trimmed = True

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._loop.end_run_if_done()
        await self._loop.room.acquire(records, payload_bytes)

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        await self._loop.end_run_if_done()
        fresh = self._loop.fresh(self.context.in_order(batch))
        covered, is_at_end = self._count_inside(fresh)
        # A page that its Limit cuts off may have a lag of 0 without being the tip.
        is_tip = not len(batch) and batch.millis_behind_latest == 0
        is_at_end |= is_tip and self._wanted.until is not None
        inside = fresh.slice(0, covered)
        self._estimate.add(inside)
        await self._deliver(inside)
        if not self._finish_if_ended(is_at_end=is_at_end):
            self._check_end(fresh, covered, batch.millis_behind_latest)
        return self._loop.reached.processed

    async def _deliver(self, batch: RecordBatch) -> None:
        room, last = self._loop.room, batch.last_sequence_number
        if last is None:
            room.release()
            return
        progress = ShardProgress(position=resume_after(last), as_of=batch.last_arrival)
        try:
            await self._check_beginning(batch)
            records = await user_records(batch, self._loop.reached.processed, self.context)
            if len(records):
                await room.deliver(Delivery(records, progress, await room.take(records)))
            else:
                room.release()
        except BaseException as error:
            if isinstance(error, AggregationError) and error.valid_records:
                await self._deliver(batch.slice(0, error.valid_records))
            self._loop.delivery_error = error
            raise
        self._loop.reached = progress

    async def _check_beginning(self, batch: RecordBatch) -> None:
        place = self._loop.reached.position
        if self._was_trimmed and place.type is not PositionType.AT_SEQUENCE_NUMBER:
            self.context.data_loss.report(
                self.shard.key,
                f"reading continues with record {batch.first_sequence_number}; all between {place} "
                "and it is skipped.",
            )
        else:
            await self._loop.check_beginning(batch)
        self._was_trimmed = False

    def _count_inside(self, fresh: RecordBatch) -> tuple[int, bool]:
        """Return how many records are in the range, and whether the next one has come."""
        if self._end is None:
            count, until = len(fresh), self._wanted.until
            if until is not None:
                count = count_before(fresh.arrival_epoch_seconds, until)
            return count, count < len(fresh)
        count = fresh.count_up_to(self._end)
        if not self._wanted.excludes_end:
            return count, False
        is_at_end = fresh.slice(0, count).last_sequence_number == self._end
        return count - is_at_end, is_at_end

    def _finish_if_ended(self, *, is_at_end: bool = False) -> bool:
        if not is_at_end and (self._end is None or self._loop.reached.processed != self._end):
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        self._loop.is_done = True
        self._loop.interrupt()

    def _check_end(self, fresh: RecordBatch, covered: int, lag: int | None) -> None:
        if self._end is None:
            return
        now = self.context.clock.monotonic()
        if covered < len(fresh):
            self._give_up_range(f"record {fresh.sequence_numbers[covered]} follows")
        elif lag != 0 or covered:
            self._tip_since = math.inf
        else:
            self._tip_since = min(self._tip_since, now)
            if now - self._tip_since >= _TIP_SECONDS:
                self._give_up_range("the tip of the shard follows")

    def reach_end_of_shard(self) -> None:
        if self._end is None:
            self._finish()
        elif not self._loop.is_done:
            self._give_up_range("the end of the shard follows")

    def leave_shard(self) -> None:
        """Do nothing: the loss has been reported."""

    def _give_up_range(self, what_follows: str) -> None:
        # Finish afterwards: the interruption must not replace the error.
        self.context.data_loss.report(
            self.shard.key,
            f"the range that ends {'before' if self._wanted.excludes_end else 'with'} record "
            f"{self._end} does not read the same again: "
            f"{what_follows} after {self._loop.reached.position}.",
            kind=ReplayMismatchError,
        )
        self._finish()
