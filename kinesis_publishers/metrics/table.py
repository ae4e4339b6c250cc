"""The metrics under our own names: one entry for each, with the events that it is made of."""

from __future__ import annotations

from statistics import fmean
from typing import Final

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

_NANOS, _MILLIS = 1e9, 1e3


def _average_size(event: ev.RecordsFetched | ev.EventReceived) -> float | None:
    return event.payload_bytes / event.records if event.records else None


def _requested_bytes(event: ev.RecordsFetched) -> float | None:
    return event.limit * event.payload_bytes / event.records if event.records else None


def _loop_nanos(event: ev.RecordsFetched) -> float | None:
    return None if event.loop_seconds is None else event.loop_seconds * _NANOS


def _loop_frequency(event: ev.RecordsFetched) -> float | None:
    return 1 / event.loop_seconds if event.loop_seconds else None


# Flink's connector has these under the same names in camel case, as gauges, too. Histograms of all
# of them for each answer would cost more than the reading.
FLINK: Final = (
    gauge(
        "millis_behind_latest",
        "ms",
        "How far the last answer was behind the tip of the shard.",
        RecordsFetched="millis_behind_latest",
        EventReceived="millis_behind_latest",
        QueryLagMeasured="millis_behind_latest",
    ),
    gauge(
        "max_number_of_records_per_fetch",
        "{record}",
        "The Limit of GetRecords, which adaptive reads change.",
        RecordsFetched="limit",
    ),
    gauge(
        "number_of_aggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as Kinesis stores them: a KPL aggregate is one.",
        RecordsFetched="records",
        EventReceived="records",
    ),
    gauge(
        "number_of_deaggregated_records_per_fetch",
        "{record}",
        "Records of the last answer as the application got them.",
        RecordsProcessed="records",
    ),
    gauge(
        "average_record_size_bytes",
        "By",
        "The mean payload of the records of the last answer.",
        combined=fmean,
        RecordsFetched=_average_size,
        EventReceived=_average_size,
    ),
    gauge(
        "bytes_requested_per_fetch",
        "By",
        "The Limit in bytes, at the mean payload of the last answer.",
        RecordsFetched=_requested_bytes,
    ),
    gauge("run_loop_time_nanos", "ns", "Time between GetRecords.", RecordsFetched=_loop_nanos),
    gauge(
        "loop_frequency_hz",
        "Hz",
        "GetRecords calls per second.",
        combined=min,
        RecordsFetched=_loop_frequency,
    ),
    gauge(
        "sleep_time_millis",
        "ms",
        "The time slept before the last answer, to keep the pace and to back off.",
        RecordsFetched=lambda e: e.sleep_seconds * _MILLIS,
    ),
)


_READING: Final = (
    counter("fetches", "{call}", "Answers of GetRecords.", RecordsFetched=1),
    duration("fetch_duration", "The time that a GetRecords takes.", RecordsFetched="call_seconds"),
    counter("events_received", "{event}", "Events of subscriptions.", EventReceived=1),
    counted_records(
        "records_fetched",
        "Records that were read, by any call.",
        RecordsFetched="records",
        EventReceived="records",
    ),
    counter(
        "bytes_fetched",
        "By",
        "Payload that was read, by any call.",
        RecordsFetched="payload_bytes",
        EventReceived="payload_bytes",
    ),
    counter("iterators_replaced", "{iterator}", "Iterators that expired.", IteratorReplaced=1),
    counter("subscriptions", "{subscription}", "Accepted subscriptions.", SubscriptionStarted=1),
    counter(
        "resubscribes",
        "{subscription}",
        "Accepted subscriptions that continue one that has ended.",
        SubscriptionStarted=lambda e: 1 if e.is_reopened else None,
    ),
    duration("subscription_duration", "How long subscriptions last.", SubscriptionEnded="seconds"),
    counter("throttles", "{call}", "Calls that AWS throttled.", "operation", Throttled=1),
    counter(
        "retries",
        "{call}",
        "Calls that are made again after a failure, throttles included.",
        "operation",
        "code",
        CallRetried=1,
    ),
)

_PROCESSING: Final = (
    counted_records(
        "records_processed", "Records that the application took.", RecordsProcessed="records"
    ),
    counter("bytes_processed", "By", "Processed payload.", RecordsProcessed="payload_bytes"),
    duration("processing_duration", "The time to process a delivery.", RecordsProcessed="seconds"),
    gauge(
        "processing_lag",
        "s",
        "How long records may have waited to be processed, the callback included.",
        LagMeasured="seconds",
        QueryLagMeasured="seconds",
    ),
    gauge("watermark_lag", "s", "How old the watermark is.", WatermarkMeasured="seconds"),
    gauge(
        "callback_delay",
        "s",
        "How long a callback slower than kinesis.processing.slow-after has run; 0 once it returns.",
        CallbackDelayed=lambda e: 0 if e.has_returned else e.seconds,
    ),
    counter("processing_failures", "{delivery}", "Deliveries that failed.", ProcessingFailed=1),
    counter("checkpoints_saved", "{checkpoint}", "Saved checkpoints.", CheckpointsSaved="shards"),
    duration("checkpoint_duration", "The time to save checkpoints.", CheckpointsSaved="seconds"),
    counter(
        "checkpoint_conflicts",
        "{conflict}",
        "Checkpoints that the store refused: another reader has written.",
        CheckpointsRefused=1,
    ),
    counted_records(
        "records_skipped", "Repeated records that were dropped.", RecordsSkipped="records"
    ),
    *(
        counted_records(name, text, AggregatesExpanded=field)
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
    counter("backpressure_waits", "{wait}", "Waits of shards for room.", BackpressureBegan=1),
    duration("backpressure_duration", "The time of a wait for room.", BackpressureEnded="seconds"),
    *(
        # Added up: each fetcher of a process has its own pool.
        gauge(f"pool_{name}", unit, text, combined=sum, PoolUsed=field)
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
        ShardsDiscovered=lambda e: len(e.shard_ids),
    ),
    counter("shards_ended", "{shard}", "Shards that were read to their end.", ShardEnded=1),
    counter("shards_left_behind", "{shard}", "Shards no longer waited for.", ShardLeftBehind=1),
    counter("ranges_read", "{range}", "Exact ranges that were read (Spark, batches).", RangeRead=1),
    counter(
        "fetcher_failures",
        "{fetcher}",
        "Fetchers that an error stopped.",
        FetcherStopped=lambda e: None if e.error is None else 1,
    ),
    counter("data_losses", "{loss}", "Tolerated losses of records.", DataLossTolerated=1),
    counter("consumers_registered", "{consumer}", "Registered consumers.", ConsumerRegistered=1),
    counter("consumers_awaited", "{consumer}", "Waits for consumers.", "status", ConsumerAwaited=1),
    counter("consumers_deregistered", "{consumer}", "Removed consumers.", ConsumerDeregistered=1),
)

# Of streaming queries; each value is kept apart by query.
_QUERIES: Final = (
    counted_records(
        "records_late",
        "Records that arrived more than 15 s before the end of an earlier micro-batch of the query:"
        " its windows may lack them.",
        RecordsLate="records",
    ),
    gauge(
        "shards_held_back",
        "{shard}",
        "Shards of a query that the others no longer wait for.",
        QueryProgressed="held_back_shards",
    ),
    counter("rows_read", "{row}", "Rows that a query has read.", QueryProgressed="rows"),
    counter("rows_written", "{row}", "Rows that a query wrote to Python sinks.", QueryWrote="rows"),
    counter("query_reports", "{report}", "Reports of a query, idle or not.", QueryProgressed=1),
    counter(
        "query_failures",
        "{query}",
        "Queries, of any source, that ended with an error.",
        QueryEnded=lambda e: e.error and 1,
    ),
)

_LEASES: Final = (
    *(
        gauge(f"lease_{field}", unit, text, LeasesCounted=field)
        for field, unit, text in (
            ("current", "{lease}", "Shards that this worker has the lease on."),
            ("total", "{lease}", "Shards of the application that have not ended."),
            ("free", "{lease}", "Shards that no live worker has the lease on."),
            ("spilled", "{lease}", "Free shards beyond kinesis.lease.maxleasesforworker."),
            ("workers", "{worker}", "Live workers that have leases, and this one."),
        )
    ),
    counter("leases_taken", "{lease}", "Leases that this worker took.", LeaseTaken=1),
    counter("leases_released", "{lease}", "Leases that this worker gave back.", LeaseReleased=1),
    counter(
        "leases_lost", "{lease}", "Leases that another worker took from this one.", LeaseLost=1
    ),
)

# Of producers.
_PRODUCING: Final = (
    counted_records("records_put", "Records that were written.", RecordsPut="records"),
    counter("bytes_put", "By", "Their payload.", RecordsPut="payload_bytes"),
    counted_records(
        "entries_put", "Entries that shards count: an aggregate is one.", RecordsPut="entries"
    ),
    counter(
        "entry_bytes_put", "By", "The bytes that shards have counted.", RecordsPut="entry_bytes"
    ),
    counted_records(
        "put_errors",
        "Entries that were refused, or whose call has failed.",
        "code",
        RecordsRefused="entries",
        PutRecordsAnswered=lambda e: e.entries if e.code else None,
    ),
    counted_records(
        "put_retries",
        "Repeated sends of records that were written in the end.",
        RecordsPut=lambda e: e.attempts - e.records,
    ),
    counted_records(
        "records_failed", "Records that the producer gave up.", "code", RecordsFailed="records"
    ),
    duration(
        "put_buffering_duration",
        "How long the oldest record of a shard in a call waited for the call.",
        RecordsPut="buffering_seconds",
    ),
    duration(
        "put_duration",
        "The time from put to the acknowledgement, for the oldest record of a shard in a call.",
        RecordsPut="seconds",
    ),
    duration("put_call_duration", "The time that PutRecords takes.", PutRecordsAnswered="seconds"),
    gauge(
        "put_pending_records",
        "{record}",
        "Records that are waiting or being sent.",
        combined=sum,
        PutRecordsAnswered="pending_records",
    ),
    gauge(
        "put_pending_bytes",
        "By",
        "The size of their data and partition keys.",
        combined=sum,
        PutRecordsAnswered="pending_bytes",
    ),
    counted_records(
        "records_put_again",
        "Records that may have been written before the producer was killed.",
        SpoolFound="unknown",
    ),
    counted_records(
        "records_mispredicted",
        "Records that went to another shard than expected: the stream was resharded.",
        ShardMispredicted="records",
    ),
    counted_records(
        "records_resent",
        "Such records that were sent again: readers of that shard leave them out.",
        ShardMispredicted="resent",
    ),
)

METRICS: Final = MetricTable(
    (
        *FLINK,
        *_READING,
        *_PROCESSING,
        *_LIFECYCLE,
        *_QUERIES,
        *_LEASES,
        *_PRODUCING,
    )
)
"""Every metric, FLIP-128's first."""
