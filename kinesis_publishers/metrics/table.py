"""The metrics under our own names: one entry for each, with the events that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Final

from kinesis_publishers.events import (
    AggregatesExpanded,
    BackpressureBegan,
    BackpressureEnded,
    CallbackDelayed,
    CallRetried,
    CheckpointsRefused,
    CheckpointsSaved,
    ConsumerAwaited,
    ConsumerDeregistered,
    ConsumerRegistered,
    DataLossTolerated,
    EventReceived,
    FetcherStopped,
    IteratorReplaced,
    LagMeasured,
    PoolUsed,
    ProcessingFailed,
    QueryLagMeasured,
    RangeRead,
    RecordsFetched,
    RecordsProcessed,
    RecordsSkipped,
    ShardEnded,
    ShardLeftBehind,
    ShardsDiscovered,
    ShardStarted,
    ShardStopped,
    SubscriptionEnded,
    SubscriptionStarted,
    Throttled,
    WatermarkMeasured,
)
from kinesis_publishers.metrics.leases import LEASES
from kinesis_publishers.metrics.metric import (
    Metric,
    MetricKind,
    MetricTable,
    Sources,
    age,
    bytes_of,
    counted_records,
    counter,
    duration,
    lag_of,
    minus_one,
    one,
    records_of,
    seconds_of,
)
from kinesis_publishers.metrics.producing import PRODUCING
from kinesis_publishers.metrics.queries import QUERIES

_NANOS, _MILLIS = 1e9, 1e3


def _pool_gauge(name: str, unit: str, text: str, value: Callable[[PoolUsed], float]) -> Metric:
    # Each fetcher of a process has its own pool.
    return Metric(name, MetricKind.GAUGE, unit, text, {PoolUsed: value}, combined=sum)


def _average_size(event: RecordsFetched | EventReceived) -> float | None:
    return event.payload_bytes / event.records if event.records else None


def _requested_bytes(event: RecordsFetched) -> float | None:
    return event.limit * event.payload_bytes / event.records if event.records else None


def _loop_nanos(event: RecordsFetched) -> float | None:
    return None if event.loop_seconds is None else event.loop_seconds * _NANOS


def _loop_frequency(event: RecordsFetched) -> float | None:
    return 1 / event.loop_seconds if event.loop_seconds else None


def _flink_gauge(
    name: str,
    unit: str,
    text: str,
    sources: Sources,
    *,
    combined: Callable[[Iterable[float]], float] = max,
) -> Metric:
    first, *others = name.split("_")
    flink_name = first + "".join(map(str.capitalize, others))
    return Metric(
        name, MetricKind.GAUGE, unit, text, sources, combined=combined, flink_name=flink_name
    )


# Gauges, as in Flink. So many histograms for each answer would cost more than the reading.
_FLINK: Final = (
    _flink_gauge(
        "millis_behind_latest",
        "ms",
        "How far the last answer was behind the tip of the shard.",
        {RecordsFetched: lag_of, EventReceived: lag_of, QueryLagMeasured: lag_of},
    ),
    _flink_gauge(
        "max_number_of_records_per_fetch",
        "{record}",
        "The Limit of GetRecords, which adaptive reads change.",
        {RecordsFetched: lambda event: event.limit},
    ),
    _flink_gauge(
        "number_of_aggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as Kinesis stores them: a KPL aggregate is one.",
        {RecordsFetched: records_of, EventReceived: records_of},
    ),
    _flink_gauge(
        "number_of_deaggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as the application got them.",
        {RecordsProcessed: records_of},
    ),
    _flink_gauge(
        "average_record_size_bytes",
        "By",
        "The mean payload of the records of the last answer.",
        {RecordsFetched: _average_size, EventReceived: _average_size},
        combined=fmean,
    ),
    _flink_gauge(
        "bytes_requested_per_fetch",
        "By",
        "What the Limit amounts to at the mean payload of the last answer.",
        {RecordsFetched: _requested_bytes},
    ),
    _flink_gauge(
        "run_loop_time_nanos",
        "ns",
        "The time between the last two GetRecords of the shard.",
        {RecordsFetched: _loop_nanos},
    ),
    _flink_gauge(
        "loop_frequency_hz",
        "Hz",
        "How often a second the shard is asked.",
        {RecordsFetched: _loop_frequency},
        combined=min,
    ),
    _flink_gauge(
        "sleep_time_millis",
        "ms",
        "How much of the time before the last answer was slept, to keep the pace and to back off.",
        {RecordsFetched: lambda event: event.sleep_seconds * _MILLIS},
    ),
)

_READING: Final = (
    counter("fetches", "{call}", "Answers of GetRecords.", {RecordsFetched: one}),
    duration(
        "fetch_duration",
        "The time that a GetRecords takes.",
        {RecordsFetched: lambda event: event.call_seconds},
    ),
    counter("events_received", "{event}", "Events of subscriptions.", {EventReceived: one}),
    counted_records(
        "records_fetched",
        "Records that were read, by any call.",
        {RecordsFetched: records_of, EventReceived: records_of},
    ),
    counter(
        "bytes_fetched",
        "By",
        "Payload that was read, by any call.",
        {RecordsFetched: bytes_of, EventReceived: bytes_of},
    ),
    counter("iterators_replaced", "{iterator}", "Iterators that expired.", {IteratorReplaced: one}),
    counter(
        "subscriptions", "{subscription}", "Accepted subscriptions.", {SubscriptionStarted: one}
    ),
    counter(
        "resubscribes",
        "{subscription}",
        "Accepted subscriptions that continue one that has ended.",
        {SubscriptionStarted: lambda event: 1 if event.is_reopened else None},
    ),
    duration(
        "subscription_duration", "How long subscriptions last.", {SubscriptionEnded: seconds_of}
    ),
    counter(
        "throttles",
        "{call}",
        "Calls that AWS refused because a rate is used up.",
        {Throttled: one},
        "operation",
    ),
    counter(
        "retries",
        "{call}",
        "Calls that are made again after a failure, throttles included.",
        {CallRetried: one},
        "operation",
        "code",
    ),
)

_PROCESSING: Final = (
    counted_records(
        "records_processed",
        "Records that the application has taken.",
        {RecordsProcessed: records_of},
    ),
    counter(
        "bytes_processed",
        "By",
        "Payload that the application has taken.",
        {RecordsProcessed: bytes_of},
    ),
    duration(
        "processing_duration",
        "The time that the application takes for a delivery.",
        {RecordsProcessed: seconds_of},
    ),
    age(
        "processing_lag",
        "How long records may have waited to be processed, in the callback and before it.",
        {LagMeasured: seconds_of, QueryLagMeasured: lambda event: event.seconds},
    ),
    age("watermark_lag", "How old the watermark is.", {WatermarkMeasured: seconds_of}),
    age(
        "callback_delay",
        "How long a callback has not returned that takes longer than kinesis.processing.slow-after;"
        " 0 when it has.",
        {CallbackDelayed: lambda event: 0 if event.has_returned else event.seconds},
    ),
    counter(
        "processing_failures",
        "{delivery}",
        "Deliveries for which the application raised an error.",
        {ProcessingFailed: one},
    ),
    counter(
        "checkpoints_saved",
        "{checkpoint}",
        "Checkpoints that the store has written.",
        {CheckpointsSaved: lambda event: event.shards},
    ),
    duration(
        "checkpoint_duration",
        "The time that the store of checkpoints takes for a batch.",
        {CheckpointsSaved: seconds_of},
    ),
    counter(
        "checkpoint_conflicts",
        "{conflict}",
        "Checkpoints that another reader has written in between.",
        {CheckpointsRefused: one},
    ),
    counted_records(
        "records_skipped", "Records that came again and were dropped.", {RecordsSkipped: records_of}
    ),
    counted_records(
        "aggregates_expanded",
        "Aggregates that were deaggregated.",
        {AggregatesExpanded: lambda event: event.aggregates},
    ),
    counted_records(
        "aggregated_user_records",
        "Records that were inside aggregates.",
        {AggregatesExpanded: lambda event: event.user_records},
    ),
    counted_records(
        "records_left_out",
        "Records inside aggregates that were left out: their hash key belongs to another shard.",
        {AggregatesExpanded: lambda event: event.left_out},
    ),
    counted_records(
        "records_of_other_shards",
        "Records inside aggregates that were delivered although their hash key belongs to another "
        "shard.",
        {AggregatesExpanded: lambda event: event.foreign},
    ),
    counted_records(
        "copied_records_left_out",
        "Records inside aggregates that a producer has put a second time, for the KCL.",
        {AggregatesExpanded: lambda event: event.copies},
    ),
    counted_records(
        "corrupt_aggregates",
        "Records that begin like an aggregate and are not valid ones.",
        {AggregatesExpanded: lambda event: event.corrupt},
    ),
    counter(
        "backpressure_waits",
        "{wait}",
        "How often a shard had to wait for room in the pool.",
        {BackpressureBegan: one},
    ),
    duration(
        "backpressure_duration",
        "How long a shard waited for room in the pool.",
        {BackpressureEnded: seconds_of},
    ),
    _pool_gauge("pool_records", "{record}", "Records in the pool.", records_of),
    _pool_gauge("pool_bytes", "By", "Payload in the pool.", bytes_of),
    _pool_gauge("pool_max_records", "{record}", "The limit in records.", lambda e: e.max_records),
    _pool_gauge("pool_max_bytes", "By", "The limit in bytes.", lambda e: e.max_bytes),
    _pool_gauge("pool_waiters", "{shard}", "Shards that wait for room.", lambda e: e.waiters),
)

_LIFECYCLE: Final = (
    Metric(
        "shards_reading",
        MetricKind.UP_DOWN_COUNTER,
        "{shard}",
        "Shards that are being read now.",
        {ShardStarted: one, ShardEnded: minus_one, ShardStopped: minus_one},
        is_per_shard=False,
    ),
    counter(
        "shards_discovered",
        "{shard}",
        "Shards that were found.",
        {ShardsDiscovered: lambda event: len(event.shard_ids)},
    ),
    counter("shards_ended", "{shard}", "Shards that were read to their end.", {ShardEnded: one}),
    counter(
        "shards_left_behind",
        "{shard}",
        "Shards that the others stopped waiting for.",
        {ShardLeftBehind: one},
    ),
    counter(
        "ranges_read", "{range}", "Exact ranges that were read (Spark, batches).", {RangeRead: one}
    ),
    counter(
        "fetcher_failures",
        "{fetcher}",
        "Fetchers that an error has stopped.",
        {FetcherStopped: lambda event: None if event.error is None else 1},
    ),
    counter(
        "data_losses",
        "{loss}",
        "Losses of records that the configuration tolerated.",
        {DataLossTolerated: one},
    ),
    counter(
        "consumers_registered",
        "{consumer}",
        "Stream consumers that were registered.",
        {ConsumerRegistered: one},
    ),
    counter(
        "consumers_awaited",
        "{consumer}",
        "How often a consumer had to be waited for.",
        {ConsumerAwaited: one},
        "status",
    ),
    counter(
        "consumers_deregistered",
        "{consumer}",
        "Stream consumers that were removed.",
        {ConsumerDeregistered: one},
    ),
    *QUERIES,
)

METRICS: Final = MetricTable((*_FLINK, *_READING, *_PROCESSING, *_LIFECYCLE, *LEASES, *PRODUCING))
"""Every metric, FLIP-128's first."""
