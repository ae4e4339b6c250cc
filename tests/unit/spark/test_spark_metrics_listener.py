"""What the listener makes of the progress of queries, as Spark writes it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from kinesis_publishers import EventReporter
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers.events import QueryLagMeasured, QueryProgressed, RecordsLate
from kinesis_publishers.metrics.cloudwatch import KCL_METRICS
from kinesis_publishers.metrics.open_telemetry import OpenTelemetryMetrics
from kinesis_publishers.metrics.statistics import IntervalStatistics, datum_of
from kinesis_publishers_spark.metrics import KinesisMetricsListener
from tests.examples import examples
from tests.unit.spark.spark_builders import ARN, NOON, shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers import Clock, Event, Properties

ID, FIRST, SECOND = (UUID(int=number) for number in range(3))
AT = "2026-11-27T07:19:27.554Z"
ZERO, ONE = str(shard(0)), str(shard(1))
OFFSET = {"version": 1, "streams": {ARN: {"created": 1, "shards": {}}}}
KAFKA = {"orders": {"0": 17}}
PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable@4b6c338d"


class Seen(EventReporter):
    events: ClassVar[list[Event]] = []

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls()

    def __call__(self, event: Event) -> None:
        self.events.append(event)


def progress(
    report: object, *, run: UUID = FIRST, name: str | None = "totals", end: object = OFFSET
) -> QueryProgressEvent:
    rates = {"inputRowsPerSecond": 3.0, "processedRowsPerSecond": 10.0}
    source = {"description": "org.apache.spark.sql.PythonMicroBatchStream@1", "numInputRows": 50}
    offsets = {"startOffset": None, "endOffset": end, "latestOffset": report}
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                "id": str(ID),
                "runId": str(run),
                "name": name,
                "timestamp": AT,
                "batchId": 1,
                "batchDuration": 5009,
                "stateOperators": [],
                "sources": [{**source, **offsets, **rates}],
                "sink": {"description": PYTHON, "numOutputRows": 7},
            }
        }
    )


def ended(run: UUID = FIRST, exception: str | None = None) -> QueryTerminatedEvent:
    return QueryTerminatedEvent(ID, run, exception, None)


def reported(*calls: Callable[[KinesisMetricsListener], None]) -> list[Event]:
    """Return what sinks have got when the listener is closed."""
    Seen.events.clear()
    listener = KinesisMetricsListener({"kinesis.metrics.sinks": f"{__name__}:Seen"})
    try:
        for call in calls:
            call(listener)
    finally:
        listener.close()
    return list(Seen.events)


def progressed(*events: QueryProgressEvent) -> list[Event]:
    return reported(*(lambda one, event=event: one.onQueryProgress(event) for event in events))


def exported(events: list[Event]) -> dict[str, list[tuple[dict[str, Any], float]]]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = OpenTelemetryMetrics(provider.get_meter("test"))
    for event in events:
        metrics(event)
    ((scope,),) = (one.scope_metrics for one in reader.get_metrics_data().resource_metrics)
    points = {
        one.name.removeprefix("kinesis_publishers."): [
            (dict(point.attributes), point.value) for point in one.data.data_points
        ]
        for one in scope.metrics
    }
    provider.shutdown()
    return points


def lags(**millis: int) -> dict[str, Any]:
    return {"lagMillis": millis, "millisBehindLatest": {}, "heldBackShards": 1}


_COUNTS = st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), max_size=4)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(_COUNTS, max_size=3), st.integers(1, 4))
def test_late_records_are_counted_once_whichever_shards_are_named(
    runs: list[list[list[int]]], named: int
) -> None:
    calls, late = [], Counter[str]()
    for number, reports in enumerate(runs):
        totals = Counter[str]()
        for grown in reports:
            totals.update({str(shard(at)): count for at, count in enumerate(grown)})
            report = {
                "lateRecords": totals.total(),
                "lateRecordsByShard": dict((+totals).most_common(named)),
            }
            calls.append(progress(report, run=UUID(int=number)))
        late += totals
    events = [one for one in progressed(*calls) if isinstance(one, RecordsLate)]
    assert sum(one.records for one in events) == late.total()
    assert all(one.records > 0 and one.query == "totals" for one in events)
    for one in late:
        counted = sum(event.records for event in events if str(event.shard) == one)
        assert counted == late[one] if named == 4 else counted <= late[one]


def test_only_the_shards_of_the_last_report_have_a_lag_of_their_query() -> None:
    events = progressed(
        progress(lags(**{ZERO: 5120, ONE: 310})),
        progress(lags(**{ONE: 90})),
        progress(lags(**{ONE: 7000}), run=SECOND, name=None),
    )
    points = exported(events)
    of_one = {"stream": "orders", "shard": shard(1).shard_id}
    assert points["processing_lag"] == [
        (of_one | {"query": "totals"}, 0.09),
        (of_one | {"query": str(ID)}, 7.0),
    ]
    assert points["rows_read"][0] == ({"stream": "orders", "query": "totals"}, 100)
    assert points["rows_written"] == [({"query": "totals"}, 14), ({"query": str(ID)}, 7)]
    assert points["shards_held_back"][0] == ({"stream": "orders", "query": "totals"}, 1)
    statistics = IntervalStatistics(KCL_METRICS, is_per_shard=False)
    for event in events:
        statistics.add(event)
    data = [datum_of(*one, NOON) for one in statistics.take()]
    lags_sent = [
        (one["Dimensions"][-1], one["StatisticValues"]["Maximum"])
        for one in data
        if one["MetricName"] == "ProcessingLag"
    ]
    assert ({"Name": "Query", "Value": "totals"}, 5120) in lags_sent


@pytest.mark.parametrize(
    "end",
    [
        lambda one: one.onQueryIdle(QueryIdleEvent(ID, FIRST, AT)),
        lambda one: one.onQueryTerminated(ended()),
    ],
    ids=["idle, and no session has the query", "ended"],
)
def test_a_lag_is_not_kept_when_it_is_not_known_any_more(
    end: Callable[[KinesisMetricsListener], None],
) -> None:
    report = progress(lags(**{ZERO: 5120}))
    points = exported(reported(lambda one: one.onQueryProgress(report), end))
    assert "processing_lag" not in points
    assert [value for _, value in points["shards_held_back"]] == [0]
    assert [value for _, value in points["rows_read"]] == [50]


def test_a_failure_counts_before_any_progress_and_its_message_is_not_reported() -> None:
    started = QueryStartedEvent(ID, FIRST, "totals", AT, set())
    events = reported(
        lambda one: one.onQueryStarted(started),
        lambda one: one.onQueryTerminated(ended(exception="ValueError: password")),
        lambda one: one.onQueryTerminated(ended(SECOND)),
    )
    assert exported(events)["query_failures"] == [({"query": "totals"}, 1)]
    assert "password" not in str(events)


@pytest.mark.parametrize("end", [KAFKA, None, "17", {"streams": ["orders"]}])
def test_other_sources_are_left_out(end: object) -> None:
    events = progressed(progress({"orders": {"0": 18}}, end=end))
    assert not [one for one in events if isinstance(one, QueryProgressed | QueryLagMeasured)]


@pytest.mark.parametrize("report", [None, "None", OFFSET])
def test_spark_4_0_reports_rows_alone(report: object) -> None:
    (read,) = [one for one in progressed(progress(report)) if isinstance(one, QueryProgressed)]
    assert (read.rows, read.stream_arn, read.held_back_shards) == (50, ARN, 0)


def test_spark_does_not_notice_a_report_that_is_not_understood(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        events = progressed(progress({"lagMillis": 5}), progress({}))
    assert "A report of a query is missing in its metrics." in caplog.text
    assert sum(isinstance(one, QueryProgressed) for one in events) == 2


def test_late_records_are_a_warning_in_the_log_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = KinesisMetricsListener()
    listener.onQueryProgress(progress({"lateRecords": 3}))
    listener.close()
    listener.onQueryProgress(progress({"lateRecords": 4}))
    (record,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert record.name == "kinesis_publishers"
    assert "records=3" in record.getMessage()


def test_a_wrong_property_is_an_error_when_the_listener_is_made() -> None:
    with pytest.raises(ConfigErrors, match=r"kinesis\.metrics\.sinks"):
        KinesisMetricsListener({"kinesis.metrics.sinks": "statsd"})
