"""The prefetch planner: a micro-batch is what has been fetched and not yet handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config import PendingConfig, SparkConfig
from kinesis_publishers_spark.partitions import PrefetchedPartition, RangePartition
from kinesis_publishers_spark.planning.chunks import BatchLimit, Chunk, balanced, pack
from kinesis_publishers_spark.planning.fetch_session import FetchSession
from kinesis_publishers_spark.planning.planner import BatchSize
from kinesis_publishers_spark.planning.session_planner import PlannedBatch, SessionPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import Clock, Properties
    from kinesis_publishers_spark.offsets import Offset

__all__ = ["PrefetchPlanner"]


@frozen(kw_only=True, eq=False)
class _FetchedBatch(PlannedBatch):
    chunks: Sequence[Chunk]


class PrefetchPlanner(SessionPlanner[FetchSession, _FetchedBatch]):
    """Plans micro-batches from what a fetcher in this process has read already.

    The records of the last micro-batch are kept until it is committed. Any other one is read again
    by range on the executors.
    """

    def __init__(
        self, properties: Properties, *, parallelism: int, clock: Clock | None = None
    ) -> None:
        super().__init__(properties, parallelism=parallelism, clock=clock)
        self._has_metadata = SparkConfig.from_properties(properties).include_metadata
        pending = PendingConfig.from_properties(properties)
        # All that the pool holds: it gets its room back when the micro-batch is planned, and so it
        # fills up again while Spark works on that.
        self._most = BatchLimit(records=pending.max_records, payload_bytes=pending.max_bytes)
        # Not all of it: a page for which there is no room leaves the pool short of its limit.
        self._enough = BatchLimit(
            records=max(1, pending.max_records // 2), payload_bytes=max(1, pending.max_bytes // 2)
        )

    def _open_session(self, offset: Offset) -> FetchSession:
        return FetchSession(
            self._properties,
            offset.progress,
            clock=self._clock,
            catch_up_to=self._catch_up_to,
            enough=self._enough,
            guard=self._guard,
        )

    def _plan(
        self, session: FetchSession, start: Offset, limit: BatchLimit
    ) -> _FetchedBatch | None:
        end, chunks = session.plan(start, limit.tightened(self._most))
        if end == start:
            return None
        size = BatchSize(
            records=sum(map(len, chunks)),
            payload_bytes=sum(chunk.payload_bytes for chunk in chunks),
        )
        return _FetchedBatch(start=start, end=end, size=size, chunks=chunks)

    def _planned_partitions(self, batch: _FetchedBatch) -> list[PrefetchedPartition]:
        return [
            PrefetchedPartition.of(rows, include_metadata=self._has_metadata)
            for rows in pack(batch.chunks, self._parallelism)
        ]

    def _replayed_partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        groups = balanced(end.ranges_since(start), None, self._parallelism)
        return [RangePartition.of(self._properties, group) for group in groups]
