"""ListShards: pages, tokens and every filter."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError

HALF = str(2**127)


@pytest.fixture
async def split(kinesis: Any) -> Any:
    """Shard 0 from second 0, split into 1 and 2 at second 100; it is second 200."""
    await kinesis.clock.advance(100)
    kinesis.put("in the parent")
    kinesis("SplitShard", ShardToSplit="shardId-000000000000", NewStartingHashKey=HALF)
    await kinesis.clock.advance(100)
    return kinesis


def test_1500_shards_come_in_two_pages(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(1500)
    first = kinesis("ListShards", MaxResults=10_000)
    rest = kinesis("ListShards", NextToken=first["NextToken"])
    assert [len(first["Shards"]), len(rest["Shards"])] == [1000, 500]
    assert "NextToken" not in rest
    assert len({shard["ShardId"] for shard in first["Shards"] + rest["Shards"]}) == 1500


async def test_a_token_lives_300_seconds(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(2)
    token = kinesis("ListShards", MaxResults=1)["NextToken"]
    await kinesis.clock.advance(300)
    assert len(kinesis("ListShards", NextToken=token)["Shards"]) == 1
    await kinesis.clock.advance(0.001)
    with pytest.raises(ApiError, match="ExpiredNextTokenException"):
        kinesis("ListShards", NextToken=token)


@pytest.mark.parametrize(
    "excluded",
    [
        {"StreamName": "orders"},
        {"StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders"},
        {"ExclusiveStartShardId": "shardId-000000000000"},
        {"StreamCreationTimestamp": 1},
    ],
)
def test_a_token_excludes_what_it_contains(make_kinesis: Any, excluded: dict[str, Any]) -> None:
    kinesis = make_kinesis()
    kinesis.create(2)
    token = kinesis("ListShards", MaxResults=1)["NextToken"]
    with pytest.raises(ApiError, match="InvalidArgumentException: NextToken and"):
        kinesis("ListShards", NextToken=token, **excluded)


def test_a_token_keeps_its_filter(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(3)
    kinesis("SplitShard", ShardToSplit="shardId-000000000001", NewStartingHashKey=HALF)
    first = kinesis("ListShards", MaxResults=1, ShardFilter={"Type": "AT_LATEST"})
    rest = kinesis("ListShards", NextToken=first["NextToken"])
    ids = [shard["ShardId"][-1] for shard in first["Shards"] + rest["Shards"]]
    assert ids == ["0", "2", "3", "4"]


def test_shards_after_an_id(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(3)
    assert kinesis.shard_ids(ExclusiveStartShardId="shardId-000000000000") == [1, 2]


def test_a_creation_timestamp_that_differs_is_not_found(kinesis: Any) -> None:
    created = kinesis.clock.now().timestamp()
    assert kinesis.shard_ids(StreamCreationTimestamp=int(created)) == [0]
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        kinesis.shards(StreamCreationTimestamp=int(created) - 60)


@pytest.mark.parametrize(
    ("shard_filter", "expected"),
    [
        ({"Type": "FROM_TRIM_HORIZON"}, [0, 1, 2]),
        ({"Type": "AT_TRIM_HORIZON"}, [0]),
        ({"Type": "AT_LATEST"}, [1, 2]),
        ({"Type": "AFTER_SHARD_ID", "ShardId": "shardId-000000000000"}, [1, 2]),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 50}, [0]),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 150}, [1, 2]),
        ({"Type": "FROM_TIMESTAMP", "Timestamp": 50}, [0, 1, 2]),
        ({"Type": "FROM_TIMESTAMP", "Timestamp": 150}, [1, 2]),
    ],
)
async def test_each_filter_selects_by_lineage_or_time(
    split: Any, shard_filter: dict[str, Any], expected: list[int]
) -> None:
    if "Timestamp" in shard_filter:
        start = split.clock.now().timestamp() - 200
        shard_filter = shard_filter | {"Timestamp": start + shard_filter["Timestamp"]}
    assert split.shard_ids(ShardFilter=shard_filter) == expected


async def test_the_trim_horizon_moves_on_to_the_children(split: Any) -> None:
    await split.clock.advance(24 * 3600 - 99)
    assert split.shard_ids(ShardFilter={"Type": "AT_TRIM_HORIZON"}) == [1, 2]
