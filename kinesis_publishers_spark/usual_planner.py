"""Chooses the planner of the next micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kinesis_publishers.config import PendingConfig
from kinesis_publishers.readers import publisher_factory_class
from kinesis_publishers_spark.options import Planner, SparkConfig

if TYPE_CHECKING:
    from kinesis_publishers import Properties
    from kinesis_publishers_spark.lag import Lag

# Shares of the pending pool. A micro-batch of the first share is too large for the driver; after
# several in a row below the second, the driver reads again.
_MUCH, _LITTLE = 1 / 2, 1 / 8
_LITTLE_IN_A_ROW = 3
# A small micro-batch of older records announces more: the first looks at a backlog find little of
# it, and the size of a range is an estimate.
_RECENT_MILLIS = 5_000


class UsualPlanner:
    """The planner of the next micro-batch, unless that must have all records that exist now.

    ``auto`` begins with ranges, because nothing tells how large the backlog is; with enhanced
    fan-out it begins with prefetch. Several small micro-batches in a row make it use prefetch,
    which has the lower latency, until one half fills the pool: that backlog is too large for the
    driver, and the executors read again.
    """

    def __init__(self, properties: Properties) -> None:
        pending = PendingConfig.from_properties(properties)
        self._pool_records, self._pool_bytes = pending.max_records, pending.max_bytes
        spark = SparkConfig.from_properties(properties)
        is_auto = spark.planner is Planner.AUTO
        factory = publisher_factory_class(properties)
        limits = (spark.max_records_per_trigger, spark.max_bytes_per_trigger)
        # Under ranges, the driver reads the bytes once more to count a limit.
        self._takes_turns = is_auto and limits == (None, None) and factory.reads_ranges
        self.planner = spark.planner
        if is_auto:
            # A subscription, which is there for its latency, begins with the query.
            begins_with_ranges = self._takes_turns and not factory.subscribes
            self.planner = Planner.RANGES if begins_with_ranges else Planner.PREFETCH
        self._little_in_a_row = 0

    def observe(
        self, lag: Callable[[], Lag | None], *, records: int | None, payload_bytes: int
    ) -> None:
        """Adapt to the size of the next micro-batch.

        Args:
            lag: returns how far the query is behind, this micro-batch included.
            records: their number, ``None`` if they are not counted.
            payload_bytes: their size; 0 also without new records.
        """
        if not self._takes_turns:
            return
        filled = max((records or 0) / self._pool_records, payload_bytes / self._pool_bytes)
        if self.planner is Planner.RANGES:
            known = lag()
            # Between two looks ranges find nothing, however much waits.
            if filled or _is_at_tip(known):
                self._count(is_little=filled < _LITTLE and _is_recent(known))
        elif filled >= _MUCH:
            self.planner, self._little_in_a_row = Planner.RANGES, 0

    def _count(self, *, is_little: bool) -> None:
        self._little_in_a_row = self._little_in_a_row + 1 if is_little else 0
        if self._little_in_a_row >= _LITTLE_IN_A_ROW:
            self.planner = Planner.PREFETCH


def _is_at_tip(lag: Lag | None) -> bool:
    return lag is not None and lag.max_millis_behind_latest == 0


def _is_recent(lag: Lag | None) -> bool:
    millis = None if lag is None else lag.max_lag_millis
    return millis is not None and millis <= _RECENT_MILLIS
