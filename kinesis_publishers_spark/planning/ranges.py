"""The ranges planner: the driver finds where ranges end, the executors read the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers import Clock, Properties, SystemClock
from kinesis_publishers.consumer_guard import ConsumerGuard
from kinesis_publishers.range_finding import ReadLimit
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import RangePartition
from kinesis_publishers_spark.planning.executor_properties import executor_properties
from kinesis_publishers_spark.planning.grouping import balanced
from kinesis_publishers_spark.planning.planner import BatchSize, Lag, Planner
from kinesis_publishers_spark.planning.range_session import FoundBatch, RangeSession
from kinesis_publishers_spark.planning.replay import check_beginnings, check_streams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from kinesis_publishers import ShardKey, ShardRange
    from kinesis_publishers_spark.planning.chunks import BatchLimit

__all__ = ["RangesPlanner"]


@frozen(kw_only=True, eq=False)
class _PlannedBatch:
    start: Offset
    end: Offset
    payload_bytes: Mapping[ShardKey, int]


class RangesPlanner(Planner):
    """Plans micro-batches by looking at a few records of each shard.

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
        self._guard = ConsumerGuard.for_properties(properties)
        self._session: RangeSession | None = None
        self._initial: Offset | None = None
        # The end of the micro-batch that was planned or replayed last: there the session stands, if
        # there is one.
        self._reached: Offset | None = None
        self._batch: _PlannedBatch | None = None
        self._catch_up_to: datetime | None = None
        self._is_once = False
        self._executor_properties: Properties | None = None

    def prepare_for_available_now(self) -> None:
        self._end_session()
        self._catch_up_to = self._clock.now()

    def prepare_for_once(self) -> None:
        """Let the next micro-batch have everything that is there when it is planned."""
        self._is_once = True

    def initial_offset(self) -> Offset:
        # Spark asks for it more than once (for the first end, and for the first partitions).
        if self._initial is None:
            self._initial = self._reached = self._start(Offset()).begun
        return self._initial

    def latest_offset(self, start: Offset | None, limit: BatchLimit) -> Offset:
        start = start or self._reached or self.initial_offset()
        batch = self._batch
        # Comparing many shards takes its time, and Spark asks again and again with the same one.
        if batch is not None and start is not self._reached and start == batch.start:
            # Asked again for a micro-batch that has been planned: it must not change any more.
            return batch.end
        session = self._session
        if session is None or start != self._reached:
            session = self._start(start)
        found = self._find(session, start, limit)
        self._reached = start
        if found is None or found.end == start:
            return start
        self._reached = found.end
        self._batch = _PlannedBatch(start=start, end=found.end, payload_bytes=found.payload_bytes)
        return found.end

    def _find(self, session: RangeSession, start: Offset, limit: BatchLimit) -> FoundBatch | None:
        if self._is_once:
            return session.plan_everything(start)
        return session.plan(
            start, ReadLimit(records=limit.records, payload_bytes=limit.payload_bytes)
        )

    def _start(self, offset: Offset) -> RangeSession:
        self._end_session()
        self._session = RangeSession(
            self._properties,
            offset.progress,
            clock=self._clock,
            catch_up_to=self._catch_up_to,
        )
        return self._session

    def partitions(self, start: Offset, end: Offset) -> Sequence[RangePartition]:
        batch = self._batch
        ranges = end.ranges_since(start)
        if batch is not None and batch.start == start and batch.end == end:
            sizes = [batch.payload_bytes.get(one.shard, 0) for one in ranges]
            return self._tasks(end, ranges, sizes)
        check_streams(self._properties, end)
        if end != self._reached:
            self._end_session()
            self._reached = end
        check_beginnings(self._properties, start, ranges, self._clock)
        return self._tasks(end, ranges, None)

    def _tasks(
        self, end: Offset, ranges: Sequence[ShardRange], sizes: Sequence[int] | None
    ) -> list[RangePartition]:
        if not ranges:
            return []
        if self._executor_properties is None:
            self._executor_properties = executor_properties(
                self._properties, end.streams, self._guard
            )
        properties = self._executor_properties
        expected = None if sizes is None else dict(zip(ranges, sizes, strict=True))
        return [
            RangePartition.planned(
                properties,
                group,
                None if expected is None else sum(map(expected.__getitem__, group)),
            )
            for group in balanced(ranges, sizes, self._parallelism)
        ]

    def commit(self, end: Offset) -> None:
        if self._batch is not None and self._batch.end == end:
            self._batch = None

    def planned_size(self) -> BatchSize | None:
        if self._batch is None:
            return None
        return BatchSize(payload_bytes=sum(self._batch.payload_bytes.values()))

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
