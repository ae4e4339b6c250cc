"""The prefetch planner: a micro-batch is what has been fetched and not yet handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers import Clock, Properties, SystemClock
from kinesis_publishers.config import PendingConfig, SparkConfig
from kinesis_publishers.consumer_guard import ConsumerGuard
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import PrefetchedPartition, RangePartition
from kinesis_publishers_spark.planning.chunks import BatchLimit, Chunk, pack
from kinesis_publishers_spark.planning.fetch_session import FetchSession
from kinesis_publishers_spark.planning.planner import BatchSize, Lag, Planner
from kinesis_publishers_spark.planning.replay import check_beginnings, check_streams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

__all__ = ["PrefetchPlanner"]


@frozen(kw_only=True, eq=False)
class _PlannedBatch:
    start: Offset
    end: Offset
    chunks: Sequence[Chunk]


class PrefetchPlanner(Planner):
    """Plans micro-batches from what a fetcher in this process has read already.

    The records of the last micro-batch are kept until it is committed, because Spark may plan it
    again (two actions over one DataFrame). Any other micro-batch, as after a restart, is read again
    by range on the executors.

    Args:
        properties: the configuration.
        parallelism: the most partitions that a micro-batch is spread over.
        clock: the source of time.
    """

    def __init__(
        self, properties: Properties, *, parallelism: int, clock: Clock | None = None
    ) -> None:
        self._properties = properties
        self._parallelism = parallelism
        self._clock = clock or SystemClock()
        self._has_metadata = SparkConfig.from_properties(properties).include_metadata
        # One for all sessions: between two of them the consumers are still wanted.
        self._guard = ConsumerGuard.for_properties(properties)
        pending = PendingConfig.from_properties(properties)
        # Half of the pool: the other half fills up while Spark works on this micro-batch.
        self._most = BatchLimit(
            records=max(1, pending.max_records // 2), payload_bytes=max(1, pending.max_bytes // 2)
        )
        self._session: FetchSession | None = None
        self._initial: Offset | None = None
        # The end of the micro-batch that was planned or replayed last: there the session stands, if
        # there is one.
        self._reached: Offset | None = None
        self._batch: _PlannedBatch | None = None
        self._catch_up_to: datetime | None = None

    def prepare_for_available_now(self) -> None:
        self._end_session()
        self._catch_up_to = self._clock.now()

    def initial_offset(self) -> Offset:
        # Spark asks for it more than once (for the first end, and for the first partitions).
        if self._initial is None:
            self._initial = self._start(Offset())
        return self._initial

    def latest_offset(self, start: Offset | None, limit: BatchLimit) -> Offset:
        start = start or self._reached or self.initial_offset()
        batch = self._batch
        if batch is not None and start == batch.start:
            # Asked again for a micro-batch that has been planned: it must not change any more.
            return batch.end
        if self._session is None or start != self._reached:
            self._start(start)
            self._reached = start
        assert self._session is not None
        end, chunks = self._session.plan(start, limit.tightened(self._most))
        if end != start:
            self._batch = _PlannedBatch(start=start, end=end, chunks=chunks)
            self._reached = end
        return end

    def _start(self, offset: Offset) -> Offset:
        self._end_session()
        self._session = FetchSession(
            self._properties,
            offset.progress,
            clock=self._clock,
            catch_up_to=self._catch_up_to,
            guard=self._guard,
        )
        self._reached = self._session.wait_until_prepared()
        return self._reached

    def partitions(
        self, start: Offset, end: Offset
    ) -> list[PrefetchedPartition] | list[RangePartition]:
        batch = self._batch
        if batch is not None and batch.start == start and batch.end == end:
            return [
                PrefetchedPartition.of(rows, include_metadata=self._has_metadata)
                for rows in pack(batch.chunks, self._parallelism)
            ]
        check_streams(self._properties, end)
        if end != self._reached:
            self._end_session()
            self._reached = end
        ranges = end.ranges_since(start)
        check_beginnings(self._properties, start, ranges, self._clock)
        groups = [tuple(ranges[index :: self._parallelism]) for index in range(self._parallelism)]
        return [RangePartition.of(self._properties, group) for group in groups if group]

    def commit(self, end: Offset) -> None:
        if self._batch is not None and self._batch.end == end:
            self._batch = None

    def planned_size(self) -> BatchSize | None:
        if self._batch is None:
            return None
        chunks = self._batch.chunks
        return BatchSize(
            records=sum(map(len, chunks)),
            payload_bytes=sum(chunk.payload_bytes for chunk in chunks),
        )

    def lag(self) -> Lag | None:
        return None if self._session is None else self._session.lag()

    def close(self) -> None:
        self._end_session()
        if self._guard is not None:
            self._guard.close()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
