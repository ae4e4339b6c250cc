"""The metrics under our own names: one entry for each, with the events that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kinesis_publishers.events import (
    AggregatesExpanded,
    BackpressureBegan,
    BackpressureEnded,
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
from kinesis_publishers.metrics.flink_table import FLINK_METRICS
from kinesis_publishers.metrics.metric import (
    Metric,
    MetricKind,
    MetricTable,
    ValueOf,
    bytes_of,
    minus_one,
    one,
    records_of,
    seconds_of,
)

__all__ = ["METRICS"]

_Sources: TypeAlias = Mapping[type, ValueOf]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


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


_READING: Final = (
    _counter("fetches", "{call}", "Answers of GetRecords.", {RecordsFetched: one}),
    _duration(
        "fetch_duration",
        "The time that a GetRecords takes.",
        {RecordsFetched: lambda event: event.call_seconds},
    ),
    _counter("events_received", "{event}", "Events of subscriptions.", {EventReceived: one}),
    _counter(
        "records_fetched",
        "{record}",
        "Records that were read, by any call.",
        {RecordsFetched: records_of, EventReceived: records_of},
    ),
    _counter(
        "bytes_fetched",
        "By",
        "Payload that was read, by any call.",
        {RecordsFetched: bytes_of, EventReceived: bytes_of},
    ),
    _counter(
        "iterators_replaced", "{iterator}", "Iterators that expired.", {IteratorReplaced: one}
    ),
    _counter(
        "subscriptions", "{subscription}", "Accepted subscriptions.", {SubscriptionStarted: one}
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
        {SubscriptionEnded: seconds_of},
    ),
    _counter(
        "throttles",
        "{call}",
        "Calls that AWS refused because a rate is used up.",
        {Throttled: one},
        "operation",
    ),
    _counter(
        "retries",
        "{call}",
        "Calls that are made again after a failure, throttles included.",
        {CallRetried: one},
        "operation",
        "code",
    ),
)

_PROCESSING: Final = (
    _counter(
        "records_processed",
        "{record}",
        "Records that the application has taken.",
        {RecordsProcessed: records_of},
    ),
    _counter(
        "bytes_processed",
        "By",
        "Payload that the application has taken.",
        {RecordsProcessed: bytes_of},
    ),
    _duration(
        "processing_duration",
        "The time that the application takes for a delivery.",
        {RecordsProcessed: seconds_of},
    ),
    _counter(
        "processing_failures",
        "{delivery}",
        "Deliveries for which the application raised an error.",
        {ProcessingFailed: one},
    ),
    _counter(
        "checkpoints_saved",
        "{checkpoint}",
        "Checkpoints that the store has written.",
        {CheckpointsSaved: lambda event: event.shards},
    ),
    _duration(
        "checkpoint_duration",
        "The time that the store of checkpoints takes for a batch.",
        {CheckpointsSaved: seconds_of},
    ),
    _counter(
        "checkpoint_conflicts",
        "{conflict}",
        "Checkpoints that another reader has written in between.",
        {CheckpointsRefused: one},
    ),
    _counter(
        "records_skipped",
        "{record}",
        "Records that came again and were dropped.",
        {RecordsSkipped: records_of},
    ),
    _counter(
        "aggregates_expanded",
        "{record}",
        "Aggregates that were deaggregated.",
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
        "Records inside aggregates that were left out: their hash key belongs to another shard.",
        {AggregatesExpanded: lambda event: event.left_out},
    ),
    _counter(
        "records_of_other_shards",
        "{record}",
        "Records inside aggregates that were delivered although their hash key belongs to another "
        "shard.",
        {AggregatesExpanded: lambda event: event.foreign},
    ),
    _counter(
        "corrupt_aggregates",
        "{record}",
        "Records that begin like an aggregate and are not valid ones.",
        {AggregatesExpanded: lambda event: event.corrupt},
    ),
    _counter(
        "backpressure_waits",
        "{wait}",
        "How often a shard had to wait for room in the pool.",
        {BackpressureBegan: one},
    ),
    _duration(
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
        name="shards_reading",
        kind=MetricKind.UP_DOWN_COUNTER,
        unit="{shard}",
        description="Shards that are being read now.",
        sources={ShardStarted: one, ShardEnded: minus_one, ShardStopped: minus_one},
        is_per_shard=False,
    ),
    _counter(
        "shards_discovered",
        "{shard}",
        "Shards that were found.",
        {ShardsDiscovered: lambda event: len(event.shard_ids)},
    ),
    _counter("shards_ended", "{shard}", "Shards that were read to their end.", {ShardEnded: one}),
    _counter(
        "ranges_read", "{range}", "Exact ranges that were read (Spark, batches).", {RangeRead: one}
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
        {DataLossTolerated: one},
    ),
    _counter(
        "consumers_registered",
        "{consumer}",
        "Stream consumers that were registered.",
        {ConsumerRegistered: one},
    ),
    _counter(
        "consumers_awaited",
        "{consumer}",
        "How often a consumer had to be waited for.",
        {ConsumerAwaited: one},
        "status",
    ),
    _counter(
        "consumers_deregistered",
        "{consumer}",
        "Stream consumers that were removed.",
        {ConsumerDeregistered: one},
    ),
)

METRICS: Final = MetricTable((*FLINK_METRICS, *_READING, *_PROCESSING, *_LIFECYCLE))
"""Every metric, FLIP-128's first."""
