"""The tables of metrics: what they contain, and what they make of an event."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from attrs import evolve, fields

from kinesis_publishers.events import (
    EVENT_TYPES,
    BackpressureEnded,
    CallbackDelayed,
    CheckpointsSaved,
    ConsumerDeregistered,
    ConsumerRegistered,
    DataLossTolerated,
    FetcherStarted,
    FetcherStopped,
    IteratorReplaced,
    LagMeasured,
    ProcessingFailed,
    ProducerStarted,
    ProducerStopped,
    PutRecordsAnswered,
    RecordsFailed,
    RecordsPut,
    RecordsRefused,
    ShardMispredicted,
    ShardsDiscovered,
    ShardStopped,
    StreamPrepared,
    Throttled,
)
from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS, KPL_METRICS
from kinesis_publishers.metrics.metric import MetricKind, MetricTable, stream_of
from kinesis_publishers.metrics.table import FLINK, METRICS
from kinesis_publishers.model import StartingPosition
from tests.unit.metrics.metric_support import (
    ARN,
    FETCHED,
    POOL,
    PROCESSED,
    RECEIVED,
    RETRIED,
    ZERO,
    fetched,
    resubscribed,
)

if TYPE_CHECKING:
    from kinesis_publishers import Event

# The reference of Flink's connector, section 3.8; its group of watermarks has no counterpart.
FLINK_NAMES = {
    "millisBehindLatest",
    "averageRecordSizeBytes",
    "numberOfAggregatedRecordsPerFetch",
    "numberOfDeaggregatedRecordsPerFetch",
    "maxNumberOfRecordsPerFetch",
    "bytesRequestedPerFetch",
    "runLoopTimeNanos",
    "loopFrequencyHz",
    "sleepTimeMillis",
}
# The developer guide of Kinesis Data Streams, "Monitor the Kinesis Client Library with Amazon
# CloudWatch", the metrics of ProcessTask.
KCL_NAMES = {
    "KinesisDataFetcher.getRecords.Success",
    "KinesisDataFetcher.getRecords.Time",
    "UpdateLease.Success",
    "UpdateLease.Time",
    "DataBytesProcessed",
    "RecordsProcessed",
    "ExpiredIterator",
    "MillisBehindLatest",
    "RecordProcessor.processRecords.Time",
    "Success",
    "Time",
}
# The KPL's metrics_constants.h; UserRecordsReceived would need an event for each put.
KPL_NAMES = {
    "UserRecordsPending",
    "UserRecordsPut",
    "UserRecordsDataPut",
    "KinesisRecordsPut",
    "KinesisRecordsDataPut",
    "ErrorsByCode",
    "AllErrors",
    "RetriesPerRecord",
    "UserRecordExpired",
    "BufferingTime",
    "RequestTime",
    "UserRecordsPerKinesisRecord",
    "KinesisRecordsPerPutRecordsRequest",
    "UserRecordsPerPutRecordsRequest",
}
TABLES = pytest.mark.parametrize(
    "table", [METRICS, KCL_METRICS, KPL_METRICS], ids=["ours", "the KCL's", "the KPL's"]
)
NO_METRIC_OF_THEIR_OWN = {FetcherStarted, StreamPrepared, ProducerStarted, ProducerStopped}


def measured(event: Event, table: MetricTable = METRICS) -> dict[str, float]:
    return {one.name: value for one, value in table.measured_by(event)}


def delayed(*, has_returned: bool) -> Event:
    return CallbackDelayed(
        shard=ZERO, callback="process", record=None, seconds=60.0, has_returned=has_returned
    )


def test_every_metric_of_flinks_connector_is_there_under_a_name_like_its_own() -> None:
    assert {re.sub(r"(?=[A-Z])", "_", name).lower() for name in FLINK_NAMES} == {
        one.name for one in FLINK
    }
    assert METRICS.metrics[: len(FLINK)] == FLINK


def test_every_metric_of_the_kcls_process_task_is_there() -> None:
    assert {metric.name for metric in KCL_METRICS.metrics} >= KCL_NAMES


def test_every_metric_of_the_kpl_is_there() -> None:
    assert {metric.name for metric in KPL_METRICS.metrics} >= KPL_NAMES


@TABLES
def test_no_name_is_used_twice(table: MetricTable) -> None:
    names = [metric.name for metric in table.metrics]
    assert len(names) == len(set(names))


@TABLES
def test_every_metric_is_made_of_events_that_exist_and_their_fields(table: MetricTable) -> None:
    for metric in table.metrics:
        assert metric.sources
        assert set(metric.sources) <= set(EVENT_TYPES)
        for event_type in metric.sources:
            assert set(metric.attributes) <= {one.name for one in fields(event_type)}


def test_every_event_counts_somewhere_but_those_that_only_announce() -> None:
    counted = {one for metric in METRICS.metrics for one in metric.sources}
    assert set(EVENT_TYPES) - counted == NO_METRIC_OF_THEIR_OWN


def test_a_histogram_says_where_its_buckets_end_and_nothing_else_does() -> None:
    for metric in METRICS.metrics:
        assert (metric.buckets is not None) == (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.buckets or ()) == sorted(metric.buckets or ())


def test_what_an_answer_does_not_say_is_not_measured() -> None:
    silent = fetched(records=0, payload_bytes=0, millis_behind_latest=None, loop_seconds=None)
    assert not measured(silent).keys() & {
        "millis_behind_latest",
        "average_record_size_bytes",
        "bytes_requested_per_fetch",
        "run_loop_time_nanos",
        "loop_frequency_hz",
    }


def test_answers_that_follow_at_once_have_no_frequency() -> None:
    assert "loop_frequency_hz" not in measured(fetched(loop_seconds=0.0))


@pytest.mark.parametrize(
    ("event", "name", "value"),
    [
        (
            IteratorReplaced(shard=ZERO, position=StartingPosition.trim_horizon()),
            "ExpiredIterator",
            1,
        ),
        (RECEIVED, "MillisBehindLatest", 30),
        (resubscribed(), "Resubscribes", 1),
        (Throttled(shard=ZERO, operation="GetRecords"), "ThrottledCalls", 1),
        (BackpressureEnded(shard=ZERO, seconds=1.5), "Backpressure.Time", 1_500.0),
        (POOL, "PendingBytes", 70),
        (DataLossTolerated(shard=ZERO, message=""), "DataLossTolerated", 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_other_metrics_of_cloudwatch(event: Event, name: str, value: float) -> None:
    assert measured(event, KCL_METRICS)[name] == value


_PUT = RecordsPut(
    shard=ZERO,
    entries=2,
    records=10,
    payload_bytes=1_000,
    entry_bytes=1_100,
    attempts=15,
    buffering_seconds=0.125,
    seconds=0.25,
)
_PUT_CALL = PutRecordsAnswered(
    stream_arn=ARN, entries=3, records=11, seconds=0.5, pending_records=20, pending_bytes=2_000
)


OURS: list[tuple[Event, dict[str, float]]] = [
    (
        FETCHED,
        {
            "millis_behind_latest": 700,
            "max_number_of_records_per_fetch": 2_000,
            "number_of_aggregated_records_per_fetch": 50,
            "average_record_size_bytes": 100.0,
            "bytes_requested_per_fetch": 200_000.0,
            "run_loop_time_nanos": 250_000_000.0,
            "loop_frequency_hz": 4.0,
            "sleep_time_millis": 125.0,
            "fetches": 1,
            "fetch_duration": 0.5,
            "records_fetched": 50.0,
            "bytes_fetched": 5_000.0,
        },
    ),
    (
        RECEIVED,
        {
            "millis_behind_latest": 30,
            "number_of_aggregated_records_per_fetch": 4.0,
            "average_record_size_bytes": 20.0,
            "events_received": 1,
            "records_fetched": 4.0,
            "bytes_fetched": 80.0,
        },
    ),
    (resubscribed(), {"subscriptions": 1, "resubscribes": 1}),
    (resubscribed(is_reopened=False), {"subscriptions": 1}),
    (
        POOL,
        {
            "pool_records": 7,
            "pool_bytes": 70,
            "pool_max_records": 100,
            "pool_max_bytes": 1_000,
            "pool_waiters": 3,
        },
    ),
    (Throttled(shard=ZERO, operation="GetRecords"), {"throttles": 1}),
    (LagMeasured(shard=ZERO, seconds=1.5), {"processing_lag": 1.5}),
    (delayed(has_returned=False), {"callback_delay": 60.0}),
    (delayed(has_returned=True), {"callback_delay": 0}),
    (RETRIED, {"retries": 1}),
    (DataLossTolerated(shard=ZERO, message=""), {"data_losses": 1}),
    (
        FetcherStopped(streams=("orders",), seconds=1.0, error="LookupError: x"),
        {"fetcher_failures": 1},
    ),
    (FetcherStopped(streams=("orders",), seconds=1.0, error=None), {}),
    (ShardsDiscovered(stream_arn=ARN, shard_ids=("a", "b")), {"shards_discovered": 2}),
    (
        ShardStopped(shard=ZERO, position=StartingPosition.trim_horizon(), error=None),
        {"shards_reading": -1},
    ),
]
OF_THE_KCL: list[tuple[Event, dict[str, float]]] = [
    (
        FETCHED,
        {
            "MillisBehindLatest": 700,
            "KinesisDataFetcher.getRecords.Success": 1,
            "KinesisDataFetcher.getRecords.Time": 500.0,
        },
    ),
    (
        PROCESSED,
        {
            "RecordsProcessed": 45,
            "DataBytesProcessed": 4_500,
            "RecordProcessor.processRecords.Time": 2_000.0,
            "Success": 1,
            "Time": 2_000.0,
        },
    ),
    (
        CheckpointsSaved(shards=3, seconds=0.5),
        {"UpdateLease.Success": 3, "UpdateLease.Time": 500.0},
    ),
    (ProcessingFailed(shard=ZERO, records=1, error=""), {"Success": 0}),
    (RETRIED, {"KinesisDataFetcher.getRecords.Success": 0}),
]
OF_THE_KPL: list[tuple[Event, dict[str, float]]] = [
    (
        _PUT,
        {
            "UserRecordsPut": 10,
            "UserRecordsDataPut": 1_000,
            "KinesisRecordsPut": 2,
            "KinesisRecordsDataPut": 1_100,
            "BufferingTime": 125,
            "RetriesPerRecord": 0.5,
            "UserRecordsPerKinesisRecord": 5,
        },
    ),
    (
        _PUT_CALL,
        {
            "RequestTime": 500,
            "UserRecordsPending": 20,
            "KinesisRecordsPerPutRecordsRequest": 3,
            "UserRecordsPerPutRecordsRequest": 11,
        },
    ),
    (RecordsRefused(shard=ZERO, code="X", entries=2), {"AllErrors": 2, "ErrorsByCode": 2}),
    (
        RecordsFailed(shard=ZERO, code="RecordExpiredError", records=4),
        {"UserRecordExpired": 4, "UserRecordsFailed": 4},
    ),
    (RecordsFailed(shard=ZERO, code="X", records=4), {"UserRecordsFailed": 4}),
    (
        ShardMispredicted(shard=ZERO, shard_id="x", records=4, resent=1),
        {"UserRecordsMispredicted": 4},
    ),
]


@pytest.mark.parametrize(
    ("table", "event", "expected"),
    [
        (table, *row)
        for table, rows in ((METRICS, OURS), (KCL_METRICS, OF_THE_KCL), (KPL_METRICS, OF_THE_KPL))
        for row in rows
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_event_is_measured_as_flink_the_kcl_and_the_kpl_do_it(
    table: MetricTable, event: Event, expected: dict[str, float]
) -> None:
    assert measured(event, table) == expected


def test_a_call_that_has_failed_counts_its_entries_as_errors() -> None:
    found = measured(evolve(_PUT_CALL, code="InternalFailure"), KPL_METRICS)
    assert (found["AllErrors"], found["ErrorsByCode"]) == (3, 3)


@pytest.mark.parametrize(
    ("event", "stream"),
    [
        (FETCHED, "orders"),
        (ShardsDiscovered(stream_arn=ARN, shard_ids=()), "orders"),
        (
            ConsumerRegistered(stream_arn=ARN, consumer_arn=f"{ARN}/consumer/reports:1"),
            "orders",
        ),
        (ConsumerDeregistered(consumer_arn=f"{ARN}/consumer/reports:1"), "orders"),
        (POOL, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_stream_of_an_event_is_found_wherever_it_stands(
    event: Event, stream: str | None
) -> None:
    assert stream_of(event) == stream
