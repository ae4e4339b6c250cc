"""What happened in an interval, as number, sum, minimum and maximum: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import define, frozen

from kinesis_publishers.metrics.metric import stream_of

if TYPE_CHECKING:
    from kinesis_publishers.events import Event
    from kinesis_publishers.metrics.metric import Metric, MetricTable

__all__ = ["IntervalStatistics", "Series", "Statistics"]


@frozen
class Series:
    """What values are kept apart by.

    Attributes:
        metric: what is measured.
        stream: the name of the stream, if it is about one.
        shard_id: the shard, if it is about one and shards are kept apart.
    """

    metric: Metric
    stream: str | None
    shard_id: str | None


@define
class Statistics:
    """The values of a series."""

    count: int
    total: float
    minimum: float
    maximum: float

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)


# Hashing a metric would hash its table of functions: its name says as much.
_Key: TypeAlias = tuple[str, str | None, str | None]


class IntervalStatistics:
    """Adds up what events measure, until somebody takes it.

    It holds one entry for each metric of each shard, or stream, that had events in the interval.

    Args:
        table: what is measured.
        is_per_shard: whether shards are kept apart.
    """

    def __init__(self, table: MetricTable, *, is_per_shard: bool) -> None:
        self._table = table
        self._is_per_shard = is_per_shard
        self._found: dict[_Key, tuple[Series, Statistics]] = {}

    def add(self, event: Event) -> None:
        """Take an event into account."""
        values = self._table.measure(event)
        if not values:
            return
        stream, shard = stream_of(event), getattr(event, "shard", None)
        shard_id = shard.shard_id if shard is not None and self._is_per_shard else None
        for metric, value in values:
            key = (metric.name, stream, shard_id)
            known = self._found.get(key)
            if known is None:
                statistics = Statistics(1, value, value, value)
                self._found[key] = (Series(metric, stream, shard_id), statistics)
            else:
                known[1].add(value)

    def take(self) -> list[tuple[Series, Statistics]]:
        """Return everything since the last time, and begin anew."""
        found, self._found = self._found, {}
        return list(found.values())
