"""One shard, and more cores than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import spark_partition_id

from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from tests.integration.spark.planner.planner_harness import ShiftedClock
from tests.integration.spark.spark_harness import FROM_THE_START, QueryRunner, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.spark.spark_harness import RunningQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

# Two pages and a half of the largest, as a shard takes them in half an hour.
_COUNT, _INTERVAL_SECONDS = 25_000, 0.1
_OPTIONS = {
    **FROM_THE_START,
    "kinesis.spark.planner": "ranges",
    "kinesis.spark.targetbatchbytes": "230000",
    "maxRecordsPerPartition": "5000",
}


def test_several_tasks_read_a_hot_shard_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def sink(running: RunningQuery, frame: DataFrame, batch_id: int) -> None:
        running.collect(frame.withColumn("task", spark_partition_id()), batch_id)

    clock = ShiftedClock(-_COUNT * _INTERVAL_SECONDS)
    with LocalKinesis.in_thread(Limits.off(), clock) as server:
        server.create_stream("hot", 1)
        for number in range(_COUNT):
            clock.seconds += _INTERVAL_SECONDS
            server.put_many("hot", [("key", b"%010d" % number)])
        runner = QueryRunner(spark, server, tmp_path / "checkpoint")
        with runner.run("hot", sink=sink, **_OPTIONS) as running:
            # The first micro-batch has most of it.
            running.wait_for_rows(_COUNT // 2)
    assert sorted(numbers(running.rows)) == list(range(len(running.rows)))
    assert {row.task for row in running.rows} == {0, 1}
