"""What the listener makes of the progress of queries, as Spark writes it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from kinesis_publishers import EventReporter
from kinesis_publishers.events import QueryEnded, QueryLagMeasured, QueryProgressed, RecordsLate
from kinesis_publishers_spark.metrics import KinesisMetricsListener
from tests.examples import examples
from tests.unit.spark.spark_builders import ARN, shard

if TYPE_CHECKING:
    from kinesis_publishers import Clock, Event, Properties

ID, FIRST, SECOND = (UUID(int=number) for number in range(3))
AT = "2026-11-27T07:19:27.554Z"
OFFSET = {"version": 1, "streams": {ARN: {"created": 1, "shards": {}}}}
STARTED = QueryStartedEvent(ID, FIRST, "totals", AT, set())
FAILED = QueryTerminatedEvent(ID, FIRST, "ValueError: password", None)
IDLE = QueryIdleEvent(ID, FIRST, AT)
_COUNTS = st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), max_size=4)


class Seen(EventReporter):
    events: ClassVar[list[Event]] = []

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls()

    def __call__(self, event: Event) -> None:
        self.events.append(event)


def progress(report: object, *, run: UUID = FIRST, end: object = OFFSET) -> QueryProgressEvent:
    offsets = {"startOffset": None, "endOffset": end, "latestOffset": report}
    rates = {"inputRowsPerSecond": 3.0, "processedRowsPerSecond": 10.0}
    source = {"description": "PythonMicroBatchStream@1", "numInputRows": 50, **offsets, **rates}
    sink = {"description": "python.MemoryTable@4b6c338d", "numOutputRows": 7}
    query = {"id": str(ID), "runId": str(run), "name": "totals", "timestamp": AT, "batchId": 1}
    more = {"batchDuration": 5009, "stateOperators": [], "sources": [source], "sink": sink}
    return QueryProgressEvent.fromJson({"progress": query | more})


def reported(*events: Any) -> list[Event]:
    """Return what sinks have got when the listener is closed."""
    Seen.events.clear()
    listener = KinesisMetricsListener({"kinesis.metrics.sinks": f"{__name__}:Seen"})
    for event in events:
        getattr(listener, f"on{type(event).__name__.removesuffix('Event')}")(event)
    listener.close()
    return list(Seen.events)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(_COUNTS, max_size=3), st.integers(1, 4))
def test_late_records_are_counted_once_whichever_shards_are_named(
    runs: list[list[list[int]]], named: int
) -> None:
    reports, late = [], Counter[str]()
    for number, run in enumerate(runs):
        totals = Counter[str]()
        for grown in run:
            totals.update({str(shard(at)): count for at, count in enumerate(grown)})
            by_shard = dict((+totals).most_common(named))
            report = {"lateRecords": totals.total(), "lateRecordsByShard": by_shard}
            reports.append(progress(report, run=UUID(int=number)))
        late += totals
    events = [one for one in reported(*reports) if isinstance(one, RecordsLate)]
    assert sum(one.records for one in events) == late.total()
    assert all(one.records > 0 and one.query == "totals" for one in events)
    for one in late:
        counted = sum(event.records for event in events if str(event.shard) == one)
        assert counted == late[one] if named == 4 else counted <= late[one]


@pytest.mark.parametrize("last", [progress({}), IDLE, FAILED], ids=["report", "idle", "end"])
def test_a_lag_is_not_kept_when_it_is_not_known_any_more(last: Any) -> None:
    lags = {str(shard(0)): 5120, str(shard(1)): 310}
    first = {"lagMillis": lags, "millisBehindLatest": {str(shard(1)): 20}, "heldBackShards": 1}
    second = {"lagMillis": {str(shard(1)): 90}, "heldBackShards": 1}
    events = reported(progress(first), progress(second), last)
    seconds: dict[int, list[float | None]] = {0: [], 1: []}
    for event in events:
        if isinstance(event, QueryLagMeasured):
            seconds[int(event.shard.shard_id[-1])].append(event.seconds)
    assert seconds == {0: [5.12, None], 1: [0.31, 0.09, None]}
    read = [one for one in events if isinstance(one, QueryProgressed)]
    assert [one.held_back_shards for one in read] == [1, 1, 0]
    assert [one.rows for one in read[:2]] == [50, 50]


def test_a_failure_counts_before_any_progress_and_its_message_is_not_reported() -> None:
    failed = [QueryEnded(query="totals", error="unknown")]
    assert reported(STARTED, FAILED) == failed
    assert reported(progress({}), FAILED)[1:] == failed, "the end is no report"


@pytest.mark.parametrize(
    ("end", "report", "rows"),
    [
        ({"orders": {"0": 17}}, {"orders": {"0": 18}}, []),
        (None, "None", []),
        ({"streams": ["orders"]}, 17, []),
        # Spark 4.0 and 4.1 ask for no report.
        (OFFSET, None, [50]),
        (OFFSET, OFFSET, [50]),
    ],
)
def test_other_sources_are_left_out(end: object, report: object, rows: list[int]) -> None:
    events = reported(progress(report, end=end))
    assert [one.rows for one in events if isinstance(one, QueryProgressed)] == rows
    assert len(events) == len(rows)


def test_the_log_warns_and_spark_does_not_notice_what_is_not_understood(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = KinesisMetricsListener()
    for report in ({"lateRecords": 3}, {"lagMillis": 5}):
        listener.onQueryProgress(progress(report))
    listener.close()
    listener.onQueryProgress(progress({"lateRecords": 4}))
    warned = sorted(one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING)
    late, missed = warned
    assert late.startswith("Query totals read 3 records of stream orders")
    assert missed == "The metrics of a query lack one of its reports."
