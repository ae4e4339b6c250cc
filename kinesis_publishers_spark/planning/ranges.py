"""The ranges planner: the driver finds where ranges end, the executors read the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config import RegistrationConfig, RegistrationStrategy
from kinesis_publishers.readers import publisher_factory_class, register_consumers
from kinesis_publishers_spark.partitions import RangePartition
from kinesis_publishers_spark.planning.chunks import balanced
from kinesis_publishers_spark.planning.planner import BatchSize
from kinesis_publishers_spark.planning.range_session import RangeSession
from kinesis_publishers_spark.planning.session_planner import PlannedBatch, SessionPlanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesis_publishers import Clock, Properties, ShardKey, ShardRange
    from kinesis_publishers.readers import ConsumerGuard
    from kinesis_publishers_spark.offsets import Offset
    from kinesis_publishers_spark.planning.chunks import BatchLimit

__all__ = ["RangesPlanner", "executor_properties"]


@frozen(kw_only=True, eq=False)
class _FoundBatch(PlannedBatch):
    payload_bytes: Mapping[ShardKey, int]


class RangesPlanner(SessionPlanner[RangeSession, _FoundBatch]):
    """Plans micro-batches by looking at a few records of each shard.

    Args:
        properties, parallelism, clock: as of :class:`SessionPlanner`.
        reads_everything: let each micro-batch have everything that is there when it is planned.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        parallelism: int,
        reads_everything: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(properties, parallelism=parallelism, clock=clock)
        self._reads_everything = reads_everything
        self._executor_properties: Properties | None = None

    def _open_session(self, offset: Offset) -> RangeSession:
        return RangeSession(
            self._properties, offset.progress, clock=self._clock, catch_up_to=self._catch_up_to
        )

    def _plan(self, session: RangeSession, start: Offset, limit: BatchLimit) -> _FoundBatch | None:
        end, payload_bytes = session.plan(start, None if self._reads_everything else limit)
        if end == start:
            return None
        size = BatchSize(payload_bytes=sum(payload_bytes.values()))
        return _FoundBatch(start=start, end=end, size=size, payload_bytes=payload_bytes)

    def _planned_partitions(self, batch: _FoundBatch) -> list[RangePartition]:
        ranges = batch.end.ranges_since(batch.start)
        sizes = [batch.payload_bytes.get(one.shard, 0) for one in ranges]
        return self._tasks(batch.end, ranges, sizes)

    def _replayed_partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        return self._tasks(end, end.ranges_since(start), None)

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
            RangePartition(
                properties,
                group,
                None if expected is None else sum(map(expected.__getitem__, group)),
            )
            for group in balanced(ranges, sizes, self._parallelism)
        ]


def executor_properties(
    properties: Properties, stream_arns: Iterable[str], guard: ConsumerGuard | None
) -> Properties:
    """Register the stream consumers that are needed; return properties that name them.

    Args:
        properties: the configuration of the source.
        stream_arns: the streams that are read.
        guard: what removes the consumers when this process is gone; ``None`` if nothing is to be.

    Raises:
        AccessDeniedError: the credentials do not allow it; the missing action is named.
        LimitExceededError: a stream has as many consumers as it may have.
    """
    if not publisher_factory_class(properties).needs_registration:
        return properties
    if guard is not None:
        # Before anything is registered: whenever this process is killed, either the guard holds a
        # lease on its consumers or it has not made any.
        guard.hold(stream_arns)
    if RegistrationConfig.from_properties(properties).strategy is RegistrationStrategy.NONE:
        return properties
    registered = register_consumers(_with_strategy(properties, RegistrationStrategy.EAGER))
    return _with_strategy(registered, RegistrationStrategy.NONE)


def _with_strategy(properties: Properties, strategy: RegistrationStrategy) -> Properties:
    return properties.with_values({RegistrationConfig.strategy: strategy.value})
