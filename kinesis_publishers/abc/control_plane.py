"""The calls that describe streams and shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model import Shard, StreamSummary

__all__ = ["ControlPlane"]


class ControlPlane(ABC):
    """Describes streams. Makes each call once: retrying belongs to the caller.

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
