"""The life of a stream: creation, description, deletion, retention and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers.testing.local_kinesis.answers import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable


def status_of(kinesis: Any) -> str:
    return str(kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]["StreamStatus"])


def test_an_on_demand_stream_has_four_shards(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis("CreateStream", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    summary = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]
    assert summary["OpenShardCount"] == 4
    assert summary["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
    with pytest.raises(ApiError, match="ValidationException"):
        kinesis("UpdateShardCount", TargetShardCount=8, ScalingType="UNIFORM_SCALING")


def test_a_name_is_taken_once(kinesis: Any) -> None:
    with pytest.raises(ApiError, match=r"ResourceInUseException: Stream orders .* already exists"):
        kinesis.create()


async def test_a_stream_in_creation_takes_no_data(make_kinesis: Callable[..., Any]) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(creating_seconds=10))
    kinesis.create()
    assert status_of(kinesis) == "CREATING"
    assert kinesis("DescribeStream")["StreamDescription"]["Shards"] == []
    with pytest.raises(ApiError, match="ResourceInUseException"):
        kinesis.shards()
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        kinesis.put("a")
    await kinesis.clock.advance(10)
    assert status_of(kinesis) == "ACTIVE"
    kinesis.put("a")


async def test_a_deleted_stream_stays_deleting_and_then_is_gone(make_kinesis: Any) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(deleting_seconds=10))
    kinesis.create()
    kinesis("DeleteStream")
    assert status_of(kinesis) == "DELETING"
    with pytest.raises(ApiError, match="ResourceInUseException"):
        kinesis.create()
    with pytest.raises(ApiError, match="ResourceInUseException"):
        kinesis("DeleteStream")
    await kinesis.clock.advance(10)
    with pytest.raises(ApiError, match="ResourceNotFoundException: Stream orders"):
        status_of(kinesis)


def test_a_stream_created_again_is_another_stream(kinesis: Any) -> None:
    """Creation time and numbers differ even within one instant; old iterators lead nowhere."""
    number = kinesis.put("old")["SequenceNumber"]
    created = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"][
        "StreamCreationTimestamp"
    ]
    iterator = kinesis.iterator()
    kinesis("DeleteStream")
    kinesis.create()
    again = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]["StreamCreationTimestamp"]
    assert again > created
    assert kinesis.texts() == []
    assert int(kinesis.put("new")["SequenceNumber"]) > int(number)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        kinesis.read(iterator)
    with pytest.raises(ApiError, match=r"InvalidArgumentException.*did not come from this stream"):
        kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)


def test_streams_are_listed_in_pages(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    for name in ("c", "a", "b"):
        kinesis("CreateStream", StreamName=name, ShardCount=1)
    page = kinesis("ListStreams", Limit=2)
    assert (page["StreamNames"], page["HasMoreStreams"]) == (["a", "b"], True)
    rest = kinesis("ListStreams", NextToken=page["NextToken"])
    assert (rest["StreamNames"], rest["HasMoreStreams"]) == (["c"], False)
    assert kinesis("ListStreams", ExclusiveStartStreamName="b")["StreamNames"] == ["c"]


def test_a_description_pages_through_shards(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(3)
    page = kinesis("DescribeStream", Limit=2)["StreamDescription"]
    assert (len(page["Shards"]), page["HasMoreShards"]) == (2, True)
    last = page["Shards"][-1]["ShardId"]
    rest = kinesis("DescribeStream", ExclusiveStartShardId=last)["StreamDescription"]
    assert (len(rest["Shards"]), rest["HasMoreShards"]) == (1, False)


def test_no_page_has_more_than_100_with_any_limit(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create(101)
    page = kinesis("DescribeStream", Limit=10_000)["StreamDescription"]
    assert (len(page["Shards"]), page["HasMoreShards"]) == (100, True)
    for number in range(100):
        kinesis("CreateStream", StreamName=f"other-{number}", ShardCount=1)
    page = kinesis("ListStreams", Limit=10_000)
    assert (len(page["StreamNames"]), page["HasMoreStreams"]) == (100, True)


def test_a_stream_goes_by_its_name_or_its_arn(kinesis: Any) -> None:
    arn = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]["StreamARN"]
    assert kinesis.shards(StreamARN=arn) == kinesis.shards()
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        kinesis.shards(StreamARN=arn.replace("us-east-1", "eu-west-1"))
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        kinesis.shards(StreamARN=arn, StreamName="another")
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        kinesis.shards(StreamName=None)


async def test_the_retention_changes_in_one_direction_per_operation(make_kinesis: Any) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(updating_seconds=5))
    kinesis.create()
    kinesis("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48)
    assert status_of(kinesis) == "UPDATING"
    await kinesis.clock.advance(5)
    description = kinesis("DescribeStream")["StreamDescription"]
    assert (description["StreamStatus"], description["RetentionPeriodHours"]) == ("ACTIVE", 48)
    for operation, hours in (
        ("IncreaseStreamRetentionPeriod", 24),
        ("DecreaseStreamRetentionPeriod", 72),
        ("DecreaseStreamRetentionPeriod", 23),
        ("IncreaseStreamRetentionPeriod", 8761),
    ):
        with pytest.raises(ApiError, match="InvalidArgumentException"):
            kinesis(operation, RetentionPeriodHours=hours)


def test_tags_are_kept(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis("CreateStream", ShardCount=1, Tags={"team": "a"})
    kinesis("AddTagsToStream", Tags={"cost": "1", "team": "b"})
    first = kinesis("ListTagsForStream", Limit=1)
    assert first == {"Tags": [{"Key": "cost", "Value": "1"}], "HasMoreTags": True}
    kinesis("RemoveTagsFromStream", TagKeys=["cost"])
    rest = kinesis("ListTagsForStream")
    assert rest == {"Tags": [{"Key": "team", "Value": "b"}], "HasMoreTags": False}


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
