"""The heart of FLIP-128: what reads one shard, and what it hands its records to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.model import RecordBatch, RunResult, SequenceNumber

__all__ = ["RecordBatchConsumer", "RecordPublisher"]


class RecordBatchConsumer(ABC):
    """What a publisher hands records to: an async callable that also gives permission to ask."""

    @abstractmethod
    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Wait until there is room for about this much, before it is asked for.

        This is the backpressure: it blocks for as long as the application is behind. The room is
        held until the next delivery, whose true size replaces the estimate, or until the end of
        the run. A publisher that cannot estimate may leave it out; then the delivery itself waits.
        """

    @abstractmethod
    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take ``batch``, which may be empty, and return when it has been processed.

        Returns:
            The last *processed* record, from which the publisher derives where it goes on; ``None``
            while nothing has been processed at all.
        """


class RecordPublisher(ABC):
    """Reads one shard and publishes its records (FLIP-128, *Record Publisher*).

    A publisher is made for one shard and one starting position, and is run by one task at a time.
    """

    @abstractmethod
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        """Read once and deliver: at most one GetRecords, or one subscription.

        A run that could not read for now, because the service refused or failed, ends INCOMPLETE
        without a delivery; it does not hold room while it waits for a better moment.

        Records are delivered in their order, and the next delivery is made only after the consumer
        has returned. Position moves only to what the consumer says it has processed. Cancelling the
        task stops the publisher; it raises ``CancelledError`` and leaves nothing open.

        Raises:
            ServiceError: a failure that retrying does not mend.
            PositionTrimmedError: the service shows that records after the position are gone.
        """
