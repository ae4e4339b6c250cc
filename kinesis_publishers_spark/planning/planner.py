"""What a planner is: it finds where micro-batches end, and how their records reach the tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.datasource import InputPartition

    from kinesis_publishers_spark.offsets import Offset
    from kinesis_publishers_spark.planning.chunks import BatchLimit

__all__ = ["BatchSize", "Lag", "Planner"]


@frozen(kw_only=True)
class BatchSize:
    """How much a micro-batch has.

    Attributes:
        payload_bytes: the payloads' lengths together, or about that where nobody has read them.
        records: how many, ``None`` where nobody has counted.
    """

    payload_bytes: int
    records: int | None = None


@frozen(kw_only=True)
class Lag:
    """How far the source is behind.

    Attributes:
        millis_behind_latest: per shard (``stream/shard``), ``None`` until an answer says.
        buffered_records: fetched and not yet in a micro-batch.
        buffered_bytes: the same, in payload bytes.
    """

    millis_behind_latest: Mapping[str, int | None]
    buffered_records: int = 0
    buffered_bytes: int = 0


class Planner(ABC):
    """Plans the micro-batches of one query, in the process that Spark keeps for it on the driver.

    Constructing one has no side effects: what runs is started by the first call that needs it. All
    planners write the same offsets, so that a query can go on under another one.
    """

    @abstractmethod
    def prepare_for_available_now(self) -> None:
        """Read what there is at this instant, children of ended shards included, and no further."""

    @abstractmethod
    def initial_offset(self) -> Offset:
        """Fix where a new query begins: LATEST is one instant from here on; the same each time."""

    @abstractmethod
    def latest_offset(self, start: Offset, limit: BatchLimit) -> Offset:
        """Return the end of the next micro-batch, ``start`` itself if there is nothing new.

        Args:
            start: the end of the micro-batch before.
            limit: the most that it may have.
        """

    @abstractmethod
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of a micro-batch; the same rows each time for the same offsets."""

    @abstractmethod
    def commit(self, end: Offset) -> None:
        """Learn that Spark is done with the micro-batch that ends at ``end``."""

    def planned_size(self) -> BatchSize | None:
        """Return how much the planned micro-batch has, ``None`` if there is none."""
        return None

    @abstractmethod
    def lag(self) -> Lag | None:
        """Return how far the source is behind, ``None`` before it reads."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading, and leave the stream consumers to the guard process."""
