"""The metrics of Flink's connector (FLIP-128), under the same names."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from kinesis_publishers.events import EventReceived, RecordsFetched, RecordsProcessed
from kinesis_publishers.metrics.metric import Metric, MetricKind, ValueOf, lag_of, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["FLINK_METRICS"]

_NANOS = 1e9
_MILLIS = 1e3


def _average_size(event: RecordsFetched | EventReceived) -> float | None:
    return event.payload_bytes / event.records if event.records else None


def _requested_bytes(event: RecordsFetched) -> float | None:
    return event.limit * event.payload_bytes / event.records if event.records else None


def _loop_nanos(event: RecordsFetched) -> float | None:
    return None if event.loop_seconds is None else event.loop_seconds * _NANOS


def _loop_frequency(event: RecordsFetched) -> float | None:
    return 1 / event.loop_seconds if event.loop_seconds else None


def _gauge(
    name: str,
    unit: str,
    text: str,
    sources: Mapping[type, ValueOf],
    flink_name: str,
    *,
    combined: Callable[[Iterable[float]], float] = max,
) -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.GAUGE,
        unit=unit,
        description=text,
        sources=sources,
        flink_name=flink_name,
        combined=combined,
    )


# Gauges, as in Flink. So many histograms for each answer would cost more than the reading.
FLINK_METRICS: Final = (
    _gauge(
        "millis_behind_latest",
        "ms",
        "How far the last answer was behind the tip of the shard.",
        {RecordsFetched: lag_of, EventReceived: lag_of},
        "millisBehindLatest",
    ),
    _gauge(
        "max_number_of_records_per_fetch",
        "{record}",
        "The Limit of GetRecords, which adaptive reads change.",
        {RecordsFetched: lambda event: event.limit},
        "maxNumberOfRecordsPerFetch",
    ),
    _gauge(
        "number_of_aggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as Kinesis stores them: a KPL aggregate is one.",
        {RecordsFetched: records_of, EventReceived: records_of},
        "numberOfAggregatedRecordsPerFetch",
    ),
    _gauge(
        "number_of_deaggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as the application got them.",
        {RecordsProcessed: records_of},
        "numberOfDeaggregatedRecordsPerFetch",
    ),
    _gauge(
        "average_record_size_bytes",
        "By",
        "The mean payload of the records of the last answer.",
        {RecordsFetched: _average_size, EventReceived: _average_size},
        "averageRecordSizeBytes",
        combined=fmean,
    ),
    _gauge(
        "bytes_requested_per_fetch",
        "By",
        "What the Limit amounts to at the mean payload of the last answer.",
        {RecordsFetched: _requested_bytes},
        "bytesRequestedPerFetch",
    ),
    _gauge(
        "run_loop_time_nanos",
        "ns",
        "The time between the last two GetRecords of the shard.",
        {RecordsFetched: _loop_nanos},
        "runLoopTimeNanos",
    ),
    _gauge(
        "loop_frequency_hz",
        "Hz",
        "How often a second the shard is asked.",
        {RecordsFetched: _loop_frequency},
        "loopFrequencyHz",
        combined=min,
    ),
    _gauge(
        "sleep_time_millis",
        "ms",
        "How much of the time before the last answer was slept, to keep the pace and to back off.",
        {RecordsFetched: lambda event: event.sleep_seconds * _MILLIS},
        "sleepTimeMillis",
    ),
)
