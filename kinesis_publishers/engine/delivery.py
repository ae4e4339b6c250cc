"""Records on their way to the application: deliveries, their sink, and the room for them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc import RecordPublisher
from kinesis_publishers.aggregation.codec import has_aggregates
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.pool import PendingPool, Reservation
from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    InternalServiceError,
    ProcessingCancelledError,
    ServiceError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from kinesis_publishers.events import (
    BackpressureBegan,
    BackpressureEnded,
    EventSink,
    ProcessingFailed,
    RecordsProcessed,
    RecordsSkipped,
    ignore_event,
)
from kinesis_publishers.model import (
    ChildShard,
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.retry import RetryBudget, RetryPolicy
from kinesis_publishers.tasks import cancelled_from_outside_only

#: What the service says of a shard that it does not find; :class:`MissingShard` decides.
SHARD_NOT_FOUND = (StreamNotFoundError, ShardNotFoundError, ConsumerNotFoundError)

_LOGGER = logging.getLogger(__name__)

# Longer than the pause between two answers of an idle shard, by any publisher.
_TIP_LASTS_SECONDS = 30.0

CreatePublisher: TypeAlias = "Callable[[StartingPosition, Shard], Awaitable[RecordPublisher]]"
HasShard: TypeAlias = Callable[[Shard], Awaitable[bool]]

# What is listed and yet not found is so for a moment, on a node that has not heard of it.
_ASK_AGAIN = RetryPolicy(
    max_retries=0, base_seconds=1.0, max_seconds=5.0, exponent=1.5, outage_seconds=300.0
)


@frozen(eq=False)
class Delivery:
    """Records on their way to the application, with their share of the pending pool.

    Attributes:
        batch: at least one record.
        progress: how far the shard has been read with this delivery included.
        reservation: its share of the pool, in case the delivery is dropped before the records.
    """

    batch: RecordBatch
    progress: ShardProgress
    reservation: Reservation

    @property
    def shard(self) -> Shard:
        return self.batch.shard

    def release(self) -> None:
        """Give the share of the pool back once the records are no longer held."""
        self.reservation.release()


@frozen(kw_only=True)
class ShardStatus:
    """How far a shard has been read.

    Attributes:
        shard: which shard.
        progress: where reading continues.
        millis_behind_latest: how far the last answer was behind the tip; ``None`` until one says.
        read_until: what arrived earlier has been read, by the reader's clock; ``None`` until an
            answer says how far behind the tip it is. Of a subscription it is when that began.
        answered_at: when the last answer came, if that is known.
        is_delivering: whether the application is processing records of it.
        child_shards: what continues the shard, as far as its last answer names it.
        is_polled: whether its answers are asked for one by one, and so may be timed.
    """

    shard: Shard
    progress: ShardProgress
    millis_behind_latest: int | None = None
    read_until: datetime | None = None
    answered_at: datetime | None = None
    is_delivering: bool = False
    child_shards: tuple[ChildShard, ...] = ()
    is_polled: bool = False

    def lag_seconds(self, now: datetime) -> float | None:
        """Return how long records may have waited to be processed; ``None`` if nothing tells.

        It is 0 at the tip, however old the last record is, and grows where answers stay away.
        """
        if self.read_until is None:
            return None
        seen = max(self.read_until, self.progress.as_of or self.read_until)
        age = (now - max(seen, self.answered_at or seen)).total_seconds()
        is_idle = self.millis_behind_latest == 0 and not self.is_delivering
        if is_idle and age < _TIP_LASTS_SECONDS:
            return 0.0
        return max(0.0, (now - seen).total_seconds())


class DeliverySink(ABC):
    """What records and facts are handed to."""

    takes_failures = False  # Whether an error policy takes the ``failures`` of a batch.

    @abstractmethod
    async def deliver(self, delivery: Delivery) -> None:
        """Take a delivery and see to its release; after that it counts as processed."""

    def observe(self, status: ShardStatus) -> None:  # noqa: B027 - optional to override
        """Learn how far a shard has been read; called after each answer, empty ones included.

        Those that come while a delivery is in progress are told of together, after it.
        Only while whole shards are read: the reader of a range knows where it ends.
        """

    async def wait_until_wanted(self, shard: ShardKey) -> None:  # noqa: B027 - optional
        """Wait while more of a shard is not wanted; called before each poll and each event."""

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:  # noqa: B027 - optional
        """Learn that another worker is to read a shard: finish with what was delivered of it.

        Args:
            shard: which one; nothing more of it is delivered, unless it comes back later.
            is_lost: whether the other worker has it already: it processes again what has not been
                recorded. Otherwise it waits until the delivery in progress is over.
        """

    def observe_discovery(self) -> None:  # noqa: B027 - optional to override
        """Learn that the shards were listed again and that those that may start have started."""


class ForwardingSink(DeliverySink):
    """Passes everything on; what stands before another sink overrides what it changes."""

    def __init__(self, inner: DeliverySink) -> None:
        self._inner = inner
        self.takes_failures = inner.takes_failures

    async def deliver(self, delivery: Delivery) -> None:
        await self._inner.deliver(delivery)

    def observe(self, status: ShardStatus) -> None:
        self._inner.observe(status)

    async def wait_until_wanted(self, shard: ShardKey) -> None:
        await self._inner.wait_until_wanted(shard)

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        self._inner.withdraw(shard, is_lost=is_lost)

    def observe_discovery(self) -> None:
        self._inner.observe_discovery()


@frozen(kw_only=True)
class ConsumerContext:
    """What the consumers of one fetcher share.

    Attributes:
        has_shard: asks the service whether a shard is still listed. The service calls a shard that
            has left the retention not found, in the words that it has for a missing stream; without
            this question a missing stream is what it is taken for.
    """

    create_publisher: CreatePublisher
    pool: PendingPool
    sink: DeliverySink
    aggregates: Deaggregator
    data_loss: DataLossGuard
    clock: Clock
    events: EventSink
    has_shard: HasShard | None = None
    # Of these it was said that their records came out of order.
    _disordered: set[ShardKey] = field(factory=set, init=False)

    def missing(self, shard: Shard) -> MissingShard:
        """Return what decides if the service does not find ``shard``."""
        return MissingShard(shard, self.data_loss, self.has_shard, self.clock, self.events)

    def in_order(self, batch: RecordBatch) -> RecordBatch:
        """Return ``batch`` with its records ascending, each once."""
        ordered, shard = batch.in_order(), batch.shard.key
        if repeated := len(batch) - len(ordered):
            self.events(RecordsSkipped(shard=shard, records=repeated))
        if ordered is not batch and shard not in self._disordered:
            self._disordered.add(shard)
            _LOGGER.warning(
                "%s: an answer has records out of order or repeated. They are delivered in order "
                "and once, but the server is faulty. This is logged once per shard.",
                shard,
            )
        return ordered


@define(eq=False)
class DeliveryRoom:
    """The share of the pool that one consumer holds for its next delivery.

    Attributes:
        oldest: when the first record arrived of those that the application is processing right
            now; ``None`` if there are none.
    """

    _shard: ShardKey
    _context: ConsumerContext
    oldest: datetime | None = field(default=None, init=False)
    _reservation: Reservation | None = field(default=None, init=False)

    async def acquire(self, records: int, payload_bytes: int) -> None:
        """Wait for about so much room, in place of what is held."""
        if not self.try_acquire(records, payload_bytes):
            self._reservation = await self._wait_for_room(records, payload_bytes)

    def try_acquire(self, records: int, payload_bytes: int) -> bool:
        """Take so much room, in place of what is held, if there is some that nothing waits for."""
        self.release()
        self._reservation = self._context.pool.try_acquire(records, payload_bytes)
        return self._reservation is not None

    async def _wait_for_room(self, records: int, payload_bytes: int) -> Reservation:
        context, shard = self._context, self._shard
        context.events(BackpressureBegan(shard=shard, records=records, payload_bytes=payload_bytes))
        began_at = context.clock.monotonic()
        try:
            return await context.pool.acquire(records, payload_bytes, shard)
        finally:
            seconds = context.clock.monotonic() - began_at
            context.events(BackpressureEnded(shard=shard, seconds=seconds))

    async def take(self, batch: RecordBatch) -> Reservation:
        """Return the room for ``batch``, which is not empty: what is held, or is waited for now."""
        if self._reservation is None:
            await self.acquire(len(batch), batch.payload_bytes)
        reservation, self._reservation = self._reservation, None
        assert reservation is not None
        reservation.resize(len(batch), batch.payload_bytes)
        return reservation

    async def deliver(self, delivery: Delivery) -> None:
        """Hand records over in the room that they have."""
        self.oldest = delivery.batch.slice(0, 1).last_arrival
        try:
            await self._process(delivery)
        except BaseException:
            delivery.release()
            raise
        finally:
            self.oldest = None

    async def _process(self, delivery: Delivery) -> None:
        context, shard = self._context, self._shard
        # Taken before the application may drop or change anything.
        records, payload_bytes = len(delivery.batch), delivery.batch.payload_bytes
        began_at = context.clock.monotonic()
        try:
            with cancelled_from_outside_only(
                ProcessingCancelledError, f"{shard}: what takes the records"
            ):
                await context.sink.deliver(delivery)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            context.events(ProcessingFailed(shard=shard, records=records, error=text))
            raise
        context.events(
            RecordsProcessed(
                shard=shard,
                records=records,
                payload_bytes=payload_bytes,
                seconds=context.clock.monotonic() - began_at,
            )
        )

    def release(self) -> None:
        """Give the room back, if any is held."""
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None


def drop_processed(
    batch: RecordBatch, processed: SequenceNumber | None, events: EventSink = ignore_event
) -> RecordBatch:
    """Return the records of ``batch`` that come after ``processed``."""
    # The normal case costs one comparison.
    if processed is None or not len(batch) or batch.first_sequence_number > processed:
        return batch
    repeated = batch.count_up_to(processed)
    events(RecordsSkipped(shard=batch.shard.key, records=repeated))
    return batch.slice(repeated, len(batch))


async def user_records(
    batch: RecordBatch,
    processed: SequenceNumber | None,
    context: ConsumerContext,
    shard: Shard | None = None,
) -> RecordBatch:
    """Return what producers put of ``batch``, deaggregated, as far as it is still unread.

    Args:
        batch: whole records that come after ``processed``, or hold it.
        processed: where reading continues, possibly inside an aggregate.
        context: what the consumers share.
        shard: where ``batch`` comes from, as ListShards gives it; ``None`` if only its name is
            known.
    """
    records = await context.aggregates.expand(batch, shard)
    if records is not batch:
        records = drop_processed(records, processed, context.events)
    if processed is None or processed.sub_sequence_number != 0 or not len(records):
        return records
    # The Kinesis Client Library counts a record outside of aggregates as the first inside itself.
    is_plain = records.first_sequence_number == processed.whole
    if is_plain and not has_aggregates(records.payloads[:1]):
        records = drop_processed(records, processed.whole, context.events)
    return records


class MissingShard:
    """Decides what it means that the service does not find a shard, or its stream.

    ``has_shard`` is as in :class:`ConsumerContext`.
    """

    def __init__(
        self,
        shard: Shard,
        guard: DataLossGuard,
        has_shard: HasShard | None,
        clock: Clock,
        events: EventSink,
    ) -> None:
        self._shard, self._guard, self._has_shard, self._clock = shard, guard, has_shard, clock
        self._retries = RetryBudget(_ASK_AGAIN, clock, events=events, shard=shard.key)

    def reset(self) -> None:
        """Note that the shard was found."""
        self._retries.reset()

    async def has_left(self, error: ServiceError, progress: ShardProgress) -> bool:
        """Report a shard that has left the retention; wait if shard and stream are there.

        Raises:
            DataLossError: the shard has left, and loss is not tolerated.
            StreamRecreatedError: the stream is not the one that was read.
            ServiceError: ``error``: the stream is gone, or there is nothing to ask.
            RetriesExhaustedError: both have been there for long, and yet were not found.
        """
        shard, is_listed = self._shard, None
        await self._guard.check_identity(shard.stream_arn, cause=error)
        if isinstance(error, ShardNotFoundError):
            is_listed = False
        elif self._has_shard is not None:
            with suppress(StreamNotFoundError):
                is_listed = await self._has_shard(shard)
        if is_listed is False:
            self._guard.report_unread(shard.key, progress, cause=error)
            return True
        if is_listed is None or not isinstance(error, StreamNotFoundError):
            raise error
        doubted = InternalServiceError(
            f"{str(error).rstrip('.')}. But stream and shard are listed.",
            operation=error.operation,
            code=error.code,
        )
        await self._clock.sleep(self._retries.delay_after(doubted))
        return False
