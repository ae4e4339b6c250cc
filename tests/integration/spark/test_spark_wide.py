"""A stream of 500 shards."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.spark_harness import (
    FROM_THE_START,
    assert_in_order_per_key,
    numbered,
    numbers,
)

if TYPE_CHECKING:
    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_STREAM = "wide"


def split_first_shards(runner: QueryRunner, count: int) -> None:
    with closing(runner.server.client()) as client:
        for shard in client.list_shards(StreamName=_STREAM, MaxResults=count)["Shards"]:
            keys = shard["HashKeyRange"]
            middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
            client.split_shard(
                StreamName=_STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
            )


def test_five_hundred_shards_are_read_and_some_of_them_split(
    runner: QueryRunner, planner: str
) -> None:
    runner.server.create_stream(_STREAM, 500)
    runner.server.put_many(_STREAM, numbered(0, 3000, keys=3000))
    options = {
        **FROM_THE_START,
        "kinesis.spark.planner": planner,
        # So many shards would keep the local server busy with nothing.
        "kinesis.shard.getrecords.intervalmillis": "2000",
        "kinesis.shard.discovery.intervalmillis": "1000",
    }
    with runner.run(_STREAM, **options) as running:
        running.wait_for_rows(3000)
        split_first_shards(runner, 10)
        runner.server.put_many(_STREAM, numbered(3000, 6000, keys=3000))
        running.wait_for_rows(6000)
    assert sorted(numbers(running.rows)) == list(range(6000))
    assert len({row.shardId for row in running.rows}) > 490
    assert_in_order_per_key(running.rows)
