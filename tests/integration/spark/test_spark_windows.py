"""Windows over an hour of backlog count every record, however the shards differ."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.backlogs import ARRIVALS, SHAPES, Backlog, count
from kinesis_publishers.testing.local_kinesis import LocalKinesis
from tests.integration.spark.spark_harness import FROM_THE_START

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

_PLANNERS = ("prefetch", "ranges", "auto")
# Many pages, and many micro-batches, of few records.
_SMALL = {
    **FROM_THE_START,
    "kinesis.shard.getrecords.maxrecordcount": "200",
    "kinesis.spark.targetbatchbytes": "100000",
}
_WITHOUT_PAUSE = {"processingTime": "0 seconds"}
_RUNS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "no limit": ({}, _WITHOUT_PAUSE),
    "records": ({"maxRecordsPerTrigger": "2000"}, _WITHOUT_PAUSE),
    "bytes": ({"maxBytesPerTrigger": "200000"}, _WITHOUT_PAUSE),
    "available now": ({}, {"availableNow": True}),
}
_MOST_TELLING = [
    ("uneven", "smooth", "prefetch", "no limit"),
    ("uneven", "bursty", "ranges", "available now"),
    ("silent-first", "smooth", "auto", "records"),
    ("reshard", "bursty", "ranges", "bytes"),
]
_EVERY = list(itertools.product(SHAPES, ARRIVALS, _PLANNERS, _RUNS))


def _cells() -> list[Any]:
    return [
        pytest.param(*one, marks=[pytest.mark.soak] * (one not in _MOST_TELLING), id="-".join(one))
        for one in _EVERY
    ]


@pytest.fixture
def server() -> Iterator[LocalKinesis]:
    """A server of its own: no stream can be older than the last one that a server has made."""
    with LocalKinesis.in_thread() as server:
        yield server


@pytest.mark.parametrize(("shape", "arrival", "planner", "run"), _cells())
def test_no_window_lacks_a_record(
    spark: SparkSession,
    server: LocalKinesis,
    tmp_path: Path,
    shape: str,
    arrival: str,
    planner: str,
    run: str,
) -> None:
    windows = Backlog(shape=shape, arrival=arrival, count=8_000).put(server, "flights")
    options, trigger = _RUNS[run]
    options = server.properties("flights") | _SMALL | options
    frame = (
        spark.readStream.format("kinesis")
        .options(**options)
        .option("kinesis.spark.planner", planner)
        .load()
    )
    written, batch_rows = count(frame, windows, tmp_path, trigger)
    wrong = windows.wrong(written)
    assert not wrong
    assert sum(batch_rows) == windows.count
