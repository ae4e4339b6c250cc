"""Aggregates of the KPL in micro-batches: rows of what is inside, never split, the same again."""

from __future__ import annotations

import base64
import hashlib
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from kinesis_publishers.model import hash_key_of
from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import STREAM, Query, planner, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis, StoredRecord
    from tests.integration.spark.planner.planner_harness import Batch, Row

SIZES = [1, 3, 0, 7, 2, 0, 0, 12, 5, 1, 4, 0, 9, 2]


def put(server: LocalKinesis, label: str) -> None:
    """Store aggregates of several sizes, and plain records where the size is 0.

    Every other aggregate has the outer key of the KPL.
    """
    client = server.client()
    for n, size in enumerate(SIZES):
        client.put_record(
            StreamName=STREAM,
            PartitionKey="a" if size and n % 2 else f"key-{n}",
            ExplicitHashKey=str(hash_key_of(f"key-{n}")),
            Data=_payload(f"{label}-{n}", size),
        )
    client.close()


def _payload(label: str, size: int) -> bytes:
    if not size:
        return label.encode()
    aggregator = RecordAggregator()
    for index in range(size):
        aggregator.add_user_record(f"{label}-{index}", f"{label}: {index}".encode())
    data: bytes = aggregator.clear_and_get().get_contents()[2]
    return data


def expected_rows(server: LocalKinesis) -> list[Row]:
    """Return the expected records, as AWS's own library deaggregates them."""
    client = server.client()
    shards = {one["ShardId"]: one for one in client.list_shards(StreamName=STREAM)["Shards"]}
    client.close()
    return [
        (shard_id, stored.sequence_number, data)
        for shard_id, records in server.records(STREAM).items()
        for stored in records
        for data, key, is_inside in _taken_apart(stored)
        if not is_inside or stored.partition_key != "a" or _belongs(key, shards[shard_id])
    ]


def _taken_apart(stored: StoredRecord) -> list[tuple[bytes, str, bool]]:
    record = {
        "SequenceNumber": stored.sequence_number,
        "PartitionKey": stored.partition_key,
        "ApproximateArrivalTimestamp": 1.0,
        "Data": stored.data,
    }
    return [
        (
            base64.b64decode(one["kinesis"]["data"]) if inside else stored.data,
            one["kinesis"]["partitionKey"],
            inside,
        )
        for one in iter_deaggregate_records([record], "Boto3")
        for inside in [one["kinesis"].get("aggregated", False)]
    ]


def _belongs(key: str, shard: dict) -> bool:
    hash_key = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
    hash_range = shard["HashKeyRange"]
    is_resharded = "ParentShardId" in shard
    return not is_resharded or (
        int(hash_range["StartingHashKey"]) <= hash_key <= int(hash_range["EndingHashKey"])
    )


def assert_nothing_is_split(batches: list[Batch], most: int) -> None:
    seen: set[tuple[str, str]] = set()
    for batch in batches:
        places = {(shard_id, number) for shard_id, number, _ in batch.rows}
        assert places.isdisjoint(seen), "an aggregate is in two micro-batches"
        seen |= places
        assert len(batch.rows) <= most or len(places) == 1


@pytest.mark.parametrize(
    ("most", "in_threads", "late_end"),
    [(1, False, True), (5, True, False), (10, False, False), (1000, True, True)],
)
def test_the_rows_are_what_is_inside_and_the_limit_splits_no_aggregate(
    server: LocalKinesis,
    start_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    in_threads: bool,
) -> None:
    if in_threads:
        monkeypatch.setattr("kinesis_publishers_spark.fetched._MOST_ROWS_IN_LOOP", 0)
        monkeypatch.setattr("kinesis_publishers.aggregation.deaggregation._MOST_BYTES_AT_ONCE", 0)
    put(server, "before")
    query = start_query()
    query.run_until(20, BatchLimit(records=most))
    server.reshard(STREAM, 4)
    put(server, "after")
    expected = expected_rows(server)
    everything = sum(max(1, size) for size in SIZES) * 2
    assert len(expected) < everything, "nothing was put into another shard than its own"
    query.run_until(len(expected), BatchLimit(records=most))
    # The ranges of a micro-batch may hold nothing but what belongs to another shard.
    query.run_to_the_end()
    assert sorted(query.rows) == sorted(expected)
    assert_nothing_is_split(query.batches, most)
    for shard_id, rows in groupby(sorted(query.rows, key=lambda row: row[0]), lambda row: row[0]):
        assert list(rows) == [row for row in expected if row[0] == shard_id]


@pytest.mark.parametrize(("other", "late_end"), [("prefetch", True), ("ranges", False)])
def test_a_replay_gives_the_same_rows_under_either_planner(
    server: LocalKinesis, start_query: Callable[..., Query], other: str
) -> None:
    query = start_query()
    query.run_batch()
    put(server, "before")
    query.run_until(15, BatchLimit(records=8))
    server.reshard(STREAM, 3)
    put(server, "after")
    query.run_until(len(expected_rows(server)), BatchLimit(records=8))
    query.stop()
    again = planner(server, kind=other)
    for batch in query.batches:
        rows = read(again.partitions(batch.start, batch.end))
        assert sorted(rows, key=lambda row: row[0]) == sorted(batch.rows, key=lambda row: row[0])
    again.close()


def test_a_query_goes_on_behind_a_whole_aggregate(
    server: LocalKinesis, start_query: Callable[..., Query]
) -> None:
    put(server, "first")
    query = start_query()
    query.run_until(20, BatchLimit(records=4))
    query.restart()
    put(server, "second")
    query.run_until(len(expected_rows(server)))
    assert sorted(query.rows) == sorted(expected_rows(server))


def test_with_aggregation_off_the_rows_are_what_kinesis_stored(
    server: LocalKinesis, start_query: Callable[..., Query]
) -> None:
    put(server, "whole")
    query = start_query(aggregation="off")
    query.run_until(len(SIZES))
    stored = [
        (shard_id, one.sequence_number, one.data)
        for shard_id, records in server.records(STREAM).items()
        for one in records
    ]
    assert sorted(query.rows) == sorted(stored)
