"""Restarts, replays and resharding: each record once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.spark.spark_harness import (
    FROM_THE_START,
    assert_in_order_per_key,
    by_place,
    numbered,
    numbers,
)

if TYPE_CHECKING:
    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


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


@pytest.mark.long
def test_a_micro_batch_whose_records_were_trimmed_fails_and_says_so(
    runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 400))
    runner.run_into_a_failure(**FROM_THE_START)
    for shard_id, records in runner.server.records(flights).items():
        runner.server.trim(flights, shard_id=shard_id, through=records[3].sequence_number)
    with (
        pytest.raises(StreamingQueryException, match=r"is gone.*kinesis\.failondataloss"),
        runner.run(**FROM_THE_START) as running,
    ):
        running.wait_for_rows(400)


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


@pytest.mark.long
def test_a_reshard_while_the_query_is_down_loses_nothing(runner: QueryRunner, flights: str) -> None:
    with runner.run() as running:
        running.wait_until(lambda: 0 in running.batches)
        runner.server.put_many(flights, numbered(0, 500))
        running.wait_for_rows(500)
    runner.server.put_many(flights, numbered(500, 700))
    runner.server.reshard(flights, 2)
    runner.server.put_many(flights, numbered(700, 900))
    runner.server.reshard(flights, 5)
    runner.server.put_many(flights, numbered(900, 1000))
    with runner.run(earlier=running) as running:
        running.wait_for_rows(1000)
    assert sorted(numbers(running.rows)) == list(range(1000))
    assert_in_order_per_key(running.rows)


@pytest.mark.long
def test_a_recreated_stream_is_not_mistaken_for_the_old_one(
    runner: QueryRunner, flights: str
) -> None:
    runner.server.put_many(flights, numbered(0, 10))
    with runner.run(**FROM_THE_START) as running:
        running.wait_for_rows(10)
        # Until the micro-batch is committed: a replay of it would find its records gone first.
        running.query.processAllAvailable()
    client = runner.server.client()
    client.delete_stream(StreamName=flights)
    client.create_stream(StreamName=flights, ShardCount=4)
    client.close()
    runner.server.put_many(flights, numbered(10, 20))
    with (
        pytest.raises(StreamingQueryException, match="deleted and created again"),
        runner.run(**FROM_THE_START) as running,
    ):
        running.wait_for_rows(10)
    with runner.run(**FROM_THE_START, failOnDataLoss="false") as running:
        running.wait_for_rows(10)
    assert sorted(numbers(running.rows)) == list(range(10, 20))
