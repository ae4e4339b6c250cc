"""What both planners do alike: where they stand, and the micro-batch that Spark may plan again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from attrs import frozen

from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.config import StreamsConfig
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.readers import ConsumerGuard
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.planning.planner import BatchSize, Lag, Planner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql.datasource import InputPartition

    from kinesis_publishers import Clock, Properties
    from kinesis_publishers_spark.planning.chunks import BatchLimit

__all__ = ["PlannedBatch", "PlanningSession", "SessionPlanner"]


@frozen(kw_only=True, eq=False)
class PlannedBatch:
    """A micro-batch whose two offsets are fixed; planners add what they need for its tasks."""

    start: Offset
    end: Offset
    size: BatchSize


class PlanningSession(ABC):
    """What is open while one micro-batch follows the other."""

    @property
    @abstractmethod
    def begun(self) -> Offset:
        """Where each shard begins; waits until that is known."""

    @abstractmethod
    def lag(self) -> Lag:
        """Return how far the source is behind."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections and end the thread."""


_Session = TypeVar("_Session", bound=PlanningSession)
_Batch = TypeVar("_Batch", bound=PlannedBatch)


class SessionPlanner(Planner, Generic[_Session, _Batch]):
    """Plans micro-batch after micro-batch with a session, and begins another one elsewhere.

    The last micro-batch is kept until it is committed, because Spark may plan it again (two actions
    over one DataFrame). Any other one, as after a restart, is read again by range.

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
        self._clock = ServiceClock.around(clock)
        # One for all sessions: between two of them the consumers are still wanted.
        self._guard = ConsumerGuard.for_properties(properties)
        self._catch_up_to: datetime | None = None
        self._session: _Session | None = None
        self._initial: Offset | None = None
        # The end of the micro-batch that was planned or replayed last: there the session stands, if
        # there is one.
        self._reached: Offset | None = None
        self._batch: _Batch | None = None

    @abstractmethod
    def _open_session(self, offset: Offset) -> _Session:
        """Begin at ``offset``."""

    @abstractmethod
    def _plan(self, session: _Session, start: Offset, limit: BatchLimit) -> _Batch | None:
        """Return the next micro-batch, ``None`` if there is nothing new."""

    @abstractmethod
    def _planned_partitions(self, batch: _Batch) -> Sequence[InputPartition]:
        """Return the partitions of the micro-batch that was planned."""

    @abstractmethod
    def _replayed_partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of a micro-batch that somebody else has planned."""

    def prepare_for_available_now(self) -> None:
        self._end_session()
        # By this machine's clock: the service may not have told the time yet.
        self._catch_up_to = self._clock.now() - self._clock.skew

    def initial_offset(self) -> Offset:
        # Spark asks for it more than once (for the first end, and for the first partitions).
        if self._initial is None:
            self._initial = self._reached = self._start(Offset()).begun
        return self._initial

    def latest_offset(self, start: Offset, limit: BatchLimit) -> Offset:
        planned = self._batch
        # Comparing many shards takes its time, and Spark asks again and again with the same one.
        if planned is not None and start is not self._reached and start == planned.start:
            # Asked again for a micro-batch that has been planned: it must not change any more.
            return planned.end
        session = self._session
        if session is None or start != self._reached:
            session = self._start(start)
        self._reached = start
        batch = self._plan(session, start, limit)
        if batch is None:
            return start
        self._batch, self._reached = batch, batch.end
        return batch.end

    def _start(self, offset: Offset) -> _Session:
        self._end_session()
        self._session = session = self._open_session(offset)
        return session

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        batch = self._batch
        if batch is not None and batch.start == start and batch.end == end:
            return self._planned_partitions(batch)
        _check_streams(self._properties, end)
        if end != self._reached:
            self._end_session()
            self._reached = end
        return self._replayed_partitions(start, end)

    def commit(self, end: Offset) -> None:
        if self._batch is not None and self._batch.end == end:
            self._batch = None

    def planned_size(self) -> BatchSize | None:
        return None if self._batch is None else self._batch.size

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


def _check_streams(properties: Properties, offset: Offset) -> None:
    """Refuse a checkpoint that has nothing to do with the configured streams."""
    configured = {one.name for one in StreamsConfig.from_properties(properties).streams}
    stored = {identity.name for identity in offset.streams.values()}
    if stored and not stored & configured:
        raise CheckpointError(
            f"The checkpoint belongs to other streams ({', '.join(sorted(stored))}) than those "
            f"that are configured ({', '.join(sorted(configured))}): use a checkpoint location "
            "of its own for each set of streams."
        )
