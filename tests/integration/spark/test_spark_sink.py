"""The sink, through real queries: what it writes, and what it refuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.spark_harness import FROM_THE_START, numbered, numbers
from tests.stored import user_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.spark_harness import QueryRunner

_DEADLINE_SECONDS = 180.0

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def copies(local_kinesis: LocalKinesis) -> dict[str, str]:
    """The properties of an empty stream of two shards."""
    local_kinesis.create_stream("flights-copy", 2)
    return local_kinesis.properties("flights-copy")


def orders(spark: SparkSession, count: int) -> DataFrame:
    columns = "cast(id AS string) AS data", "concat('key-', id % 7) AS partitionKey"
    return spark.range(count).selectExpr(*columns)


def read(spark: SparkSession, properties: dict[str, str], **options: str) -> list[Row]:
    return spark.read.format("kinesis").options(**properties, **options).load().collect()


def write(frame: DataFrame, properties: dict[str, str], **options: str) -> None:
    frame.write.format("kinesis").options(**properties, **options).mode("append").save()


def test_a_dataframe_is_written(spark: SparkSession, copies: dict[str, str]) -> None:
    write(orders(spark, 500), copies)
    rows = read(spark, copies)
    assert sorted(numbers(rows)) == list(range(500))
    assert {row.partitionKey for row in rows} == {f"key-{number}" for number in range(7)}


def test_what_is_written_twice_on_purpose_has_different_markers(
    spark: SparkSession, copies: dict[str, str]
) -> None:
    for _ in range(2):
        write(orders(spark, 100), copies, includeBatchMarker="true")
    frame = spark.read.format("kinesis").options(**copies, includeBatchMarker="true").load()
    assert frame.count() == frame.dropDuplicates(["batchMarker"]).count() == 200


def test_a_stream_is_copied_by_producers_that_stay(
    spark: SparkSession, runner: QueryRunner, flights: str, copies: dict[str, str]
) -> None:
    runner.server.put_many(flights, numbered(0, 1000))
    source = {**runner.server.properties(flights), **FROM_THE_START, "maxRecordsPerTrigger": "200"}
    query = (
        spark.readStream.format("kinesis")
        .options(**source)
        .load()
        .select("data", "partitionKey")
        .writeStream.format("kinesis")
        .options(**copies)
        .option("checkpointLocation", str(runner.checkpoint))
        .queryName("copies")
        .start()
    )
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while len(user_records(runner.server, "flights-copy")) < 1000:
        query.awaitTermination(0.1)
        assert time.monotonic() < deadline, query.status
    assert len(query.recentProgress) >= 4
    query.stop()
    described = [call.stream for call in runner.server.calls("DescribeStreamSummary")]
    assert sorted(numbers(read(spark, copies))) == list(range(1000))
    # Once on the driver for the plan, once for the commits, and once in each worker: a task has one
    # that reads and one that writes.
    assert 2 <= described.count("flights-copy") <= 6


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("if(id = 2, null, 'x') AS data, 'k' AS partitionKey", "with the partitionKey 'k'"),
        ("'x' AS data, repeat('k', 257) AS partitionKey", "1 to 256 characters, not 257"),
        ("repeat('x', 1048577) AS data, 'large' AS partitionKey", "the partition key 'large' has"),
    ],
)
def test_what_is_no_record_is_one_clear_error(
    spark: SparkSession, copies: dict[str, str], row: str, said: str
) -> None:
    with pytest.raises(Exception, match=r"data|partition key") as raised:
        write(spark.sql(f"SELECT {row} FROM range(3)"), copies)
    message = str(raised.value)
    assert said in message
    assert "Traceback" not in message


def test_a_stream_is_not_overwritten(spark: SparkSession, copies: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"use mode\('append'\)"):
        orders(spark, 1).write.format("kinesis").options(**copies).mode("overwrite").save()
