"""What runs publishers and what takes their records in a test: a script and two recorders."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self, TypeAlias

from attrs import frozen

from kinesis_publishers.abc import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
)
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.model import PositionType, RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import (
        Record,
        RecordBatch,
        SequenceNumber,
        Shard,
        StartingPosition,
    )

__all__ = [
    "OnDelivery",
    "ProcessBatch",
    "RecordingConsumer",
    "RecordingSink",
    "ScriptedPublisher",
    "ScriptedPublisherFactory",
    "ScriptedRun",
]

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


@frozen(kw_only=True)
class ScriptedRun:
    """What one ``run`` does: deliver, then return or fail.

    Attributes:
        batches: what is delivered, in order.
        result: what is returned.
        error: what is raised instead.
    """

    batches: Sequence[RecordBatch] = ()
    result: RunResult = RunResult.INCOMPLETE
    error: Exception | None = None


class ScriptedPublisher(RecordPublisher):
    """Does one :class:`ScriptedRun` after the other; after the last one the shard has ended.

    Attributes:
        processed: what the consumer answered to each batch.
    """

    def __init__(self, runs: Sequence[ScriptedRun]) -> None:
        self._runs = deque(runs)
        self.processed: list[SequenceNumber | None] = []

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        if not self._runs:
            return RunResult.COMPLETE
        script = self._runs.popleft()
        for batch in script.batches:
            await consumer.wait_for_space(len(batch), batch.payload_bytes)
            self.processed.append(await consumer(batch))
        if script.error is not None:
            raise script.error
        return script.result


class ScriptedPublisherFactory(RecordPublisherFactory):
    """Makes one scripted publisher for each time that it is asked.

    Args:
        scripts: the runs of the first publisher, of the second one, and so on.

    Attributes:
        positions: where each publisher was told to begin.
        publishers: the publishers that were made.
        is_closed: whether :meth:`close` was called.
    """

    def __init__(self, *scripts: Sequence[ScriptedRun]) -> None:
        self._scripts = deque(scripts)
        self.positions: list[StartingPosition] = []
        self.publishers: list[ScriptedPublisher] = []
        self.is_closed = False

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        """Return a factory whose shards are empty: nothing in a configuration is a script."""
        return cls()

    async def create(self, starting_position: StartingPosition, shard: Shard) -> ScriptedPublisher:
        if starting_position.type is PositionType.LATEST:
            raise ValueError("LATEST must be pinned to an instant before it is read from")
        self.positions.append(starting_position)
        script = self._scripts.popleft() if self._scripts else ()
        self.publishers.append(ScriptedPublisher(script))
        return self.publishers[-1]

    async def close(self) -> None:
        self.is_closed = True
