"""Several generations of shards, micro-batches that lag behind, and restarts in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.chunks import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    NO_LIMIT,
    Query,
    eventually,
    planner,
    wait_for_buffered,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.micro_batches import MicroBatches

QueryOf = Callable[[Callable[[], "MicroBatches"]], Query]

TEN = BatchLimit(records=10)
_LINE = "line"


def put_numbered(server: LocalKinesis, stream: str, name: str, count: int) -> None:
    server.put_many(stream, [("key", f"{name}{number:03d}".encode()) for number in range(count)])


def payloads(query: Query) -> list[str]:
    return [data.decode() for _, _, data in query.rows]


@BOTH_ENDS
def test_records_of_a_shard_that_leaves_the_retention_while_they_wait_are_not_lost(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    server.create_stream(_LINE, 1)
    put_numbered(server, _LINE, "a", 50)
    server.reshard(_LINE, 2)
    put_numbered(server, _LINE, "c", 20)
    query = query_of(lambda: planner(server, streams=_LINE))
    query.planner.initial_offset()
    wait_for_buffered(query.planner, 70)
    query.run_batch(TEN)
    listings = len(server.calls("ListShards"))
    server.trim(_LINE, shard_id="shardId-000000000000")
    eventually(lambda: len(server.calls("ListShards")) > listings + 2, "two more listings")
    query.run_until(70, TEN)
    query.stop()
    assert Counter(text[0] for text in payloads(query)) == {"a": 50, "c": 20}
    # Each offset names what its micro-batch has, also of the shard that is gone.
    for batch in query.batches:
        ranges = batch.end.ranges_since(batch.start)
        assert {one.shard.shard_id for one in ranges} == {shard for shard, _, _ in batch.rows}


@BOTH_ENDS
@pytest.mark.parametrize("is_restarted", [False, True], ids=["at once", "after a restart"])
def test_a_grandchild_waits_until_all_of_its_grandparent_is_in_earlier_batches(
    server: LocalKinesis, query_of: QueryOf, is_restarted: bool
) -> None:
    server.create_stream(_LINE, 1)
    put_numbered(server, _LINE, "a", 30)
    server.reshard(_LINE, 2)
    server.reshard(_LINE, 1)
    put_numbered(server, _LINE, "c", 30)
    query = query_of(lambda: planner(server, streams=_LINE))
    query.planner.initial_offset()
    wait_for_buffered(query.planner, 60)
    if is_restarted:
        query.run_batch(TEN)
        query.restart()
    query.run_until(60, TEN if is_restarted else NO_LIMIT)
    query.stop()
    assert payloads(query) == sorted(payloads(query))
    by_batch = [{data[:1] for _, _, data in batch.rows} for batch in query.batches if batch.rows]
    assert all(len(generations) == 1 for generations in by_batch)
