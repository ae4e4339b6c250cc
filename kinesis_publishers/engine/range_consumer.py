"""The loop over one exact range of a shard: the same records each time, or an error."""

from __future__ import annotations

import asyncio

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.engine.continuations import Leftover
from kinesis_publishers.engine.delivery import (
    ConsumerContext,
    DeliveryRoom,
    drop_processed,
    user_records,
)
from kinesis_publishers.engine.publisher_checks import check_publisher, check_result
from kinesis_publishers.errors import (
    AggregationError,
    PositionTrimmedError,
    ReplayMismatchError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from kinesis_publishers.events import RangeRead
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    ShardRange,
    StartingPosition,
    resume_after,
)

__all__ = ["RangeConsumer"]

# Who planned the range has seen its last record. Another reader may be answered from a copy of the
# shard that does not show it yet: only a tip that stays without it proves that it is gone.
_TIP_SECONDS = 1.0


class RangeConsumer(RecordBatchConsumer):
    """Reads one range and hands its records on, each once and in their order.

    It is the consumer of its own publisher, and of what an earlier range has left. A publisher
    whose run ends by itself after the last record can serve the range that follows. One that would
    go on, as a subscription does, is interrupted where it waits next.

    Args:
        wanted: what to read.
        context: what the consumers of one reader share.
        begin: what reading the range before has left, if that is known.
    """

    def __init__(
        self, wanted: ShardRange, context: ConsumerContext, begin: Leftover | None = None
    ) -> None:
        self._shard = Shard(stream_arn=wanted.shard.stream_arn, shard_id=wanted.shard.shard_id)
        self._end = wanted.end
        self._context = context
        self._begin = begin
        self._progress = ShardProgress(position=wanted.start, as_of=wanted.as_of)
        self._room = DeliveryRoom(self._shard.key, context)
        self._missing = context.missing(self._shard)
        self._publisher: RecordPublisher | None = None
        self._run: asyncio.Timeout | None = None
        self._rest: RecordBatch | None = None
        self._is_done = self._is_exact = self._is_complete = self._was_trimmed = False
        self._tip_since: float | None = None
        self._delivery_error: BaseException | None = None

    @property
    def processed(self) -> SequenceNumber | None:
        """The last record that was handed on, or that the range begins after."""
        return self._progress.processed

    async def run(self) -> Leftover | None:
        """Read the range; return what one that follows it may begin with, if there is anything.

        Raises:
            ReplayMismatchError: the range does not end with its last record any more.
            PositionTrimmedError: it does not begin with its first one, or its shard is gone.
            PublisherCancelledError: the publisher stopped although nobody asked it to.
            ServiceError: a failure that retrying does not mend.
        """
        start, began_at = self._progress.position, self._context.clock.monotonic()
        self._finish_if_ended()
        position: StartingPosition | None = await self._take_up(self._begin)
        while position is not None and not self._is_done:
            position = await self._read_from(position)
        seconds = self._context.clock.monotonic() - began_at
        self._context.events(
            RangeRead(shard=self._shard.key, start=start, end=self._end, seconds=seconds)
        )
        return self._leftover()

    async def _take_up(self, begin: Leftover | None) -> StartingPosition:
        if begin is not None:
            self._publisher, self._is_complete = begin.publisher, begin.is_complete
            if self._is_done:
                self._rest = begin.rest
            elif begin.rest is not None:
                await self(begin.rest)
            if self._is_complete:
                self._reach_end_of_shard()
        return self._progress.position

    async def _read_from(self, position: StartingPosition) -> StartingPosition | None:
        """Read with one publisher; return where the next one begins, or ``None`` at the end."""
        before = self._progress.position
        try:
            if self._publisher is None:
                publisher = await self._context.create_publisher(position, self._shard)
                check_publisher(publisher, self._shard)
                self._publisher = publisher
            await self._run_publisher(self._publisher)
        except PositionTrimmedError as error:
            is_stuck = (
                position.type is PositionType.TRIM_HORIZON and self._progress.position == before
            )
            # What a delivery failed with has been reported already.
            if is_stuck or error is self._delivery_error:
                raise
            place = self._progress.position
            message = f"the place where reading goes on, {place}, is not available any more."
            self._context.data_loss.report(self._shard.key, message, cause=error)
            self._publisher, self._was_trimmed = None, True
            # What is left comes after the position, or is dropped on arrival.
            return StartingPosition.trim_horizon()
        except (StreamNotFoundError, ShardNotFoundError) as error:
            if error is self._delivery_error:
                raise
            if not await self._missing.has_left(error, self._progress):
                self._publisher = None
                return position if self._progress.position == before else self._progress.position
        return None

    async def _run_publisher(self, publisher: RecordPublisher) -> None:
        while not self._is_done:
            result = await self._run_once(publisher)
            if result is None:
                self._publisher = None
            elif result is RunResult.COMPLETE:
                self._is_complete = True
                self._reach_end_of_shard()

    async def _run_once(self, publisher: RecordPublisher) -> RunResult | None:
        """Run ``publisher`` once; return its result, ``None`` if it was interrupted."""
        result = None
        # It has no deadline until the range is done, see _finish.
        self._run = timeout = asyncio.timeout(None)
        try:
            async with timeout:
                result = await publisher.run(self)
                check_result(result, publisher, self._shard, is_stopping=self._is_done)
        except TimeoutError:
            if not timeout.expired():
                raise
        finally:
            self._run = None
            # A run may end without the delivery that it asked for room for, as after a throttle.
            self._room.release()
        return None if timeout.expired() else result

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._hold_if_done()
        await self._room.acquire(records, payload_bytes)

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        await self._hold_if_done()
        batch = self._context.in_order(batch)
        self._missing.reset()
        fresh = drop_processed(batch, self.processed, self._context.events)
        covered = len(fresh) if self._end is None else fresh.count_up_to(self._end)
        await self._deliver(fresh.slice(0, covered))
        if not self._finish_if_ended():
            self._check_end(fresh, covered, batch.millis_behind_latest)
        if self._is_done and covered < len(fresh):
            # Behind the range, and taken over from the publisher all the same.
            self._rest = fresh.slice(covered, len(fresh))
            return fresh.last_sequence_number
        return self.processed

    async def _hold_if_done(self) -> None:
        if self._is_done:
            # Until the interruption comes: a publisher that asks again would go on reading.
            await asyncio.get_running_loop().create_future()

    async def _deliver(self, batch: RecordBatch) -> None:
        last = batch.last_sequence_number
        if last is None:
            self._room.release()
            return
        progress = ShardProgress(position=resume_after(last), as_of=batch.last_arrival)
        try:
            await self._check_beginning(batch)
            records = await user_records(batch, self.processed, self._context)
            if len(records):
                await self._room.deliver(records, progress)
            else:
                self._room.release()
        except BaseException as error:
            if isinstance(error, AggregationError) and error.valid_records:
                await self._deliver(batch.slice(0, error.valid_records))
            self._delivery_error = error
            raise
        self._progress = progress

    async def _check_beginning(self, batch: RecordBatch) -> None:
        """Report records that were removed between the position and the first record of a batch."""
        """Report records that were removed between the position and the first record of a batch."""
        guard, progress = self._context.data_loss, self._progress
        first, place = batch.first_sequence_number, progress.position
        if self._was_trimmed and place.type is not PositionType.AT_SEQUENCE_NUMBER:
            guard.report(
                self._shard.key,
                f"reading goes on with record {first}; all between {place} and it is skipped.",
            )
        else:
            now, arrived = batch.requested_at, batch.slice(0, 1).last_arrival
            await guard.check_beginning(self._shard, progress, now, first, arrived)
        self._was_trimmed = False

    def _finish_if_ended(self) -> bool:
        if self._end is None or self.processed != self._end:
            return False
        self._is_exact = True
        self._finish()
        return True

    def _finish(self) -> None:
        self._is_done = True
        if self._run is not None:
            # A deadline that has come already: it interrupts a publisher that waits for anything
            # more, and comes too late for one that returns.
            self._run.reschedule(asyncio.get_running_loop().time())

    def _check_end(self, fresh: RecordBatch, covered: int, lag: int | None) -> None:
        if self._end is None:
            return
        if covered < len(fresh):
            self._give_up_range(f"record {fresh.sequence_numbers[covered]} follows")
        elif lag != 0 or covered:
            self._tip_since = None
        elif self._is_tip_old():
            self._give_up_range("the tip of the shard follows")

    def _is_tip_old(self) -> bool:
        now = self._context.clock.monotonic()
        if self._tip_since is None:
            self._tip_since = now
        return now - self._tip_since >= _TIP_SECONDS

    def _reach_end_of_shard(self) -> None:
        if self._end is None:
            self._finish()
        elif not self._is_done:
            self._give_up_range("the end of the shard follows")

    def _give_up_range(self, what_follows: str) -> None:
        # Finished after that: the interruption must not take the place of the error.
        self._context.data_loss.report(
            self._shard.key,
            f"the range that ends with record {self._end} does not read the same again: "
            f"{what_follows} after {self._progress.position}.",
            kind=ReplayMismatchError,
        )
        self._finish()

    def _leftover(self) -> Leftover | None:
        publisher = None if self._is_complete else self._publisher
        has_any = self._rest is not None or publisher is not None or self._is_complete
        if self._end is None or not self._is_exact or not has_any:
            return None
        return Leftover(
            end=self._end, rest=self._rest, publisher=publisher, is_complete=self._is_complete
        )
