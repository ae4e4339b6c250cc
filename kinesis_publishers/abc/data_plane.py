"""The calls that carry records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.model import RecordPage, Shard, StartingPosition

__all__ = ["DataPlane"]


class DataPlane(ABC):
    """Reads shards. Makes each call once: retrying belongs to the caller.

    Every method raises :class:`~kinesis_publishers.errors.ServiceError` (or a subclass) when AWS
    refuses or cannot be reached.
    """

    @abstractmethod
    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """Return an iterator that stands at ``position``; it is valid for five minutes."""

    @abstractmethod
    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        """Return up to ``limit`` records (1 to 10,000) and 10 MB from ``shard_iterator`` on."""
