"""The sink, through real queries: what it writes, what it refuses, and exactly once by markers."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.drivers import Driver, read_files
from tests.integration.spark.spark_harness import FROM_THE_START, numbered, numbers
from tests.stored import user_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.spark_harness import QueryRunner

_COPIER = Path(__file__).with_name("sink_driver.py")
_DEADLINE_SECONDS = 180.0

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


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
    # Once on the driver for the plan, once for the commits, and once in each of two workers.
    assert 2 <= described.count("flights-copy") <= 4


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("id AS data", "the column data is of type bigint, and must be binary or string"),
        ("'x' AS data, id AS number", "the column number has no place in a record"),
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


@pytest.mark.long
def test_each_record_arrives_once_although_writer_and_reader_are_killed(
    local_kinesis: LocalKinesis, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    chance = random.Random(seed)
    for stream in ("flights", "flights-copy"):
        local_kinesis.create_stream(stream, 2)
    put = 0

    def stored() -> int:
        return sum(map(len, local_kinesis.records("flights-copy").values()))

    def start(stream: str, **more: Any) -> Driver:
        """Start the one that copies, or the one that reads the copies."""
        properties = {**local_kinesis.properties(stream), **FROM_THE_START}
        if stream == "flights":
            properties["maxRecordsPerTrigger"] = "500"
            more["program"] = _COPIER
        else:
            properties["includeBatchMarker"] = "true"
        output = tmp_path / f"{stream}-output"
        output.mkdir(exist_ok=True)
        return Driver(properties, tmp_path / f"{stream}-checkpoint", output, **more)

    def arrived() -> list[int]:
        return [int(data) for *_, data in read_files(tmp_path / "flights-copy-output")]

    def put_more() -> None:
        nonlocal put
        local_kinesis.put_many("flights", numbered(put, put + 50))
        put += 50

    for number in range(4):
        writer, before = start("flights"), stored()
        reader, seen = start("flights-copy"), len(arrived()) if number else 0
        deadline = time.monotonic() + _DEADLINE_SECONDS
        try:
            # In the middle of a micro-batch, which has been written in part.
            while stored() == before or len(arrived()) == seen:
                put_more()
                writer.wait(0.1)
                reader.wait(0.0)
                assert time.monotonic() < deadline, writer.said + reader.said
            reader.wait(chance.uniform(0.0, 1.0))
            before = stored()
            put_more()
            while stored() == before:
                writer.wait(0.001)
        finally:
            writer.kill()
            reader.kill()

    writer, reader = start("flights"), start("flights-copy")
    try:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while len(set(arrived())) < put:
            writer.wait(0.2)
            reader.wait(0.0)
            assert time.monotonic() < deadline, f"{len(arrived())} of {put} came"
        # So that it shows that repeated micro-batches were in the stream.
        sent = user_records(local_kinesis, "flights-copy")
    finally:
        writer.kill()
        reader.kill()
    assert sorted(arrived()) == list(range(put))
    assert len(sent) > put
