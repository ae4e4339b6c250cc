"""The calls of Kinesis: a control plane describes, a data plane reads, a record writer writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from attrs import field, frozen

from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.events import EventSink
from kinesis_publishers.model import (
    RecordPage,
    Shard,
    StartingPosition,
    StreamConsumer,
    StreamSummary,
    SubscriptionEvent,
)


class ControlPlane(ABC):
    """Describes streams, registers consumers. Makes each call once: the caller retries.

    Every method raises :class:`~kinesis_publishers.errors.ServiceError` when AWS refuses or cannot
    be reached.
    """

    @abstractmethod
    async def describe_stream(self, stream: str) -> StreamSummary:
        """Return what ``stream`` (a name or an ARN) is now."""

    @abstractmethod
    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        """Return the shards of a stream, all pages of the listing or none.

        Shards that were closed before ``since`` (aware) are left out. ``None``, or an instant
        beyond the retention, returns every shard that still holds records.
        """

    @abstractmethod
    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        """Return what the consumer of this name is now.

        Raises:
            ConsumerNotFoundError: the stream has no such consumer, or does not exist.
        """

    @abstractmethod
    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        """Return the consumers of a stream, all pages of the listing or none."""

    @abstractmethod
    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        """Register a consumer, which is CREATING for a while.

        Raises:
            ResourceInUseError: a consumer of this name exists.
            LimitExceededError: the stream has the maximum number of consumers, too many are being
                created, or the rate of registrations is used up.
        """

    @abstractmethod
    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        """Remove the consumer with exactly this ARN, which is DELETING for a while.

        Raises:
            ConsumerNotFoundError: it does not exist.
        """


@frozen(kw_only=True)
class ControlContext:
    """What code needs to make calls of the control plane, to repeat them and to report."""

    control_plane: ControlPlane
    clock: Clock
    events: EventSink


class ShardSubscription(ABC):
    """An accepted SubscribeToShard, from which events are taken one by one.

    Events that are not taken stay with the service, except for a small buffer: a reader that stops
    taking them holds the subscription back and needs no memory. Both methods raise what ends the
    subscription, after the events that arrived before it:

    - ``ConnectionFailedError``: the connection broke or ended inside an event, or brought no whole
      event, not even a heartbeat, for 35 seconds;
    - ``MalformedResponseError``: an event is damaged;
    - any other ``ServiceError``: the service ended the subscription with this exception.
    """

    @abstractmethod
    async def wait_for_event(self) -> int | None:
        """Wait until an event begins to arrive, and return the maximum size of its payloads.

        Room for them, in bytes, can then be made before :meth:`receive`. ``None`` means that the
        service has ended the subscription.
        """

    @abstractmethod
    async def receive(self) -> SubscriptionEvent:
        """Return the event that :meth:`wait_for_event` has announced, once it is complete."""


class DataPlane(ABC):
    """Reads shards. Makes each call once: the caller retries.

    Every method raises :class:`~kinesis_publishers.errors.ServiceError` when AWS refuses or cannot
    be reached.

    Attributes:
        packs_columns: whether the reader makes only Arrow of records: their columns may be in
            buffers, whose values become objects when they are asked for.
    """

    packs_columns = False

    @abstractmethod
    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """Return an iterator that stands at ``position``; it is valid for five minutes."""

    @abstractmethod
    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        """Return up to ``limit`` records (1 to 10,000) and 10 MB from ``shard_iterator`` on."""

    @abstractmethod
    def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AbstractAsyncContextManager[ShardSubscription]:
        """Subscribe to ``shard`` from ``position`` on (enhanced fan-out), which is never LATEST.

        Entering the context makes the call and returns once the service has accepted it; leaving
        closes the subscription and drops what was not taken. Another task may leave it while
        nothing is read. The service ends a subscription after at most five minutes.
        """


@frozen(kw_only=True, eq=False)
class PutColumns:
    """The records of a PutRecords call, as columns of equal length, or ``None`` for no values.

    Only a stream that distributes records itself accepts a record without a partition key.
    """

    payloads: Sequence[bytes]
    partition_keys: Sequence[str | None]
    explicit_hash_keys: Sequence[str | None] | None = None

    def __len__(self) -> int:
        return len(self.payloads)


@frozen(kw_only=True, eq=False)
class PutAnswer:
    """The answer to PutRecords, as columns with an item for each record of the call.

    A record that was not written has ``None`` in both columns, and an error by its place.
    """

    shard_ids: Sequence[str | None]
    sequence_numbers: Sequence[str | None]
    errors: Mapping[int, ServiceError] = field(factory=dict)


class RecordWriter(ABC):
    """Writes records. Makes each call once: the caller retries."""

    @abstractmethod
    async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
        """Write 1 to 500 records, of at most 10 MiB with their keys.

        Raises:
            ServiceError: the call failed as a whole. After ``ConnectionFailedError`` and
                ``MalformedResponseError``, the records may have been written.
        """
