"""Which planner plans the next micro-batch, and from where: what a trigger needs in each Spark.

``docs/spark-triggers.md`` has the order in which each version of Spark calls a source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from kinesis_publishers.config import Planner as PlannerName
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers_spark.planning.chunks import BatchLimit
from kinesis_publishers_spark.planning.prefetch import PrefetchPlanner
from kinesis_publishers_spark.planning.ranges import RangesPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.datasource import InputPartition

    from kinesis_publishers import Properties
    from kinesis_publishers_spark.offsets import Offset
    from kinesis_publishers_spark.planning.planner import BatchSize, Lag, Planner

__all__ = ["PlannerFactory", "TriggeredPlanner", "planner_factory"]

#: Makes the planner of that name; with True, one whose every micro-batch has all that is there.
PlannerFactory: TypeAlias = "Callable[[PlannerName, bool], Planner]"


def planner_factory(properties: Properties, parallelism: int) -> PlannerFactory:
    """Return what makes the planners of a query."""

    def make(name: PlannerName, reads_everything: bool) -> Planner:
        if name is PlannerName.PREFETCH:
            return PrefetchPlanner(properties, parallelism=parallelism)
        return RangesPlanner(properties, parallelism=parallelism, reads_everything=reads_everything)

    return make


@frozen
class _Choice:
    name: PlannerName
    reads_everything: bool = False


class TriggeredPlanner:
    """Plans the micro-batches of one query with the planner that its trigger needs.

    That is the configured one, except where a micro-batch must have everything that is there now:
    the memory of the prefetch planner is bounded, and it has fetched nothing yet when it is asked
    for the first time. Both planners write the same offsets, so that they can take turns.

    Args:
        configured: the planner that the options name.
        make: makes planners.
    """

    def __init__(self, configured: PlannerName, make: PlannerFactory) -> None:
        self._configured = configured
        self._make = make
        self._choice = _Choice(configured)
        self._planner: Planner | None = None
        self._initial: Offset | None = None
        # Where the query stands, as far as is known: Spark before 4.2 does not say it.
        self._position: Offset | None = None
        self._is_assumed = False
        self._has_planned_blindly = False
        self._planned: tuple[Offset, Offset] | None = None

    @property
    def name(self) -> str:
        """The name of the planner at work."""
        return str(self._choice.name.value)

    def prepare_for_available_now(self) -> None:
        """Read what there is now, children of ended shards included, and no further."""
        self._current.prepare_for_available_now()

    def initial_offset(self) -> Offset:
        """Fix where a new query begins; the same each time, whichever planner is at work."""
        if self._initial is None:
            self._initial = self._current.initial_offset()
        return self._initial

    def latest_offset(self, start: Offset, limit: BatchLimit | None) -> Offset:
        """Return the end of the micro-batch that begins at ``start``.

        Args:
            start: the end of the one before; itself the answer if there is nothing new.
            limit: the most that it may have, ``None`` for all that is there now (Trigger.Once).
        """
        if limit is None:
            self._use(_Choice(PlannerName.RANGES, reads_everything=True))
        else:
            self._use(_Choice(self._configured))
        return self._plan(start, limit or BatchLimit())

    def next_latest_offset(self, limit: BatchLimit) -> tuple[Offset, Offset]:
        """Return start and end of the next micro-batch for a Spark that does not say the start.

        Spark before 4.2 does not say either whether it will ever ask again: under Trigger.Once and
        AvailableNow it does not. So the first answer has everything there is, or as much as the
        limit allows, whatever the trigger.
        """
        if self._has_planned_blindly:
            self._use(_Choice(self._configured))
        else:
            self._use(_Choice(PlannerName.RANGES, reads_everything=limit == BatchLimit()))
            self._has_planned_blindly = True
        if self._position is None:
            self._position, self._is_assumed = self.initial_offset(), True
        start = self._position
        # An action that reads it need not come: the next micro-batch begins here all the same.
        self._position = self._plan(start, limit)
        return start, self._position

    def _plan(self, start: Offset, limit: BatchLimit) -> Offset:
        end = self._current.latest_offset(start, limit)
        if end != start:
            self._planned = start, end
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of a micro-batch.

        Raises:
            CheckpointError: ``end`` was found from another start: what lies between would be lost.
        """
        self._refuse_another_start(start, end)
        self._position, self._is_assumed = end, False
        return self._current.partitions(start, end)

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
        """Learn that Spark is done with the micro-batch that ends at ``end``."""
        self._current.commit(end)

    def planned_size(self) -> BatchSize | None:
        """Return how much the planned micro-batch has, ``None`` if there is none."""
        return None if self._planner is None else self._planner.planned_size()

    def lag(self) -> Lag | None:
        """Return how far the source is behind, ``None`` before it reads."""
        return None if self._planner is None else self._planner.lag()

    def close(self) -> None:
        """Stop reading."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _use(self, choice: _Choice) -> None:
        if choice != self._choice:
            self.close()
            self._choice = choice

    @property
    def _current(self) -> Planner:
        if self._planner is None:
            self._planner = self._make(self._choice.name, self._choice.reads_everything)
        return self._planner
