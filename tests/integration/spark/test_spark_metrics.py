"""The sinks of the properties, in the Python processes that Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import pytest

from kinesis_publishers import EventReporter
from kinesis_publishers.events import QueryEnded, QueryLagMeasured, RecordsLate
from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers_spark.metrics import KinesisMetricsListener
from tests.integration.spark.spark_harness import FROM_THE_START, RunningQuery, numbered, numbers
from tests.unit.metrics.test_metrics_prometheus import scraped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kinesis_publishers import Clock, Event, Properties
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.spark_harness import QueryRunner

_IDLE_AFTER = "spark.sql.streaming.noDataProgressEventInterval"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_what_was_read_is_counted_in_cloudwatch(
    runner: QueryRunner,
    flights: str,
    planner: str,
    moto_url: str,
    cloudwatch_sums: Callable[[str], dict[str, float]],
) -> None:
    namespace = f"spark-{planner}"

    def processed() -> float:
        return cloudwatch_sums(namespace).get("RecordsProcessed", 0)

    options = FROM_THE_START | {
        "kinesis.spark.planner": planner,
        "kinesis.metrics.sinks": "log,cloudwatch",
        "kinesis.metrics.level": "stream",
        "kinesis.metrics.cloudwatch.namespace": namespace,
        "kinesis.metrics.cloudwatch.endpoint": moto_url,
        "kinesis.metrics.cloudwatch.intervalmillis": "1000",
    }
    runner.server.put_many(flights, numbered(0, 300))
    with runner.run(**options) as running:
        running.wait_for_rows(300)
        running.wait_until(lambda: processed() >= 300)
    assert processed() == 300
    assert sorted(numbers(running.rows)) == list(range(300))


class Seen(EventReporter):
    """Every event, in the process of the listener."""

    events: ClassVar[list[Event]] = []

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls()

    def __call__(self, event: Event) -> None:
        self.events.append(event)


def test_a_listener_reports_every_query_to_prometheus(
    spark: SparkSession,
    local_kinesis: LocalKinesis,
    tmp_path: Path,
    unused_tcp_port: int,
) -> None:
    local_kinesis.behaviour = Behaviour(clock_skew_seconds=-3600)
    local_kinesis.create_stream("copies", 1)
    local_kinesis.create_stream("visits", 4)
    local_kinesis.put_many("visits", numbered(0, 300))
    local_kinesis.behaviour = Behaviour()
    frame = (
        spark.readStream.format("kinesis")
        .options(**local_kinesis.properties("visits") | FROM_THE_START)
        .load()
        .select("data", "partitionKey")
    )

    def start(name: str, form: str) -> StreamingQuery:
        writer = frame.writeStream.format(form).options(**local_kinesis.properties("copies"))
        return writer.option("checkpointLocation", str(tmp_path / name)).queryName(name).start()

    def values(metric: str, query: str) -> list[float]:
        samples = scraped(unused_tcp_port).get(f"kinesis_publishers_{metric}", [])
        return [value for labels, value in samples if labels["query"] == query]

    def wait(query: StreamingQuery, metric: str, expected: list[float]) -> None:
        running = RunningQuery(query)
        running.wait_until(lambda: values(metric, query.name) == expected)

    listener = KinesisMetricsListener(
        {
            "kinesis.metrics.sinks": f"prometheus,{__name__}:Seen",
            "kinesis.metrics.prometheus.port": unused_tcp_port,
        }
    )
    spark.conf.set(_IDLE_AFTER, "1000")
    spark.streams.addListener(listener)
    try:
        copier, watcher = start("copier", "kinesis"), start("watcher", "noop")
        wait(copier, "rows_written_total", [300.0])
        for query in (copier, watcher):
            wait(query, "rows_read_total", [300.0])
            # Idle: the lag is not that of the last micro-batch.
            wait(query, "processing_lag_seconds", [0.0] * 4)
        lags = [one for one in Seen.events if isinstance(one, QueryLagMeasured)]
        for query in (copier, watcher):
            of_query = [one.seconds for one in lags if one.query == query.name]
            assert max(second for second in of_query if second is not None) >= 3600
        assert values("rows_written_total", "watcher") == []
        copier.stop()
        wait(watcher, "processing_lag_seconds", [0.0] * 4)
        local_kinesis.put_many("visits", numbered(300, 340))
        again = start("copier", "kinesis")
        # Counters go on where they were.
        wait(again, "rows_written_total", [340.0])
        wait(again, "processing_lag_seconds", [0.0] * 4)
        again.stop()
        watcher.stop()
    finally:
        spark.conf.unset(_IDLE_AFTER)
        for query in spark.streams.active:
            query.stop()
        spark.streams.removeListener(listener)
        listener.close()
    assert not [one for one in Seen.events if isinstance(one, RecordsLate)]
    assert next(one.query for one in Seen.events if isinstance(one, QueryEnded)) == "copier"
