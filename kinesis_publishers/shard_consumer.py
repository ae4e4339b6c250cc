"""The loop over one shard: runs its publisher, keeps its position, and hands its records on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc.record_publisher import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.errors import (
    PositionTrimmedError,
    PublisherCancelledError,
    ReplayMismatchError,
    ServiceError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from kinesis_publishers.events import EventSink, RecordsSkipped, ShardEnded, ShardStarted
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

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.data_loss import DataLossGuard
    from kinesis_publishers.pending_pool import PendingPool, Reservation

__all__ = [
    "ConsumerContext",
    "CreatePublisher",
    "Delivery",
    "DeliverySink",
    "HasShard",
    "ShardConsumer",
    "ShardStatus",
]

CreatePublisher: TypeAlias = Callable[[StartingPosition, Shard], Awaitable[RecordPublisher]]
HasShard: TypeAlias = Callable[[Shard], Awaitable[bool]]


@frozen(eq=False)
class Delivery:
    """Records on their way to the application, with their share of the pending pool.

    Attributes:
        batch: at least one record.
        progress: how far the shard has been read with this delivery included.
    """

    batch: RecordBatch
    progress: ShardProgress
    _reservation: Reservation

    @property
    def shard(self) -> Shard:
        return self.batch.shard

    def release(self) -> None:
        """Give the share of the pool back once the records are not held any more."""
        self._reservation.release()


@frozen(kw_only=True)
class ShardStatus:
    """How far a shard has been read.

    Attributes:
        shard: which shard.
        progress: where reading goes on.
        millis_behind_latest: how far the last answer was behind the tip; ``None`` until one says.
        tip_seen_at: when the last answer that reached the tip was asked for; ``None`` before it.
    """

    shard: Shard
    progress: ShardProgress
    millis_behind_latest: int | None = None
    tip_seen_at: datetime | None = None


class DeliverySink(ABC):
    """What a fetcher hands records and facts to."""

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> None:
        """Take a delivery and see to its release; returning means that it counts as processed."""

    def observe(self, status: ShardStatus) -> None:  # noqa: B027 - optional to override
        """Learn how far a shard has been read; called after each answer, empty ones included."""

    def observe_discovery(self) -> None:  # noqa: B027 - optional to override
        """Learn that the shards have been listed again, and that what could start was started."""


@frozen(kw_only=True)
class ConsumerContext:
    """What the consumers of one fetcher share.

    Attributes:
        create_publisher: makes what reads a shard.
        pool: the budget of all shards together.
        sink: what records and facts are handed to.
        data_loss: what follows when records are gone.
        clock: the only source of time.
        events: where diagnostic events go.
        has_shard: asks the service whether a shard is still listed. The service calls a shard that
            has left the retention not found, in the words that it has for a missing stream; without
            this question a missing stream is what it is taken for.
    """

    create_publisher: CreatePublisher
    pool: PendingPool
    sink: DeliverySink
    data_loss: DataLossGuard
    clock: Clock
    events: EventSink
    has_shard: HasShard | None = None


class _Stopped(BaseException):
    """Ends the run of a publisher that would go on delivering; never leaves this module."""


@define(eq=False)
class ShardConsumer(RecordBatchConsumer):
    """Reads one shard, from a position to its end or to a given record.

    It is the consumer of its own publisher. The position follows what the sink has taken, never
    what was fetched; records at or before it are dropped, so that each is delivered once.

    Args:
        shard: what to read.
        progress: where to begin; it moves with every delivery.
        context: what the consumers of a fetcher share.
        end: the last record to deliver; ``None`` reads to the end of the shard.
    """

    shard: Shard
    progress: ShardProgress
    context: ConsumerContext
    end: SequenceNumber | None = None
    _millis_behind_latest: int | None = field(default=None, init=False)
    _tip_seen_at: datetime | None = field(default=None, init=False)
    _reservation: Reservation | None = field(default=None, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _is_delivering: bool = field(default=False, init=False)
    _is_range_done: bool = field(default=False, init=False)
    _delivery_error: BaseException | None = field(default=None, init=False)

    @property
    def status(self) -> ShardStatus:
        return ShardStatus(
            shard=self.shard,
            progress=self.progress,
            millis_behind_latest=self._millis_behind_latest,
            tip_seen_at=self._tip_seen_at,
        )

    @property
    def is_delivering(self) -> bool:
        """Whether the application is processing records right now."""
        return self._is_delivering

    def stop(self) -> None:
        """Make :meth:`run` return after the delivery in flight, or else after the next one.

        It interrupts nothing: who does not want to wait for the next answer, which may be an empty
        one, cancels the task unless :attr:`is_delivering`.
        """
        self._is_stopping = True

    async def run(self) -> None:
        """Read until the end of the shard, the end of the range, or :meth:`stop`.

        Raises:
            DataLossError: records are gone, and the configuration does not tolerate it.
            PublisherCancelledError: the publisher stopped although nobody asked it to.
            ServiceError: a failure that retrying does not mend.
        """
        context = self.context
        position: StartingPosition | None = self.progress.position
        context.events(ShardStarted(shard=self.shard.key, position=self.progress.position))
        if self.end is None:
            await context.data_loss.check_retention(self.shard, self.progress, context.clock.now())
        while position is not None:
            position = await self._read_from(position)

    async def _read_from(self, position: StartingPosition) -> StartingPosition | None:
        """Read with one publisher; return where the next one begins, or ``None`` at the end."""
        before = self.progress.position
        try:
            publisher = await self.context.create_publisher(position, self.shard)
            await self._run_publisher(publisher)
        except PositionTrimmedError as error:
            is_stuck = (
                position.type is PositionType.TRIM_HORIZON and self.progress.position == before
            )
            # What a delivery failed with has been reported already.
            if is_stuck or error is self._delivery_error:
                raise
            await self._report_trimmed(error)
            # Whatever is left comes after the position, or is dropped on arrival.
            return StartingPosition.trim_horizon()
        except (StreamNotFoundError, ShardNotFoundError) as error:
            if error is self._delivery_error or not await self._has_left_retention(error):
                raise
            self._give_up_shard(error)
        return None

    async def _run_publisher(self, publisher: RecordPublisher) -> None:
        while not self._is_done:
            result = await self._run_once(publisher)
            if result is RunResult.COMPLETE:
                self._complete()
                return
            if result is RunResult.CANCELLED and not self._is_stopping:
                raise PublisherCancelledError(
                    f"{self.shard}: {type(publisher).__name__} returned CANCELLED, but nobody "
                    "asked it to stop. A publisher may return it only after it was told to."
                )

    async def _run_once(self, publisher: RecordPublisher) -> RunResult | None:
        """Run ``publisher``; return its result, or ``None`` if it was stopped from here."""
        try:
            return await publisher.run(self)
        # With the star it is also found in the group that a publisher's own asyncio.TaskGroup makes
        # of it.
        except* _Stopped:
            pass
        finally:
            # A run may end without the delivery that it asked for room for, as after a throttle.
            self._release()
        return None

    @property
    def _is_done(self) -> bool:
        return self._is_stopping or self._is_range_done

    def _complete(self) -> None:
        if self.end is None:
            self._end_shard()
        else:
            self._give_up_range("the end of the shard follows")

    def _end_shard(self) -> None:
        self.progress = self.progress.ended()
        self.context.events(ShardEnded(shard=self.shard.key))
        self.context.sink.observe(self.status)

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        self._release()
        self._raise_if_done()
        self._reservation = await self.context.pool.acquire(records, payload_bytes)
        self._raise_if_done()

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        fresh = self._cut_at_end(self._drop_processed(batch))
        progress = self._progress_after(fresh, batch)
        if len(fresh):
            await self._deliver(fresh, progress)
        else:
            self._release()
        self.progress = progress
        self._millis_behind_latest = batch.millis_behind_latest
        if batch.millis_behind_latest == 0:
            self._tip_seen_at = batch.requested_at
        self.context.sink.observe(self.status)
        self._note_end_of_range(batch)
        self._raise_if_done()
        return self.progress.processed

    def _raise_if_done(self) -> None:
        # A fan-out subscription lasts for minutes: its end is not waited for.
        if self._is_done:
            raise _Stopped

    def _drop_processed(self, batch: RecordBatch) -> RecordBatch:
        processed = self.progress.processed
        # The normal case costs one comparison.
        if processed is None or not len(batch) or batch.first_sequence_number > processed:
            return batch
        repeated = batch.count_up_to(processed)
        self.context.events(RecordsSkipped(shard=self.shard.key, records=repeated))
        return batch.slice(repeated, len(batch))

    def _cut_at_end(self, batch: RecordBatch) -> RecordBatch:
        return batch if self.end is None else batch.slice(0, batch.count_up_to(self.end))

    def _progress_after(self, fresh: RecordBatch, answer: RecordBatch) -> ShardProgress:
        last = fresh.last_sequence_number
        instants = [self.progress.as_of, fresh.last_arrival]
        if answer.millis_behind_latest == 0:
            instants.append(answer.requested_at)
        return ShardProgress(
            position=self.progress.position if last is None else resume_after(last),
            as_of=max((instant for instant in instants if instant is not None), default=None),
        )

    async def _deliver(self, batch: RecordBatch, progress: ShardProgress) -> None:
        if self._reservation is None:
            self._reservation = await self.context.pool.acquire(len(batch), batch.payload_bytes)
        reservation, self._reservation = self._reservation, None
        reservation.resize(len(batch), batch.payload_bytes)
        try:
            await self._check_gap(batch)
            await self._hand_over(Delivery(batch, progress, reservation))
        except BaseException as error:
            reservation.release()
            self._delivery_error = error
            raise

    async def _hand_over(self, delivery: Delivery) -> None:
        # Not around the question for the retention before it: that one may be cancelled.
        self._is_delivering = True
        try:
            await self.context.sink.deliver(delivery)
        finally:
            self._is_delivering = False

    async def _check_gap(self, batch: RecordBatch) -> None:
        """Report records that were removed between the position and the first record of a batch."""
        position, guard = self.progress.position, self.context.data_loss
        if position.type is PositionType.AT_SEQUENCE_NUMBER and self.progress.processed is None:
            if batch.first_sequence_number != position.sequence_number:
                guard.report(
                    self.shard.key,
                    f"record {position.sequence_number} is gone; the next one that the stream "
                    f"still holds is {batch.first_sequence_number}.",
                )
        elif self.end is None:
            await guard.check_retention(self.shard, self.progress, batch.requested_at)

    async def _report_trimmed(self, error: PositionTrimmedError) -> None:
        guard, progress = self.context.data_loss, self.progress
        is_idle = progress.as_of is not None and not await guard.may_have_lost(
            self.shard, progress, self.context.clock.now()
        )
        if self.end is not None or not is_idle:
            guard.report(
                self.shard.key,
                f"the place where reading goes on, {progress.position}, is not available any more.",
                cause=error,
            )

    async def _has_left_retention(self, error: ServiceError) -> bool:
        """Say whether the stream is there without the shard."""
        if isinstance(error, ShardNotFoundError):
            return True
        has_shard = self.context.has_shard
        try:
            return has_shard is not None and not await has_shard(self.shard)
        except StreamNotFoundError:
            return False

    def _give_up_shard(self, cause: ServiceError) -> None:
        self.context.data_loss.report(
            self.shard.key,
            f"the shard was not read to its end (only to {self.progress.position}) and has left "
            "the retention: the stream does not list it any more.",
            cause=cause,
        )
        if self.end is None:
            self._end_shard()

    def _note_end_of_range(self, answer: RecordBatch) -> None:
        if self.end is None:
            return
        covered = answer.count_up_to(self.end)
        if self.progress.processed == self.end:
            self._is_range_done = True
        elif covered < len(answer):
            self._give_up_range(f"record {answer.sequence_numbers[covered]} follows")
        elif answer.millis_behind_latest == 0:
            self._give_up_range("the tip of the shard follows")

    def _give_up_range(self, what_follows: str) -> None:
        self._is_range_done = True
        self.context.data_loss.report(
            self.shard.key,
            f"the range that ends with record {self.end} does not read the same again: "
            f"{what_follows} after {self.progress.position}.",
            kind=ReplayMismatchError,
        )

    def _release(self) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()
