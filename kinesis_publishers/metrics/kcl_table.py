"""The metrics under the names of the Kinesis Client Library, so that its dashboards go on working.

They are those of its ProcessTask (Amazon Kinesis Data Streams Developer Guide, *Monitor the Kinesis
Client Library with Amazon CloudWatch*). What the KCL measures and does not exist here (leases,
workers, its other tasks) is left out; the last entries are facts that it has no name for. Units are
CloudWatch's.
"""

from __future__ import annotations

from typing import Final

from kinesis_publishers.events import (
    BackpressureEnded,
    CallRetried,
    CheckpointsSaved,
    DataLossTolerated,
    EventReceived,
    IteratorReplaced,
    PoolUsed,
    ProcessingFailed,
    RecordsFetched,
    RecordsProcessed,
    SubscriptionStarted,
    Throttled,
)
from kinesis_publishers.metrics.metric import (
    Metric,
    MetricKind,
    MetricTable,
    ValueOf,
    bytes_of,
    lag_of,
    one,
    records_of,
    zero,
)

__all__ = ["KCL_METRICS"]

_MILLIS = 1e3


def _millis(event: RecordsProcessed | BackpressureEnded | CheckpointsSaved) -> float:
    return event.seconds * _MILLIS


def _get_records_failed(event: CallRetried) -> float | None:
    return 0 if event.operation == "GetRecords" else None


def _metric(name: str, unit: str, text: str, sources: dict[type, ValueOf]) -> Metric:
    return Metric(
        name=name,
        # CloudWatch keeps the number, sum, minimum and maximum of everything.
        kind=MetricKind.HISTOGRAM,
        unit=unit,
        description=text,
        sources=sources,
    )


_GET_RECORDS = "KinesisDataFetcher.getRecords"
_PROCESS = "RecordProcessor.processRecords"

KCL_METRICS: Final = MetricTable(
    (
        _metric(
            "RecordsProcessed",
            "Count",
            "Records that the application has taken.",
            {RecordsProcessed: records_of},
        ),
        _metric(
            "DataBytesProcessed",
            "Bytes",
            "Payload that the application has taken.",
            {RecordsProcessed: bytes_of},
        ),
        _metric(
            "MillisBehindLatest",
            "Milliseconds",
            "How far the last answer was behind the tip of the shard.",
            {RecordsFetched: lag_of, EventReceived: lag_of},
        ),
        _metric(
            f"{_GET_RECORDS}.Success",
            "Count",
            "1 for each answer of GetRecords, 0 for each failure.",
            {RecordsFetched: one, CallRetried: _get_records_failed},
        ),
        _metric(
            f"{_GET_RECORDS}.Time",
            "Milliseconds",
            "The time that a GetRecords takes.",
            {RecordsFetched: lambda event: event.call_seconds * _MILLIS},
        ),
        _metric("ExpiredIterator", "Count", "Iterators that expired.", {IteratorReplaced: one}),
        _metric(
            f"{_PROCESS}.Time",
            "Milliseconds",
            "The time that the application takes for a delivery.",
            {RecordsProcessed: _millis},
        ),
        _metric(
            "Success",
            "Count",
            "1 for each delivery that the application has taken, 0 for each that failed.",
            {RecordsProcessed: one, ProcessingFailed: zero},
        ),
        _metric(
            "Time",
            "Milliseconds",
            f"As {_PROCESS}.Time: taking a delivery is the whole task here.",
            {RecordsProcessed: _millis},
        ),
        _metric(
            "UpdateLease.Success",
            "Count",
            "Checkpoints that the store has written, of all shards together.",
            {CheckpointsSaved: lambda event: event.shards},
        ),
        _metric(
            "UpdateLease.Time",
            "Milliseconds",
            "The time that the store of checkpoints takes for a batch.",
            {CheckpointsSaved: _millis},
        ),
        _metric(
            "ThrottledCalls",
            "Count",
            "Calls that AWS refused because a rate is used up.",
            {Throttled: one},
        ),
        _metric(
            "Resubscribes",
            "Count",
            "Subscriptions that continue one that has ended.",
            {SubscriptionStarted: lambda event: 1 if event.is_reopened else None},
        ),
        _metric(
            "Backpressure.Time",
            "Milliseconds",
            "How long a shard waited for room in the pool.",
            {BackpressureEnded: _millis},
        ),
        _metric("PendingRecords", "Count", "Records in the pool.", {PoolUsed: records_of}),
        _metric("PendingBytes", "Bytes", "Payload in the pool.", {PoolUsed: bytes_of}),
        _metric(
            "DataLossTolerated",
            "Count",
            "Losses of records that the configuration tolerated.",
            {DataLossTolerated: one},
        ),
    )
)
"""What CloudWatch gets."""
