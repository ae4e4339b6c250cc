"""Split, merge and scaling: lineage, routing, and the end of the parents."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers.testing.local_kinesis.answers import ApiError

LOW, HALF, HIGH = "0", str(2**127), str(2**128 - 1)
SHARD = "shardId-{:012d}".format


def split(kinesis: Any, shard: int = 0, hash_key: str = HALF) -> None:
    kinesis("SplitShard", ShardToSplit=SHARD(shard), NewStartingHashKey=hash_key)


def merge(kinesis: Any, shard: int, adjacent: int) -> None:
    kinesis("MergeShards", ShardToMerge=SHARD(shard), AdjacentShardToMerge=SHARD(adjacent))


def scale(kinesis: Any, count: int) -> Any:
    return kinesis("UpdateShardCount", TargetShardCount=count, ScalingType="UNIFORM_SCALING")


def open_ranges(kinesis: Any) -> list[tuple[int, int]]:
    ranges = (shard["HashKeyRange"] for shard in kinesis.shards(ShardFilter={"Type": "AT_LATEST"}))
    return sorted((int(r["StartingHashKey"]), int(r["EndingHashKey"])) for r in ranges)


def test_a_split_gives_two_children_of_one_parent(kinesis: Any) -> None:
    split(kinesis)
    parent, lower, upper = kinesis.shards()
    assert "EndingSequenceNumber" in parent["SequenceNumberRange"]
    assert [child["ParentShardId"] for child in (lower, upper)] == [SHARD(0)] * 2
    assert lower["HashKeyRange"] == {"StartingHashKey": LOW, "EndingHashKey": str(2**127 - 1)}
    assert upper["HashKeyRange"] == {"StartingHashKey": HALF, "EndingHashKey": HIGH}


def test_a_merge_gives_one_child_of_two_parents(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(2)
    merge(kinesis, 1, 0)
    child = kinesis.shards()[-1]
    assert (child["ParentShardId"], child["AdjacentParentShardId"]) == (SHARD(1), SHARD(0))
    assert child["HashKeyRange"] == {"StartingHashKey": LOW, "EndingHashKey": HIGH}


def test_records_go_to_open_shards_only(kinesis: Any) -> None:
    assert kinesis.put("before", ExplicitHashKey=LOW)["ShardId"] == SHARD(0)
    split(kinesis)
    assert kinesis.put("low", ExplicitHashKey=LOW)["ShardId"] == SHARD(1)
    assert kinesis.put("high", ExplicitHashKey=HIGH)["ShardId"] == SHARD(2)
    merge(kinesis, 1, 2)
    assert kinesis.put("merged", ExplicitHashKey=LOW)["ShardId"] == SHARD(3)
    texts = [kinesis.texts(shard=number) for number in range(4)]
    assert texts == [["before"], ["low"], ["high"], ["merged"]]


def test_the_child_of_a_merge_names_both_parents(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(2)
    merge(kinesis, 0, 1)
    for number in (0, 1):
        (child,) = kinesis.read(shard=number)["ChildShards"]
        assert (child["ShardId"], child["ParentShards"]) == (SHARD(2), [SHARD(0), SHARD(1)])


@pytest.mark.parametrize("kind", ["LATEST", "TRIM_HORIZON"])
def test_an_iterator_of_an_empty_closed_shard_is_at_its_end(kinesis: Any, kind: str) -> None:
    split(kinesis)
    answer = kinesis.read(kinesis.iterator(kind))
    assert (answer["Records"], answer["NextShardIterator"]) == ([], None)


@pytest.mark.parametrize("hash_key", ["0", "1", HIGH])
def test_a_split_needs_a_key_within_the_range(kinesis: Any, hash_key: str) -> None:
    with pytest.raises(ApiError, match="InvalidArgumentException: NewStartingHashKey"):
        split(kinesis, hash_key=hash_key)


def test_a_closed_shard_is_not_resharded_again(kinesis: Any) -> None:
    split(kinesis)
    with pytest.raises(ApiError, match="already been merged or split"):
        split(kinesis)
    with pytest.raises(ApiError, match="already been merged or split"):
        merge(kinesis, 1, 0)


def test_only_neighbours_merge(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(3)
    with pytest.raises(ApiError, match="not an adjacent pair"):
        merge(kinesis, 0, 2)


@pytest.mark.parametrize(
    ("before", "after"), [(1, 2), (2, 4), (4, 2), (3, 5), (5, 3), (4, 4), (7, 1)]
)
def test_scaling_ends_with_equal_ranges(make_kinesis: Any, before: int, after: int) -> None:
    kinesis = make_kinesis()
    kinesis.create(before)
    answer = scale(kinesis, after)
    assert (answer["CurrentShardCount"], answer["TargetShardCount"]) == (before, after)
    width = 2**128 // after
    ranges = open_ranges(kinesis)
    assert [start for start, _ in ranges] == [width * number for number in range(after)]
    assert ranges[-1][1] == 2**128 - 1


async def test_a_reshard_takes_its_time(make_kinesis: Any) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(updating_seconds=30))
    kinesis.create()
    iterator = kinesis.iterator()
    scale(kinesis, 2)
    summary = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]
    assert (summary["StreamStatus"], summary["OpenShardCount"]) == ("UPDATING", 1)
    for operation in (lambda: split(kinesis), lambda: scale(kinesis, 4)):
        with pytest.raises(ApiError, match=r"ResourceInUseException.*UPDATING"):
            operation()
    await kinesis.clock.advance(29)
    kinesis.put("late")
    answer = kinesis.read(iterator)
    assert answer["NextShardIterator"]
    await kinesis.clock.advance(1)
    assert kinesis.shard_ids(ShardFilter={"Type": "AT_LATEST"}) == [1, 2]
    assert kinesis.read(answer["NextShardIterator"])["NextShardIterator"] is None
