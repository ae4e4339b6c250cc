"""The sinks of the properties, in the Python processes that Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers_spark.metrics import KinesisMetricsListener
from tests.integration.spark.spark_harness import FROM_THE_START, RunningQuery, numbered, numbers
from tests.unit.metrics.test_metrics_prometheus import scraped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

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


def test_a_listener_reports_every_query_to_prometheus(
    spark: SparkSession, local_kinesis: LocalKinesis, tmp_path: Path, unused_tcp_port: int
) -> None:
    local_kinesis.behaviour = Behaviour(clock_skew_seconds=-3600)
    local_kinesis.create_stream("copies", 1)
    local_kinesis.create_stream("visits", 4)
    local_kinesis.put_many("visits", numbered(0, 300))
    local_kinesis.behaviour = Behaviour()
    options = local_kinesis.properties("visits") | FROM_THE_START
    frame = spark.readStream.format("kinesis").options(**options).load()

    def start(name: str, form: str) -> StreamingQuery:
        writer = frame.select("data", "partitionKey").writeStream.format(form).queryName(name)
        writer = writer.options(**local_kinesis.properties("copies"))
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    def wait(query: StreamingQuery, metric: str, *expected: float) -> None:
        def is_served() -> bool:
            samples = scraped(unused_tcp_port).get(f"kinesis_publishers_{metric}", [])
            values = [value for labels, value in samples if labels["query"] == query.name]
            return values == list(expected)

        RunningQuery(query).wait_until(is_served)

    sink = {"sinks": "prometheus", "prometheus.port": unused_tcp_port}
    listener = KinesisMetricsListener({f"kinesis.metrics.{key}": sink[key] for key in sink})
    spark.conf.set(_IDLE_AFTER, "1000")
    spark.streams.addListener(listener)
    try:
        copier, watcher = start("copier", "kinesis"), start("watcher", "noop")
        wait(copier, "rows_written_total", 300)
        for query in (copier, watcher):
            wait(query, "rows_read_total", 300)
            # Idle: not the hour that the last micro-batch was behind.
            wait(query, "processing_lag_seconds", 0, 0, 0, 0)
        copier.stop()
        wait(copier, "processing_lag_seconds")
        local_kinesis.put_many("visits", numbered(300, 340))
        copier = start("copier", "kinesis")
        # Counters go on where they were.
        wait(copier, "rows_written_total", 340)
        wait(watcher, "rows_read_total", 340)
        wait(watcher, "rows_written_total")
        wait(watcher, "records_late_total")
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.conf.unset(_IDLE_AFTER)
        spark.streams.removeListener(listener)
        listener.close()
