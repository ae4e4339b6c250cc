"""A stream into Spark: rows, limits, errors, restarts, reshards; ``planner/`` has more of these."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import _parse_datatype_string

from kinesis_publishers.testing.local_kinesis import Limits
from kinesis_publishers_spark.schema import SPARK_SCHEMA
from tests.integration.spark.processes import source_processes, wait_until_gone
from tests.integration.spark.spark_harness import (
    FROM_THE_START,
    MOSTLY_PREFETCH,
    assert_in_order_per_key,
    by_place,
    numbered,
    numbers,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.spark.spark_harness import QueryRunner, RunningQuery

_WIDE = "wide"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_every_column_has_what_the_server_stored(runner: QueryRunner, flights: str) -> None:
    runner.server.put_many(flights, numbered(0, 500))
    with runner.run(**FROM_THE_START) as running:
        running.wait_for_rows(500)
    stored = {
        (shard_id, record.sequence_number): record
        for shard_id, records in runner.server.records(flights).items()
        for record in records
    }
    assert len(running.rows) == len(stored) == 500
    for row in running.rows:
        record = stored[row.shardId, row.sequenceNumber]
        assert bytes(row.data) == record.data
        assert row.partitionKey == record.partition_key
        assert row.streamName == flights
        # Spark hands out local time without a zone.
        assert row.approximateArrivalTimestamp.timestamp() == record.arrival_time.timestamp()


def test_the_schema_is_the_documented_one_whatever_a_timestamp_is_to_spark(
    spark: SparkSession, runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 10))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        with runner.run(**FROM_THE_START) as running:
            running.wait_for_rows(10)
        batch = spark.read.format("kinesis").options(**runner.server.properties(flights)).load()
        assert batch.schema == _parse_datatype_string(SPARK_SCHEMA)
        assert batch.count() == 10
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_a_named_query_writes_a_table_with_each_record_once(
    spark: SparkSession, runner: QueryRunner, flights: str, tmp_path: Path
) -> None:
    runner.server.put_many(flights, numbered(0, 300))
    options = {**runner.server.properties(flights), **FROM_THE_START, "includeMetadata": "true"}
    rows = spark.readStream.format("kinesis").options(**options).load()
    for _ in range(2):
        writer = rows.writeStream.queryName("copy").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.option("path", str(tmp_path / "table"))
        writer.toTable("flights_once").awaitTermination()
        table = spark.table("flights_once")
        assert (table.count(), table.select("recordId").distinct().count()) == (300, 300)
    spark.sql("DROP TABLE flights_once")


def test_unusual_records_come_through(runner: QueryRunner, flights: str) -> None:
    runner.server.limits = Limits.off()
    unusual = [
        ("empty", b""),
        ("🛩 ключ", "données".encode()),
        ("null", b"null"),
        (None, b"without a key"),
        ("large", b"x" * (10 * 1024 * 1024 - 100)),
    ]
    runner.server.put_many(flights, unusual)
    with runner.run(**FROM_THE_START) as running:
        running.wait_for_rows(len(unusual))
    assert {row.partitionKey: bytes(row.data) for row in running.rows} == dict(unusual)


def test_no_micro_batch_starts_when_there_is_nothing_new(runner: QueryRunner, flights: str) -> None:
    runner.server.put_many(flights, numbered(0, 10))
    with runner.run(**FROM_THE_START) as running:
        running.wait_for_rows(10)
        asked = len(runner.server.calls("GetRecords"))
        running.wait_until(lambda: len(runner.server.calls("GetRecords")) > asked + 40)
        batches = sorted(running.batches)
        runner.server.put_many(flights, numbered(10, 11))
        running.wait_for_rows(11)
    assert len(running.batches) == len(batches) + 1


def test_polling_keeps_the_quota_of_every_shard(runner: QueryRunner, flights: str) -> None:
    runner.server.put_many(flights, numbered(0, 1000))
    with runner.run(**FROM_THE_START) as running:
        running.wait_for_rows(1000)
        shards = list(runner.server.records(flights))
        running.wait_until(
            lambda: all(len(runner.server.calls("GetRecords", flights, one)) > 15 for one in shards)
        )
    for shard_id in shards:
        times = [call.at_seconds for call in runner.server.calls("GetRecords", flights, shard_id)]
        # The server may see a call late: over all of them that is little, between two of them much.
        assert times[-1] - times[0] > 0.19 * (len(times) - 1) - 0.3


def test_admission_limits_hold_to_the_record(runner: QueryRunner, flights: str) -> None:
    runner.server.put_many(flights, numbered(0, 500))
    with runner.run(**FROM_THE_START, maxRecordsPerTrigger="70") as running:
        running.wait_for_rows(500)
    sizes = [len(rows) for rows in running.batches.values()]
    assert sum(sizes) == 500
    assert max(sizes) == 70


def test_two_actions_on_one_micro_batch_see_the_same_rows(
    runner: QueryRunner, flights: str
) -> None:
    seen: list[tuple[list[Any], list[Any]]] = []

    def two_actions(running: RunningQuery, frame: DataFrame, batch_id: int) -> None:
        first = frame.collect()
        frame.take(1)  # an action that leaves off in the middle
        # More arrives between the two, also in new shards: it must not show in this micro-batch.
        runner.server.put_many(flights, numbered(1000 * (batch_id + 1), 1000 * (batch_id + 1) + 5))
        if not batch_id:
            runner.server.reshard(flights, 6)
        seen.append((first, frame.collect()))
        running.batches[batch_id] = first

    runner.server.put_many(flights, numbered(0, 100))
    with runner.run(sink=two_actions, **FROM_THE_START) as running:
        running.wait_for_rows(105)
    assert all(first == second for first, second in seen)


def test_an_error_while_reading_fails_the_query(runner: QueryRunner, flights: str) -> None:
    runner.server.put_many(flights, numbered(0, 10))
    with runner.run(**FROM_THE_START) as running:
        running.wait_for_rows(10)
        client = runner.server.client()
        client.delete_stream(StreamName=flights)
        client.close()
        with pytest.raises(StreamingQueryException, match="ResourceNotFoundException") as raised:
            running.wait_for_rows(11)
        assert "Traceback" not in str(raised.value)


def test_stopping_in_full_flow_leaves_no_process_behind(runner: QueryRunner, flights: str) -> None:
    wait_until_gone(source_processes())  # of earlier tests
    runner.server.put_many(flights, [(f"key-{n}", bytes(10_000)) for n in range(20_000)])
    with runner.run(**FROM_THE_START, maxRecordsPerTrigger="500") as running:
        running.wait_for_rows(1500)
        sources = source_processes()
        assert len(sources) == 1, "the source runs in a process of its own"
    wait_until_gone(sources)


def test_a_micro_batch_that_failed_reads_the_same_rows_after_a_restart(
    runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 400))
    batch_id, before = runner.run_into_a_failure(**FROM_THE_START)
    # What arrives meanwhile belongs to later micro-batches, although it is there to be read.
    runner.server.put_many(flights, numbered(400, 800))
    runner.server.reshard(flights, 8)
    runner.server.put_many(flights, numbered(800, 1000))
    with runner.run(**FROM_THE_START) as running:
        running.wait_until(lambda: len(running.rows) >= 1000)

    assert by_place(running.batches[batch_id]) == by_place(before)
    assert sorted(numbers(running.rows)) == list(range(1000))
    assert_in_order_per_key(running.rows)


def test_a_reshard_while_reading_keeps_every_record_and_the_order_of_each_key(
    runner: QueryRunner, flights: str
) -> None:
    options = {**FROM_THE_START, "kinesis.shard.discovery.intervalmillis": "300"}
    with runner.run(**options) as running:
        for index, shards in enumerate((8, 4, 6, 3)):
            runner.server.put_many(flights, numbered(1000 * index, 1000 * index + 1000))
            running.wait_for_rows(1000 * index + 200)
            runner.server.reshard(flights, shards)
        runner.server.put_many(flights, numbered(4000, 5000))
        running.wait_for_rows(5000)
    assert sorted(numbers(running.rows)) == list(range(5000))
    assert_in_order_per_key(running.rows)


def split_first_shards(runner: QueryRunner, count: int) -> None:
    with closing(runner.server.client()) as client:
        for shard in client.list_shards(StreamName=_WIDE, MaxResults=count)["Shards"]:
            keys = shard["HashKeyRange"]
            middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
            client.split_shard(
                StreamName=_WIDE, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
            )


@pytest.mark.long
@pytest.mark.timeout(600)
@MOSTLY_PREFETCH
def test_five_hundred_shards_are_read_and_some_of_them_split(
    runner: QueryRunner, planner: str
) -> None:
    runner.server.create_stream(_WIDE, 500)
    runner.server.put_many(_WIDE, numbered(0, 3000, keys=3000))
    options = {
        **FROM_THE_START,
        "kinesis.spark.planner": planner,
        # So many shards would keep the local server busy with nothing.
        "kinesis.shard.getrecords.intervalmillis": "2000",
        "kinesis.shard.discovery.intervalmillis": "1000",
    }
    with runner.run(_WIDE, **options) as running:
        running.wait_for_rows(3000)
        split_first_shards(runner, 10)
        runner.server.put_many(_WIDE, numbered(3000, 6000, keys=3000))
        running.wait_for_rows(6000)
    assert sorted(numbers(running.rows)) == list(range(6000))
    assert len({row.shardId for row in running.rows}) > 490
    assert_in_order_per_key(running.rows)
