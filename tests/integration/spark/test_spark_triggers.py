"""What each trigger reads, in every version of Spark: this file runs under all of them.

``test_spark_trigger_planning`` has the order of calls as a model, and
``planner/test_planner_available_now`` the ends of micro-batches; here Spark makes the calls.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

from kinesis_publishers_spark.offsets import OFFSET_VERSION
from tests.integration.spark.spark_harness import FROM_THE_START, MOSTLY_PREFETCH, numbered, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQueryProgress

    from tests.integration.spark.spark_harness import QueryRunner, RunningQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
SAYS_WHERE_IT_STANDS = VERSION >= (4, 2)
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


ONCE = {"once": True}
AVAILABLE_NOW = {"availableNow": True}


# Each planner and each trigger once; `tox -e soak` runs them all.
RUNS_THAT_END = [
    pytest.param("prefetch", AVAILABLE_NOW, id="prefetch-available now"),
    pytest.param("ranges", ONCE, id="ranges-once"),
    pytest.param("prefetch", ONCE, marks=pytest.mark.soak, id="prefetch-once"),
    pytest.param("ranges", AVAILABLE_NOW, marks=pytest.mark.soak, id="ranges-available now"),
]


@pytest.fixture
def planner_options(planner: str) -> dict[str, str]:
    return {"kinesis.spark.planner": planner, **FROM_THE_START}


@pytest.fixture
def wrapped(spark: SparkSession) -> Iterator[None]:
    """Spark's own AvailableNow for sources that have none, which it warns of."""
    spark.conf.set(WRAPPER, "true")
    yield
    spark.conf.unset(WRAPPER)


@MOSTLY_PREFETCH
def test_a_stopped_query_goes_on_where_it_was(
    runner: QueryRunner, flights: str, planner_options: dict[str, str]
) -> None:
    # Every other test runs without a pause between micro-batches.
    trigger = {"processingTime": "300 milliseconds"}
    runner.server.put_many(flights, numbered(0, 100))
    with runner.run(trigger=trigger, **planner_options) as running:
        running.wait_for_rows(100)
    runner.server.put_many(flights, numbered(100, 200))
    with runner.run(trigger=trigger, earlier=running, **planner_options) as running:
        running.wait_for_rows(200)
        runner.server.put_many(flights, numbered(200, 300))
        running.wait_for_rows(300)
    assert sorted(numbers(running.rows)) == list(range(300))


@pytest.mark.parametrize(("planner", "trigger"), RUNS_THAT_END)
def test_a_run_that_ends_by_itself_reads_what_there_was(
    runner: QueryRunner, flights: str, planner_options: dict[str, str], trigger: dict[str, Any]
) -> None:
    for run in range(2):
        runner.server.put_many(flights, numbered(100 * run, 100 * run + 100))
        with runner.run(trigger=trigger, **planner_options) as running:
            running.wait_for_the_end()
        assert sorted(numbers(running.rows)) == list(range(100 * run, 100 * run + 100))
    with runner.run(trigger=trigger, **planner_options) as running:
        running.wait_for_the_end()
    assert running.rows == []


def test_once_is_one_micro_batch_that_no_limit_cuts_where_spark_says_that_it_is_once(
    runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 100))
    with runner.run(trigger=ONCE, maxRecordsPerTrigger="30", **FROM_THE_START) as running:
        running.wait_for_the_end()
    assert len(running.batches) == 1
    read = len(running.rows)
    # Spark before 4.2 does not pass on which trigger it is: the limit holds, and nothing is lost.
    assert read == 100 if SAYS_WHERE_IT_STANDS else 0 < read <= 30


@pytest.mark.long
@pytest.mark.parametrize(("planner", "trigger"), [RUNS_THAT_END[0], *RUNS_THAT_END[2:]])
def test_a_run_after_a_failed_one_loses_nothing(
    runner: QueryRunner, flights: str, planner_options: dict[str, str], trigger: dict[str, Any]
) -> None:
    runner.server.put_many(flights, numbered(0, 100))
    runner.run_into_a_failure(trigger=trigger, **planner_options)
    runner.server.put_many(flights, numbered(100, 200))
    # One run replays the micro-batch that failed, and may end with that; the other reads on.
    with runner.run(trigger=trigger, **planner_options) as running:
        running.wait_for_the_end()
    with runner.run(trigger=trigger, earlier=running, **planner_options) as running:
        running.wait_for_the_end()
    assert sorted(numbers(running.rows)) == list(range(200))


@pytest.mark.long
@pytest.mark.usefixtures("wrapped")
def test_available_now_never_skips_records_after_a_restart(
    runner: QueryRunner, flights: str
) -> None:
    """The wrapper of Spark before 4.2 asks for an end before it says where the query stands."""
    with runner.run() as running:
        running.wait_until(lambda: 0 in running.batches)
    runner.server.put_many(flights, numbered(0, 100))
    if SAYS_WHERE_IT_STANDS:
        with runner.run(trigger=AVAILABLE_NOW) as running:
            running.wait_for_the_end()
    else:
        with (
            pytest.raises(StreamingQueryException, match=r"use Spark 4\.2 or later"),
            runner.run(trigger=AVAILABLE_NOW) as running,
        ):
            running.wait_for_the_end()
        with runner.run() as running:
            running.wait_for_rows(100)
    assert sorted(numbers(running.rows)) == list(range(100))


def last_progress(running: RunningQuery, *, has_rows: bool) -> StreamingQueryProgress | None:
    """Return what Spark reported last about a trigger with records, or one without."""
    assert running.query is not None
    reports = running.query.recentProgress[::-1]
    return next((one for one in reports if bool(one.numInputRows) is has_rows), None)


@MOSTLY_PREFETCH
@pytest.mark.skipif(not SAYS_WHERE_IT_STANDS, reason="Spark before 4.2 does not ask for the lag")
def test_progress_names_stream_planner_and_lag_also_when_there_is_nothing_new(
    runner: QueryRunner, flights: str, planner_options: dict[str, str]
) -> None:
    runner.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
    runner.server.put_many(flights, numbered(0, 10))
    sources = []
    with runner.run(**planner_options) as running:
        running.wait_for_rows(10)
        running.wait_until(lambda: last_progress(running, has_rows=True))
        sources.append(last_progress(running, has_rows=True).sources[0])

        def is_done() -> bool:
            idle = last_progress(running, has_rows=False)
            return idle and json.loads(idle.sources[0].latestOffset).get("maxLagMillis") == 0

        running.wait_until(is_done)
        sources.append(last_progress(running, has_rows=False).sources[0])
    runner.spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    for source in sources:
        lag = json.loads(source.latestOffset)
        assert lag["streams"] == flights
        assert lag["planner"] == planner_options["kinesis.spark.planner"]
        assert lag["shards"] == 4
        assert lag["maxLagMillis"] >= 0
        assert lag["maxMillisBehindLatest"] >= 0
        assert json.loads(source.endOffset)["version"] == OFFSET_VERSION
        assert "millisBehindLatest" not in source.endOffset


def test_an_offset_that_cannot_be_read_fails_the_query_and_says_so(
    runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 10))
    with runner.run(trigger=ONCE, **FROM_THE_START) as running:
        running.wait_for_the_end()
    make_last_offset_newer(runner.checkpoint)
    message = "(?s)CheckpointError.*version 99.*newer one"
    with (
        pytest.raises(StreamingQueryException, match=message),
        runner.run(**FROM_THE_START) as running,
    ):
        running.wait_for_rows(10)


def make_last_offset_newer(checkpoint: Path) -> None:
    """Change the source's offset in the offset log: the last line of the last file."""
    log = checkpoint / "offsets"
    last = max((one for one in log.iterdir() if one.name.isdigit()), key=lambda one: int(one.name))
    *head, offset = last.read_text().splitlines()
    last.write_text("\n".join([*head, re.sub(r'"version": \d+', '"version": 99', offset)]))
    (log / f".{last.name}.crc").unlink()
