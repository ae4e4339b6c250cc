"""Reads one exact range of a shard: the same records each time, or an error."""

from __future__ import annotations

import math
from typing import TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.clock import Clock
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
    ShardKey,
    ShardProgress,
    ShardRange,
    StartingPosition,
    resume_after,
)

# The planner of the range has seen the record at its end. A copy of the shard may still lack it:
# only a tip that lasts without it proves that it is gone.
_TIP_SECONDS = 1.0


class RangeConsumer(RecordBatchConsumer):
    """Reads one range and delivers its records, each once and in order.

    It begins with the leftover of the previous range, if there is one. A publisher whose run ends
    by itself after the last record can serve the next range. Others are interrupted at their next
    wait.
    """

    def __init__(
        self, wanted: ShardRange, context: ConsumerContext, begin: Leftover | None = None
    ) -> None:
        shard = Shard(stream_arn=wanted.shard.stream_arn, shard_id=wanted.shard.shard_id)
        progress = ShardProgress(position=wanted.start, as_of=wanted.as_of)
        self.shard, self.context = shard, context
        self._loop = ShardLoop(shard, progress, context, consumer=self, owner=self)
        self._wanted, self._end = wanted, wanted.end
        self._estimate = RangeEstimate(wanted.size)
        self._begin = begin
        self._rest: RecordBatch | None = None
        self._is_exact = self._is_complete = self._was_trimmed = False
        self._tip_since = math.inf

    @property
    def records_wanted(self) -> int | None:
        # Beyond the end of the shard nothing is fetched in vain.
        return None if self._end is None else self._estimate.records_wanted

    async def run(self) -> Leftover | None:
        """Read the range; return its leftover, if there is one.

        Raises:
            ReplayMismatchError: the record at the end of the range is missing.
            PositionTrimmedError: the first record of the range, or the shard, is gone.
            PublisherCancelledError: the publisher stopped without a request.
            ServiceError: a retry cannot help.
        """
        start, began_at = self._loop.reached.position, self.context.clock.monotonic()
        self._finish_if_ended()
        if (begin := self._begin) is not None:
            self._loop.publisher = begin.publisher
            if self._loop.is_done:
                self._rest = begin.rest
            elif begin.rest is not None:
                await self(begin.rest)
            if begin.is_complete:
                self.reach_end_of_shard()
        await self._loop.read()
        seconds = self.context.clock.monotonic() - began_at
        self.context.events(
            RangeRead(shard=self.shard.key, start=start, end=self._end, seconds=seconds)
        )
        return self._leftover()

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
        if self._loop.is_done and covered < len(fresh):
            # Records after the range are kept: the publisher does not return them again.
            self._rest = fresh.slice(covered, len(fresh))
            return fresh.last_sequence_number
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
        self._is_exact = True
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
        self._is_complete = True
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

    def _leftover(self) -> Leftover | None:
        publisher = None if self._is_complete else self._loop.publisher
        has_any = self._rest is not None or publisher is not None or self._is_complete
        following = self._wanted.following
        if following is None or not self._is_exact or not has_any:
            return None
        return Leftover(
            following=following,
            rest=self._rest,
            publisher=publisher,
            is_complete=self._is_complete,
        )


# A shard iterator expires after five minutes (AWS API reference): an older publisher would probably
# need a new one anyway.
_MAX_AGE_SECONDS = 240.0
# The memory of a record without its payload, and of a publisher.
_RECORD_BYTES = 300
_PUBLISHER_BYTES = 4096

_Key: TypeAlias = "tuple[ShardKey, StartingPosition]"


@frozen(kw_only=True, eq=False)
class Leftover:
    """The remainder of a range that has been read, for the next range.

    Attributes:
        following: the end of the range.
        rest: fetched records after that, if any.
        publisher: continues after the rest; ``None`` if it was interrupted.
        is_complete: whether the shard ends with the rest.
    """

    following: StartingPosition
    rest: RecordBatch | None = None
    publisher: RecordPublisher | None = None
    is_complete: bool = False

    @property
    def size(self) -> int:
        """The approximate memory in bytes."""
        if self.rest is None:
            return _PUBLISHER_BYTES
        return self.rest.payload_bytes + _RECORD_BYTES * len(self.rest) + _PUBLISHER_BYTES


@define(eq=False)
class Leftovers:
    """Keeps the latest leftovers of ranges for the next ranges.

    Each is taken once. A missing one costs a GetShardIterator, never a record: every range has its
    own start.

    Attributes:
        max_bytes: the maximum memory of all together.
        size: the approximate memory of all together, in bytes.
    """

    _clock: Clock
    max_bytes: int = 16 * 1024 * 1024
    size: int = field(default=0, init=False)
    # With the time of their addition; the oldest first.
    _kept: dict[_Key, tuple[Leftover, float]] = field(factory=dict, init=False)

    def keep(self, shard: ShardKey, leftover: Leftover) -> None:
        """Keep the leftover of a range of ``shard``."""
        key = shard, leftover.following
        self._remove(key)
        # It would displace everything else, and itself.
        if leftover.size > self.max_bytes:
            return
        self._kept[key] = leftover, self._clock.monotonic()
        self.size += leftover.size
        while self.size > self.max_bytes:
            self._remove(next(iter(self._kept)))

    def take(self, wanted: ShardRange) -> Leftover | None:
        """Remove and return the leftover at the start of ``wanted``, if there is one."""
        oldest = self._clock.monotonic() - _MAX_AGE_SECONDS
        while self._kept and next(iter(self._kept.values()))[1] < oldest:
            self._remove(next(iter(self._kept)))
        return self._remove((wanted.shard, wanted.follows))

    def _remove(self, key: _Key) -> Leftover | None:
        leftover, _ = self._kept.pop(key, (None, 0.0))
        if leftover is not None:
            self.size -= leftover.size
        return leftover
