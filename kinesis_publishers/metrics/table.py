"""The metrics under our own names: one entry for each, with the events that it is made of."""

from __future__ import annotations

from statistics import fmean
from typing import Final

from attrs import evolve

from kinesis_publishers import events as ev
from kinesis_publishers.metrics.metric import (
    Metric,
    MetricKind,
    MetricTable,
    counted_records,
    counter,
    duration,
    gauge,
)
from kinesis_publishers.metrics.producing import PRODUCING

_NANOS, _MILLIS = 1e9, 1e3


def _average_size(event: ev.RecordsFetched | ev.EventReceived) -> float | None:
    return event.payload_bytes / event.records if event.records else None


def _requested_bytes(event: ev.RecordsFetched) -> float | None:
    return event.limit * event.payload_bytes / event.records if event.records else None


def _loop_nanos(event: ev.RecordsFetched) -> float | None:
    return None if event.loop_seconds is None else event.loop_seconds * _NANOS


def _loop_frequency(event: ev.RecordsFetched) -> float | None:
    return 1 / event.loop_seconds if event.loop_seconds else None


# Gauges, as in Flink. So many histograms for each answer would cost more than the reading.
_FLINK: Final = (
    gauge(
        "millis_behind_latest",
        "ms",
        "How far the last answer was behind the tip of the shard.",
        dict.fromkeys(
            (ev.RecordsFetched, ev.EventReceived, ev.QueryLagMeasured), "millis_behind_latest"
        ),
    ),
    gauge(
        "max_number_of_records_per_fetch",
        "{record}",
        "The Limit of GetRecords, which adaptive reads change.",
        {ev.RecordsFetched: "limit"},
    ),
    gauge(
        "number_of_aggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as Kinesis stores them: a KPL aggregate is one.",
        {ev.RecordsFetched: "records", ev.EventReceived: "records"},
    ),
    gauge(
        "number_of_deaggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as the application got them.",
        {ev.RecordsProcessed: "records"},
    ),
    gauge(
        "average_record_size_bytes",
        "By",
        "The mean payload of the records of the last answer.",
        {ev.RecordsFetched: _average_size, ev.EventReceived: _average_size},
        fmean,
    ),
    gauge(
        "bytes_requested_per_fetch",
        "By",
        "The Limit in bytes, at the mean payload of the last answer.",
        {ev.RecordsFetched: _requested_bytes},
    ),
    gauge(
        "run_loop_time_nanos", "ns", "Time between GetRecords.", {ev.RecordsFetched: _loop_nanos}
    ),
    gauge(
        "loop_frequency_hz",
        "Hz",
        "GetRecords calls per second.",
        {ev.RecordsFetched: _loop_frequency},
        min,
    ),
    gauge(
        "sleep_time_millis",
        "ms",
        "The time slept before the last answer, to keep the pace and to back off.",
        {ev.RecordsFetched: lambda e: e.sleep_seconds * _MILLIS},
    ),
)


def _with_flink_name(metric: Metric) -> Metric:
    first, *others = metric.name.split("_")
    return evolve(metric, flink_name=first + "".join(map(str.capitalize, others)))


_READING: Final = (
    counter("fetches", "{call}", "Answers of GetRecords.", {ev.RecordsFetched: 1}),
    duration(
        "fetch_duration", "The time that a GetRecords takes.", {ev.RecordsFetched: "call_seconds"}
    ),
    counter("events_received", "{event}", "Events of subscriptions.", {ev.EventReceived: 1}),
    counted_records(
        "records_fetched",
        "Records that were read, by any call.",
        {ev.RecordsFetched: "records", ev.EventReceived: "records"},
    ),
    counter(
        "bytes_fetched",
        "By",
        "Payload that was read, by any call.",
        {ev.RecordsFetched: "payload_bytes", ev.EventReceived: "payload_bytes"},
    ),
    counter(
        "iterators_replaced", "{iterator}", "Iterators that expired.", {ev.IteratorReplaced: 1}
    ),
    counter(
        "subscriptions", "{subscription}", "Accepted subscriptions.", {ev.SubscriptionStarted: 1}
    ),
    counter(
        "resubscribes",
        "{subscription}",
        "Accepted subscriptions that continue one that has ended.",
        {ev.SubscriptionStarted: lambda e: 1 if e.is_reopened else None},
    ),
    duration(
        "subscription_duration", "How long subscriptions last.", {ev.SubscriptionEnded: "seconds"}
    ),
    counter("throttles", "{call}", "Calls that AWS throttled.", {ev.Throttled: 1}, "operation"),
    counter(
        "retries",
        "{call}",
        "Calls that are made again after a failure, throttles included.",
        {ev.CallRetried: 1},
        "operation",
        "code",
    ),
)

_PROCESSING: Final = (
    counted_records(
        "records_processed", "Records that the application took.", {ev.RecordsProcessed: "records"}
    ),
    counter("bytes_processed", "By", "Processed payload.", {ev.RecordsProcessed: "payload_bytes"}),
    duration(
        "processing_duration", "The time to process a delivery.", {ev.RecordsProcessed: "seconds"}
    ),
    gauge(
        "processing_lag",
        "s",
        "How long records may have waited to be processed, the callback included.",
        {ev.LagMeasured: "seconds", ev.QueryLagMeasured: "seconds"},
    ),
    gauge("watermark_lag", "s", "How old the watermark is.", {ev.WatermarkMeasured: "seconds"}),
    gauge(
        "callback_delay",
        "s",
        "How long a callback slower than kinesis.processing.slow-after has run; 0 once it returns.",
        {ev.CallbackDelayed: lambda e: 0 if e.has_returned else e.seconds},
    ),
    counter(
        "processing_failures", "{delivery}", "Deliveries that failed.", {ev.ProcessingFailed: 1}
    ),
    counter(
        "checkpoints_saved", "{checkpoint}", "Saved checkpoints.", {ev.CheckpointsSaved: "shards"}
    ),
    duration(
        "checkpoint_duration", "The time to save checkpoints.", {ev.CheckpointsSaved: "seconds"}
    ),
    counter(
        "checkpoint_conflicts",
        "{conflict}",
        "Checkpoints that the store refused: another reader has written.",
        {ev.CheckpointsRefused: 1},
    ),
    counted_records(
        "records_skipped", "Repeated records that were dropped.", {ev.RecordsSkipped: "records"}
    ),
    *(
        counted_records(name, text, {ev.AggregatesExpanded: field})
        for name, field, text in (
            ("aggregates_expanded", "aggregates", "Aggregates that were deaggregated."),
            ("aggregated_user_records", "user_records", "Records that were inside aggregates."),
            (
                "records_left_out",
                "left_out",
                "Records of aggregates, left out: their hash keys belong to another shard.",
            ),
            (
                "records_of_other_shards",
                "foreign",
                "Records of aggregates, delivered though another shard has their hash keys.",
            ),
            (
                "copied_records_left_out",
                "copies",
                "Records of aggregates, left out: a producer put them twice, for the KCL.",
            ),
            (
                "corrupt_aggregates",
                "corrupt",
                "Records that begin like an aggregate and are not valid ones.",
            ),
        )
    ),
    counter("backpressure_waits", "{wait}", "Waits of shards for room.", {ev.BackpressureBegan: 1}),
    duration(
        "backpressure_duration", "The time of a wait for room.", {ev.BackpressureEnded: "seconds"}
    ),
    *(
        # Added up: each fetcher of a process has its own pool.
        gauge(f"pool_{name}", unit, text, {ev.PoolUsed: field}, sum)
        for name, field, unit, text in (
            ("records", "records", "{record}", "Records in the pool."),
            ("bytes", "payload_bytes", "By", "Payload in the pool."),
            ("max_records", "max_records", "{record}", "The limit in records."),
            ("max_bytes", "max_bytes", "By", "The limit in bytes."),
            ("waiters", "waiters", "{shard}", "Shards that wait for room."),
        )
    ),
)

_LIFECYCLE: Final = (
    Metric(
        "shards_reading",
        MetricKind.UP_DOWN_COUNTER,
        "{shard}",
        "Shards that are being read now.",
        {ev.ShardStarted: 1, ev.ShardEnded: -1, ev.ShardStopped: -1},
        is_per_shard=False,
    ),
    counter(
        "shards_discovered",
        "{shard}",
        "Shards that were found.",
        {ev.ShardsDiscovered: lambda e: len(e.shard_ids)},
    ),
    counter("shards_ended", "{shard}", "Shards that were read to their end.", {ev.ShardEnded: 1}),
    counter(
        "shards_left_behind", "{shard}", "Shards no longer waited for.", {ev.ShardLeftBehind: 1}
    ),
    counter(
        "ranges_read", "{range}", "Exact ranges that were read (Spark, batches).", {ev.RangeRead: 1}
    ),
    counter(
        "fetcher_failures",
        "{fetcher}",
        "Fetchers that an error stopped.",
        {ev.FetcherStopped: lambda e: None if e.error is None else 1},
    ),
    counter("data_losses", "{loss}", "Tolerated losses of records.", {ev.DataLossTolerated: 1}),
    counter(
        "consumers_registered", "{consumer}", "Registered consumers.", {ev.ConsumerRegistered: 1}
    ),
    counter(
        "consumers_awaited", "{consumer}", "Waits for consumers.", {ev.ConsumerAwaited: 1}, "status"
    ),
    counter(
        "consumers_deregistered", "{consumer}", "Removed consumers.", {ev.ConsumerDeregistered: 1}
    ),
)

# Of streaming queries; each value is kept apart by query.
_QUERIES: Final = (
    counted_records(
        "records_late",
        "Records that arrived more than 15 s before the end of an earlier micro-batch of the query:"
        " its windows may lack them.",
        {ev.RecordsLate: "records"},
    ),
    gauge(
        "shards_held_back",
        "{shard}",
        "Shards of a query that the others no longer wait for.",
        {ev.QueryProgressed: "held_back_shards"},
    ),
    counter("rows_read", "{row}", "Rows that a query has read.", {ev.QueryProgressed: "rows"}),
    counter(
        "rows_written", "{row}", "Rows that a query wrote to Python sinks.", {ev.QueryWrote: "rows"}
    ),
    counter(
        "query_reports", "{report}", "Reports of a query, idle or not.", {ev.QueryProgressed: 1}
    ),
    counter(
        "query_failures",
        "{query}",
        "Queries, of any source, that ended with an error.",
        {ev.QueryEnded: lambda e: e.error and 1},
    ),
)

_LEASES: Final = (
    *(
        gauge(f"lease_{field}", unit, text, {ev.LeasesCounted: field})
        for field, unit, text in (
            ("current", "{lease}", "Shards that this worker has the lease on."),
            ("total", "{lease}", "Shards of the application that have not ended."),
            ("free", "{lease}", "Shards that no live worker has the lease on."),
            ("spilled", "{lease}", "Free shards beyond kinesis.lease.maxleasesforworker."),
            ("workers", "{worker}", "Live workers that have leases, and this one."),
        )
    ),
    counter("leases_taken", "{lease}", "Leases that this worker took.", {ev.LeaseTaken: 1}),
    counter(
        "leases_released", "{lease}", "Leases that this worker gave back.", {ev.LeaseReleased: 1}
    ),
    counter(
        "leases_lost",
        "{lease}",
        "Leases that another worker took from this one.",
        {ev.LeaseLost: 1},
    ),
)

METRICS: Final = MetricTable(
    (
        *map(_with_flink_name, _FLINK),
        *_READING,
        *_PROCESSING,
        *_LIFECYCLE,
        *_QUERIES,
        *_LEASES,
        *PRODUCING,
    )
)
"""Every metric, FLIP-128's first."""
