"""The metrics under our own names: one entry for each, with the events that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any, Final, TypeAlias

from kinesis_publishers.events import (
    AggregatesExpanded,
    BackpressureBegan,
    BackpressureEnded,
    CallRetried,
    ConsumerAwaited,
    ConsumerDeregistered,
    ConsumerRegistered,
    DataLossTolerated,
    EventReceived,
    FetcherStopped,
    IteratorReplaced,
    PoolUsed,
    ProcessingFailed,
    RangeRead,
    RecordsFetched,
    RecordsProcessed,
    RecordsSkipped,
    ShardEnded,
    ShardsDiscovered,
    ShardStarted,
    ShardStopped,
    SubscriptionEnded,
    SubscriptionStarted,
    Throttled,
)
from kinesis_publishers.metrics.metric import Metric, MetricKind, MetricTable, ValueOf

__all__ = ["METRICS"]

_Sources: TypeAlias = Mapping[type, ValueOf]

_NANOS = 1e9
_MILLIS = 1e3
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def _one(_: Any) -> float:
    return 1


def _minus_one(_: Any) -> float:
    return -1


def _lag(event: RecordsFetched | EventReceived) -> float | None:
    return event.millis_behind_latest


def _records(event: Any) -> float:
    return float(event.records)


def _payload_bytes(event: Any) -> float:
    return float(event.payload_bytes)


def _seconds(event: Any) -> float:
    return float(event.seconds)


def _average_size(event: RecordsFetched | EventReceived) -> float | None:
    return event.payload_bytes / event.records if event.records else None


def _requested_bytes(event: RecordsFetched) -> float | None:
    return event.limit * event.payload_bytes / event.records if event.records else None


def _loop_nanos(event: RecordsFetched) -> float | None:
    return None if event.loop_seconds is None else event.loop_seconds * _NANOS


def _loop_frequency(event: RecordsFetched) -> float | None:
    return 1 / event.loop_seconds if event.loop_seconds else None


def _counter(name: str, unit: str, text: str, sources: _Sources, *attributes: str) -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.COUNTER,
        unit=unit,
        description=text,
        sources=sources,
        attributes=attributes,
    )


def _duration(name: str, text: str, sources: _Sources) -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.HISTOGRAM,
        unit="s",
        description=text,
        sources=sources,
        buckets=_SECONDS,
    )


def _shard_gauge(
    name: str,
    unit: str,
    text: str,
    sources: _Sources,
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


def _pool_gauge(name: str, unit: str, text: str, value: Callable[[PoolUsed], float]) -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.GAUGE,
        unit=unit,
        description=text,
        sources={PoolUsed: value},
        # Each fetcher of a process has a pool of its own.
        combined=sum,
    )


# Gauges, as they are there: the answer before says little about the next one, but ten times as many
# histograms would cost more than the reading itself.
_FLINK: Final = (
    _shard_gauge(
        "millis_behind_latest",
        "ms",
        "How far the last answer was behind the tip of the shard.",
        {RecordsFetched: _lag, EventReceived: _lag},
        "millisBehindLatest",
    ),
    _shard_gauge(
        "max_number_of_records_per_fetch",
        "{record}",
        "The Limit of GetRecords, which adaptive reads change.",
        {RecordsFetched: lambda event: event.limit},
        "maxNumberOfRecordsPerFetch",
    ),
    _shard_gauge(
        "number_of_aggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as Kinesis stores them: a KPL aggregate is one.",
        {RecordsFetched: _records, EventReceived: _records},
        "numberOfAggregatedRecordsPerFetch",
    ),
    _shard_gauge(
        "number_of_deaggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as the application got them.",
        {RecordsProcessed: _records},
        "numberOfDeaggregatedRecordsPerFetch",
    ),
    _shard_gauge(
        "average_record_size_bytes",
        "By",
        "The mean payload of the records of the last answer.",
        {RecordsFetched: _average_size, EventReceived: _average_size},
        "averageRecordSizeBytes",
        combined=fmean,
    ),
    _shard_gauge(
        "bytes_requested_per_fetch",
        "By",
        "What the Limit amounts to at the mean payload of the last answer.",
        {RecordsFetched: _requested_bytes},
        "bytesRequestedPerFetch",
    ),
    _shard_gauge(
        "run_loop_time_nanos",
        "ns",
        "The time between the last two GetRecords of the shard.",
        {RecordsFetched: _loop_nanos},
        "runLoopTimeNanos",
    ),
    _shard_gauge(
        "loop_frequency_hz",
        "Hz",
        "How often a second the shard is asked.",
        {RecordsFetched: _loop_frequency},
        "loopFrequencyHz",
        combined=min,
    ),
    _shard_gauge(
        "sleep_time_millis",
        "ms",
        "How much of the time before the last answer was slept, to keep the pace and to back off.",
        {RecordsFetched: lambda event: event.sleep_seconds * _MILLIS},
        "sleepTimeMillis",
    ),
)

_READING: Final = (
    _counter("fetches", "{call}", "Answers of GetRecords.", {RecordsFetched: _one}),
    _duration(
        "fetch_duration",
        "The time that a GetRecords takes.",
        {RecordsFetched: lambda event: event.call_seconds},
    ),
    _counter("events_received", "{event}", "Events of subscriptions.", {EventReceived: _one}),
    _counter(
        "records_fetched",
        "{record}",
        "Records that were read, by whatever call.",
        {RecordsFetched: _records, EventReceived: _records},
    ),
    _counter(
        "bytes_fetched",
        "By",
        "Payload that was read, by whatever call.",
        {RecordsFetched: _payload_bytes, EventReceived: _payload_bytes},
    ),
    _counter(
        "iterators_replaced", "{iterator}", "Iterators that expired.", {IteratorReplaced: _one}
    ),
    _counter(
        "subscriptions", "{subscription}", "Accepted subscriptions.", {SubscriptionStarted: _one}
    ),
    _counter(
        "resubscribes",
        "{subscription}",
        "Accepted subscriptions that continue one that has ended.",
        {SubscriptionStarted: lambda event: 1 if event.is_reopened else None},
    ),
    _duration(
        "subscription_duration",
        "How long subscriptions last.",
        {SubscriptionEnded: _seconds},
    ),
    _counter(
        "throttles",
        "{call}",
        "Calls that AWS refused because a rate is used up.",
        {Throttled: _one},
        "operation",
    ),
    _counter(
        "retries",
        "{call}",
        "Calls that are made again after a failure, throttles included.",
        {CallRetried: _one},
        "operation",
        "code",
    ),
)

_PROCESSING: Final = (
    _counter(
        "records_processed",
        "{record}",
        "Records that the application has taken.",
        {RecordsProcessed: _records},
    ),
    _counter(
        "bytes_processed",
        "By",
        "Payload that the application has taken.",
        {RecordsProcessed: _payload_bytes},
    ),
    _duration(
        "processing_duration",
        "The time that the application takes for a delivery.",
        {RecordsProcessed: _seconds},
    ),
    _counter(
        "processing_failures",
        "{delivery}",
        "Deliveries for which the application raised an error.",
        {ProcessingFailed: _one},
    ),
    _counter(
        "records_skipped",
        "{record}",
        "Records that came again and were dropped.",
        {RecordsSkipped: _records},
    ),
    _counter(
        "aggregates_expanded",
        "{record}",
        "KPL aggregates that were taken apart.",
        {AggregatesExpanded: lambda event: event.aggregates},
    ),
    _counter(
        "aggregated_user_records",
        "{record}",
        "Records that were inside aggregates.",
        {AggregatesExpanded: lambda event: event.user_records},
    ),
    _counter(
        "records_left_out",
        "{record}",
        "Records inside aggregates whose hash key belongs to another shard.",
        {AggregatesExpanded: lambda event: event.left_out},
    ),
    _counter(
        "corrupt_aggregates",
        "{record}",
        "Records that begin like an aggregate and are none.",
        {AggregatesExpanded: lambda event: event.corrupt},
    ),
    _counter(
        "backpressure_waits",
        "{wait}",
        "How often a shard had to wait for room in the pool.",
        {BackpressureBegan: _one},
    ),
    _duration(
        "backpressure_duration",
        "How long a shard waited for room in the pool.",
        {BackpressureEnded: _seconds},
    ),
    _pool_gauge("pool_records", "{record}", "Records in the pool.", _records),
    _pool_gauge("pool_bytes", "By", "Payload in the pool.", _payload_bytes),
    _pool_gauge("pool_max_records", "{record}", "The limit in records.", lambda e: e.max_records),
    _pool_gauge("pool_max_bytes", "By", "The limit in bytes.", lambda e: e.max_bytes),
    _pool_gauge("pool_waiters", "{shard}", "Shards that wait for room.", lambda e: e.waiters),
)

_LIFECYCLE: Final = (
    Metric(
        name="shards_reading",
        kind=MetricKind.UP_DOWN_COUNTER,
        unit="{shard}",
        description="Shards that are being read now.",
        sources={ShardStarted: _one, ShardEnded: _minus_one, ShardStopped: _minus_one},
        is_per_shard=False,
    ),
    _counter(
        "shards_discovered",
        "{shard}",
        "Shards that were found.",
        {ShardsDiscovered: lambda event: len(event.shard_ids)},
    ),
    _counter("shards_ended", "{shard}", "Shards that were read to their end.", {ShardEnded: _one}),
    _counter(
        "ranges_read", "{range}", "Exact ranges that were read (Spark, batches).", {RangeRead: _one}
    ),
    _counter(
        "fetcher_failures",
        "{fetcher}",
        "Fetchers that an error has stopped.",
        {FetcherStopped: lambda event: None if event.error is None else 1},
    ),
    _counter(
        "data_losses",
        "{loss}",
        "Losses of records that the configuration tolerated.",
        {DataLossTolerated: _one},
    ),
    _counter(
        "consumers_registered",
        "{consumer}",
        "Stream consumers that were registered.",
        {ConsumerRegistered: _one},
    ),
    _counter(
        "consumers_awaited",
        "{consumer}",
        "How often a consumer had to be waited for.",
        {ConsumerAwaited: _one},
        "status",
    ),
    _counter(
        "consumers_deregistered",
        "{consumer}",
        "Stream consumers that were removed.",
        {ConsumerDeregistered: _one},
    ),
)

METRICS: Final = MetricTable((*_FLINK, *_READING, *_PROCESSING, *_LIFECYCLE))
"""Every metric, FLIP-128's first."""
