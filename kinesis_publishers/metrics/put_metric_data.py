"""Requests of CloudWatch's PutMetricData: what they contain, and how much: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.aws.record_writer import batched_by_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from kinesis_publishers.metrics.statistics import Series, Statistics

__all__ = ["MAX_DATA", "MAX_REQUEST_BYTES", "datum_of", "requests_of"]

#: The most data of one request (CloudWatch API reference, PutMetricData).
MAX_DATA: Final = 1_000
#: The most bytes of one request (the same; taken in powers of ten to leave a margin).
MAX_REQUEST_BYTES: Final = 1_000_000

# In the query protocol, the longest one, each value has a name such as
# "MetricData.member.1000.Dimensions.member.3.Value=" in front of it.
_BYTES_PER_VALUE = 64
_FIXED_VALUES = 7
_FIXED_BYTES = 128

# Per-shard metrics of the KCL belong to its ProcessTask.
_OPERATION = {"Name": "Operation", "Value": "ProcessTask"}


def datum_of(series: Series, statistics: Statistics, now: datetime) -> dict[str, Any]:
    """Return one ``MetricDatum``, with the KCL's dimensions."""
    named = (("StreamId", series.stream), ("ShardId", series.shard_id))
    return {
        "MetricName": series.metric.name,
        "Dimensions": [
            _OPERATION,
            *({"Name": name, "Value": value} for name, value in named if value),
        ],
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
    return batched_by_size(data, _size_of, max_items=MAX_DATA, max_bytes=MAX_REQUEST_BYTES)


def _size_of(datum: dict[str, Any]) -> int:
    """Return the most bytes that ``datum`` takes in a request."""
    dimensions = datum["Dimensions"]
    texts = len(datum["MetricName"]) + sum(len(one["Name"] + one["Value"]) for one in dimensions)
    return _BYTES_PER_VALUE * (_FIXED_VALUES + 2 * len(dimensions)) + _FIXED_BYTES + texts
