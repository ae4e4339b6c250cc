"""Restarts, replays and resharding in Spark's engine; ``planner/`` has the cases without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
