"""What records are handed to in a test, and what it remembers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus

if TYPE_CHECKING:
    from kinesis_publishers.model import Record, RecordBatch, SequenceNumber

__all__ = ["OnDelivery", "ProcessBatch", "RecordingConsumer", "RecordingSink"]

ProcessBatch: TypeAlias = "Callable[[RecordBatch], Awaitable[SequenceNumber | None]]"
OnDelivery: TypeAlias = Callable[[Delivery], Awaitable[None]]


class RecordingConsumer(RecordBatchConsumer):
    """Takes what a publisher delivers.

    Args:
        process: says what has been processed after each batch; unless it is given, everything has.

    Attributes:
        batches: every batch, in order, empty ones included.
        space_requests: every (records, bytes) that :meth:`wait_for_space` was asked for.
        history: ``"space"`` and ``"batch"`` in the order in which they came.
    """

    def __init__(self, process: ProcessBatch | None = None) -> None:
        self._process = process
        self._processed: SequenceNumber | None = None
        self.batches: list[RecordBatch] = []
        self.space_requests: list[tuple[int, int]] = []
        self.history: list[str] = []

    @property
    def records(self) -> list[Record]:
        """Every record, in the order of delivery."""
        return [record for batch in self.batches for record in batch]

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        self.history.append("space")
        self.space_requests.append((records, payload_bytes))

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.history.append("batch")
        self.batches.append(batch)
        if self._process is not None:
            return await self._process(batch)
        self._processed = batch.last_sequence_number or self._processed
        return self._processed


class RecordingSink(DeliverySink):
    """Takes what a fetcher delivers.

    Args:
        on_delivery: is awaited with each delivery before it counts as processed: where a test
            blocks, or raises.
        release: give each delivery's share of the pool back at once; otherwise the test does.

    Attributes:
        deliveries: every delivery that was offered, in order.
        statuses: everything that was observed, in order.
    """

    def __init__(self, on_delivery: OnDelivery | None = None, *, release: bool = True) -> None:
        self._on_delivery = on_delivery
        self._release = release
        self.deliveries: list[Delivery] = []
        self.statuses: list[ShardStatus] = []

    @property
    def records(self) -> list[Record]:
        """Every record, in the order of delivery."""
        return [record for delivery in self.deliveries for record in delivery.batch]

    def records_of(self, shard_id: str) -> list[Record]:
        """Return the records of one shard, in the order of delivery."""
        return [record for record in self.records if record.shard_id == shard_id]

    async def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self._on_delivery is not None:
            await self._on_delivery(delivery)
        if self._release:
            delivery.release()

    def observe(self, status: ShardStatus) -> None:
        self.statuses.append(status)
