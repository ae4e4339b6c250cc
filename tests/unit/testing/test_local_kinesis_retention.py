"""Records and shards leave with the retention, or when they are told to."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers.testing.local_kinesis.answers import ApiError

HOUR = 3600
DAY_MS = 24 * HOUR * 1000


async def test_records_older_than_the_retention_vanish(kinesis: Any) -> None:
    kinesis.put("a")
    await kinesis.clock.advance(HOUR)
    kinesis.put("b")
    await kinesis.clock.advance(23 * HOUR)
    assert kinesis.texts() == ["a", "b"]
    await kinesis.clock.advance(1)
    assert kinesis.texts() == ["b"]


async def test_a_longer_retention_keeps_them(kinesis: Any) -> None:
    kinesis("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48)
    kinesis.put("a")
    await kinesis.clock.advance(47 * HOUR)
    assert kinesis.texts() == ["a"]
    kinesis("DecreaseStreamRetentionPeriod", RetentionPeriodHours=24)
    assert kinesis.texts() == []


async def test_a_retention_that_is_shortened_overtakes_an_iterator_at_once(
    make_kinesis: Any,
) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(updating_seconds=10))
    kinesis.create()
    kinesis("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48)
    await kinesis.clock.advance(10)
    iterator = kinesis.iterator()
    kinesis.put("a")
    await kinesis.clock.advance(30 * HOUR)
    kinesis.put("b")
    kinesis("DecreaseStreamRetentionPeriod", RetentionPeriodHours=24)
    assert kinesis.texts(iterator) == ["a", "b"]
    await kinesis.clock.advance(10)
    assert kinesis.texts(iterator) == ["b"]


async def test_an_iterator_that_is_overtaken_by_the_horizon_continues_there(kinesis: Any) -> None:
    iterator = kinesis.iterator()
    for text in ("a", "b"):
        kinesis.put(text)
        await kinesis.clock.advance(12 * HOUR)
    await kinesis.clock.advance(1)
    assert kinesis.texts(iterator) == ["b"]


async def trimmed(make_kinesis: Any, trimmed_iterator: Any) -> tuple[Any, str]:
    """Return an account where the record of the returned number is trimmed and b is stored."""
    kinesis = make_kinesis(behaviour=Behaviour(trimmed_iterator=trimmed_iterator))
    kinesis.create()
    number = kinesis.put("a")["SequenceNumber"]
    await kinesis.clock.advance(25 * HOUR)
    kinesis.put("b")
    return kinesis, number


async def test_after_a_trimmed_number_nothing_ever_comes(make_kinesis: Any) -> None:
    kinesis, number = await trimmed(make_kinesis, "stuck")
    iterator = kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)
    for _ in range(3):
        answer = kinesis.read(iterator)
        assert (answer["Records"], answer["MillisBehindLatest"]) == ([], DAY_MS)
        iterator = answer["NextShardIterator"]
        kinesis.put("more")
        await kinesis.clock.advance(60)


async def test_at_a_trimmed_number_reading_begins_at_the_horizon(make_kinesis: Any) -> None:
    kinesis, number = await trimmed(make_kinesis, "stuck")
    iterator = kinesis.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=number)
    assert kinesis.texts(iterator) == ["b"]


async def test_a_trimmed_number_may_be_refused_instead(make_kinesis: Any) -> None:
    kinesis, number = await trimmed(make_kinesis, "invalid_argument")
    with pytest.raises(ApiError, match=r"InvalidArgumentException.*has been trimmed"):
        kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)


async def test_a_trimmed_number_may_mean_the_horizon_instead(make_kinesis: Any) -> None:
    kinesis, number = await trimmed(make_kinesis, "trim_horizon")
    iterator = kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)
    assert kinesis.texts(iterator) == ["b"]


async def test_a_closed_shard_leaves_when_all_of_it_is_out_of_retention(kinesis: Any) -> None:
    kinesis.put("a")
    await kinesis.clock.advance(HOUR)
    kinesis("SplitShard", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127))
    await kinesis.clock.advance(24 * HOUR - 1)
    assert kinesis.shard_ids() == [0, 1, 2]
    iterator = kinesis.iterator()
    await kinesis.clock.advance(1)
    with pytest.raises(ApiError, match=r"ResourceNotFoundException: Shard .* does not exist"):
        kinesis.read(iterator)
    assert kinesis.shard_ids() == [1, 2]
    # The children still name it: that is how a reader learns that a parent has gone.
    assert {shard["ParentShardId"] for shard in kinesis.shards()} == {"shardId-000000000000"}


def test_trimming_on_demand_removes_through_a_number(kinesis: Any) -> None:
    numbers = [kinesis.put(text)["SequenceNumber"] for text in ("a", "b", "c")]
    assert kinesis.state.trim("orders", through=numbers[1]) == 2
    assert kinesis.texts() == ["c"]
    answer = kinesis.read(
        kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1])
    )
    assert answer["Records"] == []


def test_trimming_everything_drops_closed_shards_only(kinesis: Any) -> None:
    kinesis.put("a")
    kinesis("SplitShard", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127))
    kinesis.put("b", ExplicitHashKey="0")
    assert kinesis.state.trim("orders", drop_closed_shards=False) == 2
    assert kinesis.shard_ids() == [0, 1, 2]
    assert kinesis.state.trim("orders", shard_id="shardId-000000000000") == 0
    assert kinesis.shard_ids() == [1, 2]


def test_pages_stay_right_after_trimming(kinesis: Any) -> None:
    numbers = [kinesis.put("x" * 10)["SequenceNumber"] for _ in range(10)]
    kinesis.state.trim("orders", through=numbers[3])
    kinesis.put("y" * 10)
    shard = kinesis.state.find("orders").open_shards[0]
    # Ten bytes of data and the three of "key" each.
    assert len(shard.page(0, None, 26).fragments) == 2
    assert shard.page(0, None, None).payload_bytes == 7 * 13
