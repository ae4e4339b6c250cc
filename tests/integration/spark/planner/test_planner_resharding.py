"""Shards that split, merge and leave: nothing is lost, and each partition key stays in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.chunks import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    Batch,
    Query,
    eventually,
    planner,
)
from tests.integration.spark.planner.stream_ledger import StreamLedger

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.micro_batches import MicroBatches
    from kinesis_publishers_spark.offsets import Offset
    from tests.integration.spark.planner.stream_ledger import Place

pytestmark = BOTH_ENDS

QueryOf = Callable[[Callable[[], "MicroBatches"]], Query]

_LINE = "line"
_MIDDLE = str(2**127)


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


def places(batch: Batch) -> list[Place]:
    return [(shard_id, number) for shard_id, number, _ in batch.rows]


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


def test_three_generations_that_were_closed_before_the_query_starts(
    server: LocalKinesis, ledger: StreamLedger, line_query: Callable[..., Query]
) -> None:
    for shards in (2, 4, 8):
        ledger.put(25)
        server.reshard(_LINE, shards)
    ledger.put(25)
    query = line_query()
    query.run_until(100)
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


def test_a_child_begins_at_its_first_record_although_the_query_began_at_latest(
    server: LocalKinesis, ledger: StreamLedger, line_query: Callable[..., Query]
) -> None:
    query = line_query("LATEST")
    query.run_batch()
    server.reshard(_LINE, 2)
    ledger.put(20)
    query.run_until(20)
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
