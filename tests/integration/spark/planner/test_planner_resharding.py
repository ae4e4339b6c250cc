"""Shards that split, merge and leave: nothing is lost, and each partition key stays in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    NO_LIMIT,
    Query,
    QueryOf,
    eventually,
    planner,
    wait_for_buffered,
)
from tests.integration.spark.planner.stream_ledger import StreamLedger, places

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.offsets import Offset

pytestmark = BOTH_ENDS

_LINE = "line"
_MIDDLE = str(2**127)
TEN = BatchLimit(records=10)


@pytest.fixture
def ledger(server: LocalKinesis) -> StreamLedger:
    """A stream of one shard, whose keys all are in its lower half or all over."""
    server.create_stream(_LINE, 1)
    return StreamLedger(server, _LINE)


@pytest.fixture
def line_query(server: LocalKinesis, query_of: QueryOf, kind: str) -> Callable[..., Query]:
    """Return a function that starts a query over that stream."""

    def start(position: str = "TRIM_HORIZON", **more: str) -> Query:
        more = {"kind": kind, "streams": _LINE, **more}
        return query_of(lambda: planner(server, position, **more))

    return start


def split(server: LocalKinesis, number: int) -> None:
    with closing(server.client()) as client:
        client.split_shard(
            StreamName=_LINE, ShardToSplit=shard_id(number), NewStartingHashKey=_MIDDLE
        )


def merge(server: LocalKinesis, number: int, adjacent: int) -> None:
    with closing(server.client()) as client:
        client.merge_shards(
            StreamName=_LINE,
            ShardToMerge=shard_id(number),
            AdjacentShardToMerge=shard_id(adjacent),
        )


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def ended_shards(offset: Offset) -> set[str]:
    return {key.shard_id for key, one in offset.shards.items() if one.progress.is_ended}


def known_shards(offset: Offset) -> set[str]:
    return {key.shard_id for key in offset.shards}


def assert_all_is_read_in_order(ledger: StreamLedger, query: Query) -> None:
    for batch in query.batches:
        ledger.assert_is_between(batch.start, batch.end, places(batch))
    read = [place for batch in query.batches for place in places(batch)]
    assert len(read) == len(set(read)) == ledger.count
    ledger.assert_in_order_per_key(map(places, query.batches))


@pytest.mark.parametrize("limit", [BatchLimit(), BatchLimit(records=7)], ids=["all", "seven"])
def test_a_diamond_is_read_parents_first(
    server: LocalKinesis,
    ledger: StreamLedger,
    line_query: Callable[..., Query],
    limit: BatchLimit,
) -> None:
    ledger.put(20)
    split(server, 0)
    ledger.put(20)
    merge(server, 1, 2)
    ledger.put(20)
    query = line_query()
    query.run_until(60, limit)
    assert_all_is_read_in_order(ledger, query)


@pytest.mark.parametrize("limit", [BatchLimit(), BatchLimit(records=7)], ids=["all", "seven"])
def test_a_diamond_that_forms_while_it_is_read(
    server: LocalKinesis,
    ledger: StreamLedger,
    line_query: Callable[..., Query],
    limit: BatchLimit,
) -> None:
    query = line_query()
    for change in (lambda: split(server, 0), lambda: merge(server, 1, 2), lambda: None):
        ledger.put(30)
        query.run_until(ledger.count - 15, limit)
        change()
    query.run_until(ledger.count, limit)
    assert_all_is_read_in_order(ledger, query)


def test_children_that_appear_while_the_query_is_down(
    server: LocalKinesis, ledger: StreamLedger, line_query: Callable[..., Query]
) -> None:
    query = line_query("LATEST")
    query.run_batch()
    ledger.put(10)
    query.run_until(10)
    query.stop()
    ledger.put(10)
    server.reshard(_LINE, 3)
    ledger.put(10)
    server.reshard(_LINE, 1)
    ledger.put(10)
    query.restart()
    query.run_until(40)
    assert_all_is_read_in_order(ledger, query)


def test_children_whose_parents_have_left_the_retention(
    server: LocalKinesis, ledger: StreamLedger, line_query: Callable[..., Query]
) -> None:
    ledger.put(10)
    server.reshard(_LINE, 2)
    server.trim(_LINE, shard_id=shard_id(0))
    left = StreamLedger(server, _LINE)
    left.put(20)
    query = line_query()
    query.run_until(20)
    assert_all_is_read_in_order(left, query)


def test_an_end_is_in_the_offset_while_the_shard_is_listed_and_no_longer(
    server: LocalKinesis, ledger: StreamLedger, line_query: Callable[..., Query]
) -> None:
    ledger.put(10)
    query = line_query()
    query.run_until(10)
    server.reshard(_LINE, 2)

    def has_read_the_end() -> bool:
        query.run_batch()
        return ended_shards(query.last) == {shard_id(0)}

    eventually(has_read_the_end, "the end of the parent")
    query.restart()
    ledger.put(10)
    query.run_until(20)
    assert ended_shards(query.last) == {shard_id(0)}
    server.trim(_LINE, shard_id=shard_id(0))

    def has_forgotten() -> bool:
        ledger.put(1)
        query.run_until(ledger.count)
        return shard_id(0) not in known_shards(query.last)

    eventually(has_forgotten, "the marker to go")
    query.restart()
    ledger.put(10)
    query.run_until(ledger.count)
    assert_all_is_read_in_order(ledger, query)


def test_a_shard_that_ended_without_records_hands_over_to_its_children(
    server: LocalKinesis, ledger: StreamLedger, line_query: Callable[..., Query]
) -> None:
    query = line_query("LATEST")
    query.run_batch()
    for shards in (2, 1, 3):
        server.reshard(_LINE, shards)
    ledger.put(20)
    query.run_until(20)
    assert_all_is_read_in_order(ledger, query)


@pytest.mark.parametrize("limit", [BatchLimit(), BatchLimit(records=20)], ids=["all", "twenty"])
def test_available_now_drains_every_generation(
    server: LocalKinesis,
    ledger: StreamLedger,
    line_query: Callable[..., Query],
    limit: BatchLimit,
) -> None:
    for shards in (3, 1, 2):
        ledger.put(15)
        server.reshard(_LINE, shards)
    ledger.put(15)
    query = line_query()
    query.run_to_the_end(limit)
    assert_all_is_read_in_order(ledger, query)


def put_numbered(server: LocalKinesis, stream: str, name: str, count: int) -> None:
    server.put_many(stream, [("key", f"{name}{number:03d}".encode()) for number in range(count)])


def payloads(query: Query) -> list[str]:
    return [data.decode() for _, _, data in query.rows]


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
