"""What the consumers of a fetcher share: room for deliveries, the rules of records and shards."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc import RecordPublisher
from kinesis_publishers.aggregation.codec import has_aggregates
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.delivery import Delivery, DeliverySink
from kinesis_publishers.engine.ending import ReadingEnd
from kinesis_publishers.engine.pool import PendingPool, Reservation
from kinesis_publishers.errors import ProcessingCancelledError
from kinesis_publishers.events import (
    BackpressureBegan,
    BackpressureEnded,
    EventSink,
    ProcessingFailed,
    RecordsProcessed,
    RecordsSkipped,
    ignore_event,
)
from kinesis_publishers.model import RecordBatch, SequenceNumber, Shard, ShardKey, StartingPosition
from kinesis_publishers.tasks import cancelled_from_outside_only

_LOGGER = logging.getLogger(__name__)

CreatePublisher: TypeAlias = "Callable[[StartingPosition, Shard], Awaitable[RecordPublisher]]"


@frozen(kw_only=True)
class ConsumerContext:
    """What the consumers of one fetcher share.

    Attributes:
        end: where reading of whole shards ends, if it does.
    """

    create_publisher: CreatePublisher
    pool: PendingPool
    sink: DeliverySink
    aggregates: Deaggregator
    data_loss: DataLossGuard
    clock: Clock
    events: EventSink
    end: ReadingEnd | None = None
    # A warning was logged about the order of their records.
    _disordered: set[ShardKey] = field(factory=set, init=False)

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
    """The share of the pool that one consumer holds for its next delivery."""

    _shard: ShardKey
    _context: ConsumerContext
    # The arrival times of the first records of the deliveries in progress.
    _delivering: list[datetime | None] = field(factory=list, init=False)
    _reservation: Reservation | None = field(default=None, init=False)

    @property
    def is_delivering(self) -> bool:
        """Whether records are being processed."""
        return bool(self._delivering)

    @property
    def oldest(self) -> datetime | None:
        """The arrival time of the first record in processing, if there is one."""
        return self._delivering[0] if self._delivering else None

    async def acquire(self, records: int, payload_bytes: int) -> None:
        """Release what is held, and wait for about this much room."""
        if self.try_acquire(records, payload_bytes):
            return
        context, shard = self._context, self._shard
        context.events(BackpressureBegan(shard=shard, records=records, payload_bytes=payload_bytes))
        began_at = context.clock.monotonic()
        try:
            self._reservation = await context.pool.acquire(records, payload_bytes, shard)
        finally:
            seconds = context.clock.monotonic() - began_at
            context.events(BackpressureEnded(shard=shard, seconds=seconds))

    def try_acquire(self, records: int, payload_bytes: int) -> bool:
        """Release what is held, and take this much room if no other consumer waits for it."""
        self.release()
        self._reservation = self._context.pool.try_acquire(records, payload_bytes)
        return self._reservation is not None

    async def take(self, batch: RecordBatch) -> Reservation:
        """Return the room for ``batch``, which has records; wait for room if none is held."""
        if self._reservation is None:
            await self.acquire(len(batch), batch.payload_bytes)
        reservation, self._reservation = self._reservation, None
        assert reservation is not None
        reservation.resize(len(batch), batch.payload_bytes)
        return reservation

    async def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery to the application."""
        context, shard = self._context, self._shard
        # Taken before the application may drop or change anything.
        records, payload_bytes = len(delivery.batch), delivery.batch.payload_bytes
        oldest = delivery.batch.slice(0, 1).last_arrival
        self._delivering.append(oldest)
        began_at = context.clock.monotonic()
        try:
            with cancelled_from_outside_only(
                ProcessingCancelledError, f"{shard}: what takes the records"
            ):
                await context.sink.deliver(delivery)
        except BaseException as error:
            delivery.release()
            if isinstance(error, Exception):
                text = f"{type(error).__name__}: {error}"
                context.events(ProcessingFailed(shard=shard, records=records, error=text))
            raise
        finally:
            self._delivering.remove(oldest)
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
    """Deaggregate ``batch``, and return the records that are still unread.

    Args:
        batch: stored records that follow ``processed`` or contain it.
        processed: where reading continues, possibly inside an aggregate.
        context: what the consumers share.
        shard: as ListShards describes it; ``None`` if only its name is known.
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
