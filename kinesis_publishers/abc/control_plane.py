"""The calls that describe streams and shards, and that register consumers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.events import EventSink
    from kinesis_publishers.model import Shard, StreamConsumer, StreamSummary

__all__ = ["ControlContext", "ControlPlane"]


class ControlPlane(ABC):
    """Describes streams, registers consumers. Makes each call once: retrying is the caller's.

    Every method raises :class:`~kinesis_publishers.errors.ServiceError` (or a subclass) when AWS
    refuses or cannot be reached.
    """

    @abstractmethod
    async def describe_stream(self, stream: str) -> StreamSummary:
        """Return what ``stream`` (a name or an ARN) is now."""

    @abstractmethod
    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        """Return the shards of a stream, all pages of the listing or none.

        Args:
            stream_arn: the stream.
            since: leave out shards that were closed before this instant (aware); ``None`` returns
                every shard that still holds records. An instant beyond the retention is the same.
        """

    @abstractmethod
    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        """Return what the consumer of this name is now.

        Raises:
            ConsumerNotFoundError: the stream has no such consumer, or does not exist itself.
        """

    @abstractmethod
    async def list_stream_consumers(self, stream_arn: str) -> tuple[StreamConsumer, ...]:
        """Return the consumers of a stream, all pages of the listing or none."""

    @abstractmethod
    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        """Register a consumer, which is CREATING for a while.

        Raises:
            ResourceInUseError: there is one of this name already.
            LimitExceededError: the stream has as many consumers as it may have, or too many are
                being created, or the rate of registrations is used up.
        """

    @abstractmethod
    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        """Remove the consumer with exactly this ARN, which is DELETING for a while.

        Raises:
            ConsumerNotFoundError: there is none.
        """


@frozen(kw_only=True)
class ControlContext:
    """What makes calls of the control plane, and repeats them.

    Attributes:
        control_plane: describes streams and registers consumers; it makes each call once.
        clock: the only source of time.
        events: where diagnostic events go.
    """

    control_plane: ControlPlane
    clock: Clock
    events: EventSink
