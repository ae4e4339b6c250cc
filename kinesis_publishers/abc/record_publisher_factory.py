"""Builds publishers: the piece that a properties dict selects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from attrs import frozen

from kinesis_publishers.abc.control_plane import ControlContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kinesis_publishers.abc.data_plane import DataPlane
    from kinesis_publishers.abc.record_publisher import RecordPublisher
    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import Shard, StartingPosition

    PollRest = Callable[[StartingPosition, Shard], Awaitable[RecordPublisher | None]]

__all__ = ["PublisherContext", "RecordPublisherFactory"]


@frozen(kw_only=True)
class PublisherContext(ControlContext):
    """What a factory may use; the fetcher owns all of it.

    Attributes:
        data_plane: reads shards; one client for all of them.
        poll_rest: returns what polls a shard that ListShards has shown as closed, ``None`` for any
            other: for a publisher that does not find its end.
    """

    data_plane: DataPlane
    poll_rest: PollRest | None = None


class RecordPublisherFactory(ABC):
    """Creates a :class:`RecordPublisher` per shard (FLIP-128, *Record Publisher Factory*).

    ``stream.recordpublisher`` names one: POLLING, an entry point, or ``module:Class``.

    Attributes:
        reads_ranges: whether its publishers agree with GetRecords about where a range ends, so that
            Spark can plan with GetRecords what they read.
        subscribes: whether its publishers hold the one subscription that a consumer has to a shard.
        needs_registration: whether its publishers read with the stream consumers that the options
            of registration describe.
    """

    reads_ranges: ClassVar[bool] = False
    subscribes: ClassVar[bool] = False
    needs_registration: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        """Return a factory configured by ``properties``.

        Raises:
            ConfigError: the properties cannot work; no call to AWS is made to find out.
        """

    async def prepare(self, stream_arns: Sequence[str]) -> None:  # noqa: B027 - most need nothing
        """Do what has to be done before any shard of these streams is read.

        Called once by a fetcher that reads whole shards, when the streams have been found.
        """

    @abstractmethod
    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        """Return a publisher that begins at ``starting_position`` (never LATEST) in ``shard``."""

    async def close(self) -> None:  # noqa: B027 - most factories open nothing
        """Release what the factory opened; called once, after its publishers have stopped."""
