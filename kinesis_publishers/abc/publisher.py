"""The heart of FLIP-128: what reads a shard and takes its records, and what makes publishers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Self, TypeAlias

from attrs import frozen

from kinesis_publishers.abc.planes import ControlContext, DataPlane
from kinesis_publishers.config import Properties
from kinesis_publishers.model import RecordBatch, RunResult, SequenceNumber, Shard, StartingPosition
from kinesis_publishers.model.sources import BuiltInPublisher

PollRest: TypeAlias = "Callable[[StartingPosition, Shard], Awaitable[RecordPublisher | None]]"


class RecordBatchConsumer(ABC):
    """Takes the records of a publisher, and tells it when to ask for more."""

    @property
    def records_wanted(self) -> int | None:
        """How many Kinesis records the next answer should have at most; ``None`` for any number.

        What comes after them may be fetched in vain.
        """
        return None

    @abstractmethod
    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Wait until there is room for about this much, before the service is asked for it.

        This is the backpressure. The room is reserved until the next delivery, whose true size
        replaces the estimate, or until the end of the run. Without this call, the delivery waits.
        """

    @abstractmethod
    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take ``batch``, which may be empty, and return when it has been processed.

        Returns:
            The last *processed* record, after which the publisher continues; ``None`` while nothing
            has been processed. For a publisher that reads ahead, the last one that was *taken*.
        """


class RecordPublisher(ABC):
    """Reads one shard and publishes its records (FLIP-128, *Record Publisher*).

    A publisher is made for one shard and one starting position, and is run by one task at a time.

    Attributes:
        reads_ahead: whether it may continue while the application still processes what it has
            delivered; not for one that confirms to its source what was processed.
    """

    reads_ahead: ClassVar[bool] = False

    @abstractmethod
    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        """Read once and deliver: at most one GetRecords, or one subscription.

        A run that cannot read for now ends INCOMPLETE without a delivery; it does not reserve room
        while it waits. Records are delivered in their order, each delivery after the consumer has
        returned from the one before. The position moves only to what the consumer reports as
        processed. Cancelling the task stops the publisher; it raises ``CancelledError`` and leaves
        nothing open.

        Raises:
            ServiceError: a failure that retries do not resolve.
            PositionTrimmedError: the service shows that records after the position are gone.
        """


@frozen(kw_only=True)
class PublisherContext(ControlContext):
    """What a factory may use; the fetcher owns all of it.

    Attributes:
        data_plane: one client for all shards.
        poll_rest: returns a publisher that polls a shard that ListShards has shown as closed,
            ``None`` for any other shard; for a publisher that does not find the end of a shard.
    """

    data_plane: DataPlane
    poll_rest: PollRest | None = None


class RecordPublisherFactory(ABC):
    """Creates a :class:`RecordPublisher` per shard (FLIP-128, *Record Publisher Factory*).

    ``stream.recordpublisher`` names one: POLLING, an entry point, or ``module:Class``. A class
    states its capabilities itself: a subclass may read in another way, and inherits none.

    Attributes:
        reads_ranges: whether its publishers agree with GetRecords, by which ``spark.read`` plans,
            about where a range ends.
        subscribes: whether its publishers hold the one subscription that a consumer has to a shard,
            and GetRecords gives the same records in its place.
        needs_registration: whether its publishers read with registered stream consumers.
    """

    reads_ranges: ClassVar[bool] = False
    subscribes: ClassVar[bool] = False
    needs_registration: ClassVar[bool] = False

    def __init_subclass__(cls, known: BuiltInPublisher | None = None, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        for capability in ("reads_ranges", "subscribes", "needs_registration"):
            if capability not in vars(cls):
                setattr(cls, capability, getattr(known, capability, False))

    @classmethod
    @abstractmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        """Return a factory configured by ``properties``.

        Raises:
            ConfigError: the properties cannot work; no call to AWS is made to find out.
        """

    async def prepare(self, stream_arns: Sequence[str]) -> None:  # noqa: B027 - most need nothing
        """Prepare for reading whole shards of these streams; called before any of them is read."""

    @abstractmethod
    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        """Return a publisher that begins at ``starting_position`` (never LATEST) in ``shard``."""

    async def close(self) -> None:  # noqa: B027 - most factories open nothing
        """Release what the factory opened; called once, after its publishers have stopped."""


class StreamConsumerRegistrar(ABC):
    """Provides the consumer for subscriptions to shards (``stream.efo.registration``).

    One registrar serves all shards of a fetcher, at once.
    """

    async def prepare(self, stream_arns: Sequence[str]) -> None:  # noqa: B027 - may come later
        """Make sure, before any shard is read, that each stream has its consumer.

        If that fails for one, the consumers that this call has registered are removed again.

        Raises:
            AccessDeniedError: the credentials do not allow it; the message names the action.
            LimitExceededError: a stream has the maximum number of consumers.
            RetriesExhaustedError: the service failed too often, or took too long.
        """

    @abstractmethod
    async def consumer_arn(self, stream_arn: str) -> str:
        """Return the ARN of the ACTIVE consumer of a stream; waits for it if necessary."""

    @abstractmethod
    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        """Return the consumer's ARN after a subscription with ``consumer_arn`` was not found.

        It is the same if that consumer exists: then something else was not found. It is another one
        if the consumer has been registered again, by this or another process.

        Raises:
            ConsumerNotFoundError: it is gone, and this strategy does not register it.
        """

    async def close(self) -> None:  # noqa: B027 - one that registers nothing leaves nothing
        """Leave the consumers: the last one to leave removes what this application created.

        It logs how to remove by hand a consumer that it could not remove.
        """
