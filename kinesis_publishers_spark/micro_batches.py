"""Finds the ends of micro-batches, under every trigger and in every version of Spark.

``docs/decisions``, number 26, has the order in which each version of Spark calls a source.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, evolve, field, frozen

from kinesis_publishers.config import StreamsConfig
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.readers import ConsumerGuard, ServiceClock
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.options import Planner, SparkConfig
from kinesis_publishers_spark.usual_planner import UsualPlanner

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from kinesis_publishers import Clock, Properties, ShardKey
    from kinesis_publishers_spark.lag import Lag
    from kinesis_publishers_spark.limits import BatchLimit


@define(kw_only=True, eq=False)
class Query:
    """What the consecutive sessions of a query share.

    Attributes:
        properties: the configuration.
        parallelism: the largest number of partitions of a micro-batch.
        clock: measures how far the service's clock is ahead.
        guard: removes the stream consumers after the end of this process; ``None`` without
            consumers. All sessions share it, because the consumers outlive each of them.
        late: how many records of each shard were handed out long after younger ones.
        aligned_until: the latest arrival that was handed out, ``None`` before the first.
    """

    properties: Properties
    parallelism: int
    clock: ServiceClock
    guard: ConsumerGuard | None
    late: Counter[ShardKey] = field(factory=Counter)
    aligned_until: datetime | None = None


@frozen(kw_only=True, eq=False)
class MicroBatch:
    """A micro-batch with fixed offsets.

    Attributes:
        start: the end of the previous one.
        end: the position after its last records.
        payload_bytes: the total length of the payloads, or an estimate if they are not read yet.
        records: their number, ``None`` if they are not counted.
        oldest: the known arrival of the first record of each shard.
        left_records: the number of fetched records that are left for later micro-batches.
        left_bytes: the size of these.
        partitions: returns its partitions, with the same rows each time.
    """

    start: Offset
    end: Offset
    payload_bytes: int
    records: int | None = None
    oldest: dict[ShardKey, datetime] = field(factory=dict)
    left_records: int = 0
    left_bytes: int = 0
    partitions: Callable[[], Sequence[InputPartition]]


class Session(ABC):
    """An uninterrupted series of micro-batches, each of which starts where the previous one ends.

    Construction has no side effects: the first call that plans starts what runs.

    Args:
        query: what the sessions of the query share.
        resume: how far the streams have been read; empty for a new query.
        catch_up_to: read each shard only until everything that arrived before this instant (by this
            machine's clock) has been read (Trigger.AvailableNow).
    """

    def __init__(self, query: Query, resume: Offset, catch_up_to: datetime | None = None) -> None:
        self._query = query
        self._clock = query.clock
        self._resume = resume.progress
        self._catch_up_to = catch_up_to

    @property
    @abstractmethod
    def begun(self) -> Offset:
        """The start of each shard; waits until it is known."""

    @abstractmethod
    def plan(self, start: Offset, limit: BatchLimit | None) -> MicroBatch | None:
        """Return the next micro-batch, ``None`` without new records.

        Args: start: the end of the previous one. limit: of the micro-batch; ``None`` for all
        records that exist now.
        """

    @abstractmethod
    def look_ahead(self) -> None:
        """Prepare the next :meth:`plan` while Spark works; do not wait.

        An error is raised by that call.
        """

    @abstractmethod
    def replay(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of a micro-batch that another process planned."""

    @abstractmethod
    def lag(self, planned: dict[ShardKey, datetime]) -> Lag | None:
        """Return how far the query is behind, ``None`` before it reads.

        Args:
            planned: :attr:`MicroBatch.oldest` of the micro-batch that Spark works on.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop reading, and leave the stream consumers to the guard process."""


#: Makes a session of a planner, from the arguments of :class:`Session`.
SessionFactory: TypeAlias = "Callable[[Planner, Query, Offset, datetime | None], Session]"


@frozen
class _Choice:
    planner: Planner
    reads_everything: bool = False


class MicroBatches:
    """Plans the micro-batches of one query, in the process that Spark keeps for it on the driver.

    A session of the configured planner plans them, unless a micro-batch must have all records that
    exist now: a prefetch session has bounded memory, and has fetched nothing when Spark first asks.
    All sessions write the same offsets, so that they can alternate.

    The last micro-batch is kept until it is committed, because Spark may plan it again (two actions
    over one DataFrame). Any other one, such as the first after a restart, is read again by range.

    Args:
        properties: the configuration.
        make_session: makes sessions.
        clock: the source of time.
    """

    def __init__(
        self, properties: Properties, make_session: SessionFactory, *, clock: Clock | None = None
    ) -> None:
        config = SparkConfig.from_properties(properties)
        self._query = Query(
            properties=properties,
            # The source's process cannot see Spark's cores: it receives neither the configuration
            # nor the environment.
            parallelism=config.parallelism or os.cpu_count() or 1,
            clock=ServiceClock.around(clock),
            guard=ConsumerGuard.for_properties(properties),
        )
        self._make_session = make_session
        self._usual = UsualPlanner(properties)
        self._choice = _Choice(self._usual.planner)
        self._asked: Planner = self._usual.planner
        self._max_delay_seconds = config.max_trigger_delay_seconds
        # How long the next micro-batch may wait for more records; the first one does not.
        self._waits_until = float("-inf")
        self._catch_up_to: datetime | None = None
        self._initial: Offset | None = None
        self._session: Session | None = None
        # The offset at which a session ended to let another planner continue.
        self._last_lag: Lag | None = None
        # The end of the last planned or replayed micro-batch: the position of the session.
        self._reached: Offset | None = None
        self._batch: MicroBatch | None = None
        self._uncommitted: dict[ShardKey, datetime] = {}
        self._planned: tuple[Offset, Offset] | None = None
        # The known position of the query: Spark before 4.2 does not pass it.
        self._position: Offset | None = None
        self._is_assumed = False
        self._has_planned_blindly = False

    @property
    def planner(self) -> str:
        """The name of the planner of the last micro-batch."""
        return str(self._asked.value)

    @property
    def planned(self) -> MicroBatch | None:
        """The planned micro-batch that is not committed."""
        return self._batch

    def prepare_for_available_now(self) -> None:
        """Read the records that exist now, children of ended shards included, and no more."""
        self._end_session()
        # By this machine's clock: the service's time may not be known yet.
        self._catch_up_to = self._query.clock.now() - self._query.clock.skew

    def initial_offset(self) -> Offset:
        """Return the start of a new query.

        LATEST is pinned to one instant; further calls return the same.
        """
        # Spark asks for it more than once (for the first end, and for the first partitions).
        if self._initial is None:
            self._end_session()
            self._initial = self._reached = self._session_at(Offset()).begun
        return self._initial

    def latest_offset(self, start: Offset, limit: BatchLimit | None) -> Offset:
        """Return the end of the next micro-batch, ``start`` itself if there is nothing new.

        Args:
            start: the end of the previous one.
            limit: the most that it may have; ``None`` for all that exist now (Trigger.Once).
        """
        self._use(_Choice(Planner.RANGES, reads_everything=True) if limit is None else None)
        return self._plan(start, limit)

    def next_latest_offset(self, limit: BatchLimit) -> tuple[Offset, Offset]:
        """Return start and end of the next micro-batch for a Spark that does not say the start.

        Nor does Spark before 4.2 say whether it will ask again: under Trigger.Once and AvailableNow
        it does not. The first answer therefore has all records that exist, or as many as the limit
        allows, under every trigger.
        """
        if self._has_planned_blindly:
            self._use(None)
        else:
            self._use(_Choice(Planner.RANGES, reads_everything=limit.is_unlimited))
            self._has_planned_blindly = True
        if self._position is None:
            self._position, self._is_assumed = self.initial_offset(), True
        start = self._position
        # The next micro-batch begins here even if no action reads it.
        self._position = self._plan(start, limit)
        return start, self._position

    def _use(self, choice: _Choice | None) -> None:
        choice = choice or _Choice(self._usual.planner)
        if choice.planner is not self._choice.planner:
            self._end_session()
        if choice != self._choice:
            self._batch, self._choice = None, choice

    def _plan(self, start: Offset, limit: BatchLimit | None) -> Offset:
        batch = self._batch
        # Comparing many shards is slow, and Spark repeats the question with the same offset.
        if batch is None or start is self._reached or start != batch.start:
            limit = None if self._choice.reads_everything else self._in_time(limit)
            session = self._session_at(start)
            self._asked = self._choice.planner
            batch = session.plan(start, limit)
            # Spark asks for the next one after it has finished the previous one.
            self._uncommitted = {} if batch is None else batch.oldest
            self._take_turns(session, batch)
            if batch is None:
                return start
            self._batch, self._reached = batch, batch.end
            # Without records it only moves idle shards.
            if batch.records != 0:
                self._waits_until = self._query.clock.monotonic() + self._max_delay_seconds
        # Spark asks again for a planned micro-batch, which must not change.
        self._planned = start, batch.end
        return batch.end

    def _in_time(self, limit: BatchLimit | None) -> BatchLimit | None:
        """Return ``limit``, without its minimum if that must not delay a micro-batch."""
        is_held_up = self._query.clock.monotonic() >= self._waits_until
        if limit is not None and limit.min_records and (is_held_up or self._catch_up_to):
            return evolve(limit, min_records=0)
        return limit

    def _take_turns(self, session: Session, batch: MicroBatch | None) -> None:
        """Switch the planner after ``batch`` of ``session``, if another one suits better."""
        if self._choice != _Choice(self._usual.planner):
            return
        # The remaining records belong to shards that are ahead: the shards behind have more.
        self._usual.observe(
            partial(session.lag, self._uncommitted),
            records=None if batch is None else (batch.records or 0) + batch.left_records,
            payload_bytes=0 if batch is None else batch.payload_bytes + batch.left_bytes,
        )
        if self._usual.planner is not self._choice.planner:
            # Now, not with the next micro-batch: a fetcher would fill the pool until then.
            self._last_lag = session.lag(self._uncommitted)
            self._end_session()
            self._choice = _Choice(self._usual.planner)

    def _session_at(self, offset: Offset) -> Session:
        """Return the session at ``offset``; start one if there is none."""
        if self._session is None or offset != self._reached:
            self._end_session()
            self._session = self._make_session(
                self._choice.planner, self._query, offset, self._catch_up_to
            )
        self._reached = offset
        return self._session

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of a micro-batch; the same rows each time for the same offsets.

        Raises:
            CheckpointError: ``end`` belongs to another start: the records in between would be lost.
        """
        self._refuse_another_start(start, end)
        self._position, self._is_assumed = end, False
        batch = self._batch
        if batch is not None and batch.start == start and batch.end == end:
            partitions = batch.partitions()
            if self._session is not None:
                self._session.look_ahead()
            return partitions
        _check_streams(self._query.properties, end)
        return self._session_at(end).replay(start, end)

    def _refuse_another_start(self, start: Offset, end: Offset) -> None:
        planned = self._planned
        if planned is not None and end == planned[1]:
            is_known = start == planned[0]
        elif self._is_assumed:
            is_known = start == self._initial or (planned is not None and start == planned[0])
        else:
            is_known = True
        if not is_known:
            raise CheckpointError(
                "Spark asked where the next micro-batch ends before it said where the query "
                "stands, and would now skip the records between its checkpoint and that end. "
                "Spark before 4.2 does so under Trigger.AvailableNow when "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled is true. Nothing is lost: "
                "set it to false, or use Spark 4.2 or later, or use processingTime and stop the "
                "query."
            )

    def commit(self, end: Offset) -> None:
        """Release the micro-batch that ends at ``end``, which Spark has committed."""
        if self._batch is not None and self._batch.end == end:
            self._batch, self._uncommitted = None, {}

    def lag(self) -> Lag | None:
        """Return how far the query is behind, ``None`` before it reads."""
        if self._session is None:
            return self._last_lag
        return self._session.lag(self._uncommitted)

    def close(self) -> None:
        """Stop reading, and leave the stream consumers to the guard process."""
        self._end_session()
        if self._query.guard is not None:
            self._query.guard.close()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _check_streams(properties: Properties, offset: Offset) -> None:
    """Refuse a checkpoint without any of the configured streams."""
    configured = {one.name for one in StreamsConfig.from_properties(properties).streams}
    stored = {identity.name for identity in offset.streams.values()}
    if stored and not stored & configured:
        raise CheckpointError(
            f"The checkpoint belongs to other streams ({', '.join(sorted(stored))}) than those "
            f"that are configured ({', '.join(sorted(configured))}): use a checkpoint location "
            "of its own for each set of streams."
        )
