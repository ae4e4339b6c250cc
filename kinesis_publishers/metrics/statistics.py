"""Sums up an interval as number, sum, minimum and maximum. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from attrs import define, frozen

from kinesis_publishers.events import Event
from kinesis_publishers.metrics.metric import Metric, MetricTable, stream_of
from kinesis_publishers.model import ShardKey


@frozen
class Series:
    """What keeps values apart; ``None`` where the event does not say it."""

    metric: Metric
    stream: str | None
    shard_id: str | None
    code: str | None = None
    query: str | None = None


@define
class Statistics:
    count: int
    total: float
    minimum: float
    maximum: float

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        # Not min() and max(): this runs a dozen times for each answer.
        if value < self.minimum:
            self.minimum = value
        elif value > self.maximum:
            self.maximum = value


class IntervalStatistics:
    """Adds up what events measure until the sums are taken.

    It holds one entry for each metric of each shard, or stream, that had events in the interval.
    """

    def __init__(self, table: MetricTable, *, is_per_shard: bool) -> None:
        self._table = table
        self._is_per_shard = is_per_shard
        # By shard or stream and query, and then by the metric's name.
        self._found: dict[object, dict[str, tuple[Series, Statistics]]] = {}

    def add(self, event: Event) -> None:
        sources = self._table.sources_of(type(event))
        if not sources:
            return
        shard: ShardKey | None = getattr(event, "shard", None)
        place = shard if shard is not None and self._is_per_shard else stream_of(event)
        query: str | None = getattr(event, "query", None)
        owner = place if query is None else (place, query)
        found = self._found.get(owner)
        if found is None:
            found = self._found[owner] = {}
        for metric, value_of in sources:
            value = value_of(event)
            if value is None:
                continue
            name, code = metric.name, None
            if name == _BY_CODE:
                code = event.code  # type: ignore[attr-defined]
                name = f"{name}/{code}"
            if name in found:
                found[name][1].add(value)
            else:
                shard_id = place.shard_id if isinstance(place, ShardKey) else None
                series = Series(metric, stream_of(event), shard_id, code, query)
                found[name] = (series, Statistics(1, value, value, value))

    def take(self) -> list[tuple[Series, Statistics]]:
        """Return the sums since the last call, and start over."""
        found, self._found = self._found, {}
        return [one for of_owner in found.values() for one in of_owner.values()]


#: The limits of one request (CloudWatch API reference, PutMetricData); the bytes with a margin.
MAX_DATA: Final = 1_000
MAX_REQUEST_BYTES: Final = 1_000_000

# In the query protocol, the longest one, each value has a name such as
# "MetricData.member.1000.Dimensions.member.3.Value=" in front of it.
_BYTES_PER_VALUE = 64
_FIXED_VALUES = 7
_FIXED_BYTES = 128

# The one metric that has the code of an error as a dimension.
_BY_CODE = "ErrorsByCode"


def datum_of(series: Series, statistics: Statistics, now: datetime) -> dict[str, Any]:
    """Return one ``MetricDatum``, with the dimensions of the KCL or of the KPL."""
    task = series.metric.kcl_task
    named = (
        ("Operation", task),
        ("StreamName" if task is None else "StreamId", series.stream),
        ("ShardId", series.shard_id),
        ("Query", series.query),
        ("ErrorCode", series.code),
    )
    return {
        "MetricName": series.metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in named if value],
        "Timestamp": now,
        "Unit": series.metric.unit,
        "StatisticValues": {
            "SampleCount": float(statistics.count),
            "Sum": float(statistics.total),
            "Minimum": float(statistics.minimum),
            "Maximum": float(statistics.maximum),
        },
    }


def requests_of(data: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Cut ``data`` into requests that are within the limits."""
    request: list[dict[str, Any]] = []
    total = 0
    for datum in data:
        size = _size_of(datum)
        if request and (len(request) == MAX_DATA or total + size > MAX_REQUEST_BYTES):
            yield request
            request, total = [], 0
        request.append(datum)
        total += size
    if request:
        yield request


def _size_of(datum: dict[str, Any]) -> int:
    """Return the maximum size of ``datum`` in a request, in bytes."""
    dimensions = datum["Dimensions"]
    texts = len(datum["MetricName"]) + sum(len(one["Name"] + one["Value"]) for one in dimensions)
    return _BYTES_PER_VALUE * (_FIXED_VALUES + 2 * len(dimensions)) + _FIXED_BYTES + texts
