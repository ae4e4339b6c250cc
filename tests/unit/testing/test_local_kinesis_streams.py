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
