"""The life of a stream consumer, by calls of clients and by those of a test."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from kinesis_publishers.testing.local_kinesis.dispatch import Admin
from tests.unit.testing.subscribing_harness import SHARD, STREAM

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def register(kinesis: Any, name: str = "c", **fields: Any) -> Any:
    fields = {"StreamARN": ARN, "ConsumerName": name} | fields
    return kinesis("RegisterStreamConsumer", **fields)["Consumer"]


def describe(kinesis: Any, name: str = "c") -> Any:
    answer = kinesis("DescribeStreamConsumer", StreamARN=ARN, ConsumerName=name)
    return answer["ConsumerDescription"]


def deregister(kinesis: Any, name: str = "c") -> None:
    kinesis("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName=name)


def listed(kinesis: Any, **fields: Any) -> list[str]:
    answer = kinesis("ListStreamConsumers", StreamARN=ARN, **fields)
    return [consumer["ConsumerName"] for consumer in answer["Consumers"]]


def test_a_consumer_is_described_by_its_name_and_by_its_arn(kinesis: Any) -> None:
    registered = register(kinesis)
    second = int(registered["ConsumerCreationTimestamp"])
    assert registered == {
        "ConsumerName": "c",
        "ConsumerARN": f"{ARN}/consumer/c:{second}",
        "ConsumerStatus": "ACTIVE",
        "ConsumerCreationTimestamp": second,
    }
    expected = registered | {"StreamARN": ARN}
    assert describe(kinesis) == expected
    arn = registered["ConsumerARN"]
    for fields in ({}, {"StreamARN": ARN, "ConsumerName": "c"}):
        answer = kinesis("DescribeStreamConsumer", ConsumerARN=arn, **fields)
        assert answer["ConsumerDescription"] == expected


async def test_a_consumer_takes_its_time_to_come_and_to_go(make_kinesis: Any) -> None:
    kinesis = make_kinesis(
        behaviour=Behaviour(consumer_creating_seconds=10, consumer_deleting_seconds=20)
    )
    kinesis.create()
    assert register(kinesis)["ConsumerStatus"] == "CREATING"
    await kinesis.clock.advance(9.9)
    assert describe(kinesis)["ConsumerStatus"] == "CREATING"
    await kinesis.clock.advance(0.1)
    assert describe(kinesis)["ConsumerStatus"] == "ACTIVE"
    deregister(kinesis)
    assert describe(kinesis)["ConsumerStatus"] == "DELETING"
    await kinesis.clock.advance(19)
    # It is going already: asking again does not prolong it.
    deregister(kinesis)
    await kinesis.clock.advance(1)
    with pytest.raises(ApiError, match="ResourceNotFoundException: Consumer c of stream orders"):
        describe(kinesis)


async def test_a_name_is_taken_in_every_phase(make_kinesis: Any) -> None:
    kinesis = make_kinesis(
        behaviour=Behaviour(consumer_creating_seconds=1, consumer_deleting_seconds=1)
    )
    kinesis.create()
    register(kinesis)
    for status in ("CREATING", "ACTIVE"):
        with pytest.raises(ApiError, match=f"ResourceInUseException.*{status}"):
            register(kinesis)
        await kinesis.clock.advance(1)
    deregister(kinesis)
    with pytest.raises(ApiError, match=r"ResourceInUseException.*DELETING"):
        register(kinesis)


def test_a_consumer_that_is_registered_again_has_another_arn(kinesis: Any) -> None:
    """Also within one second, and on a stream that was created again."""
    arns = [register(kinesis)["ConsumerARN"]]
    deregister(kinesis)
    arns.append(register(kinesis)["ConsumerARN"])
    kinesis("DeleteStream", EnforceConsumerDeletion=True)
    kinesis.create()
    arns.append(register(kinesis)["ConsumerARN"])
    assert len(set(arns)) == 3
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        kinesis("DescribeStreamConsumer", ConsumerARN=arns[0])


def test_consumers_are_listed_in_pages(kinesis: Any) -> None:
    for name in ("c", "a", "b"):
        register(kinesis, name)
    page = kinesis("ListStreamConsumers", StreamARN=ARN, MaxResults=2)
    assert [consumer["ConsumerName"] for consumer in page["Consumers"]] == ["a", "b"]
    assert listed(kinesis, NextToken=page["NextToken"]) == ["c"]
    assert "NextToken" not in kinesis("ListStreamConsumers", StreamARN=ARN)


def test_a_page_has_at_most_100_consumers(kinesis: Any) -> None:
    for number in range(101):
        register(kinesis, f"c{number}")
    assert len(listed(kinesis, MaxResults=10_000)) == len(listed(kinesis)) == 100


async def test_a_token_of_a_list_lives_five_minutes(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create()
    for name in ("a", "b"):
        register(kinesis, name)
    token = kinesis("ListStreamConsumers", StreamARN=ARN, MaxResults=1)["NextToken"]
    await kinesis.clock.advance(300)
    assert listed(kinesis, NextToken=token) == ["b"]
    await kinesis.clock.advance(0.001)
    with pytest.raises(ApiError, match="ExpiredNextTokenException"):
        listed(kinesis, NextToken=token)


def test_the_creation_of_the_stream_tells_two_of_one_name_apart(kinesis: Any) -> None:
    register(kinesis)
    created = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"][
        "StreamCreationTimestamp"
    ]
    assert listed(kinesis, StreamCreationTimestamp=int(created)) == ["c"]
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        listed(kinesis, StreamCreationTimestamp=int(created) - 1)


def test_a_token_of_another_stream_is_refused(kinesis: Any) -> None:
    kinesis("CreateStream", StreamName="others", ShardCount=1)
    for name in ("a", "b"):
        register(kinesis, name)
    token = kinesis("ListStreamConsumers", StreamARN=ARN, MaxResults=1)["NextToken"]
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        kinesis("ListStreamConsumers", StreamARN=ARN[:-6] + "others", NextToken=token)


def test_the_summary_of_a_stream_counts_its_consumers(kinesis: Any) -> None:
    for name in ("a", "b"):
        register(kinesis, name)
    deregister(kinesis, "a")
    assert kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]["ConsumerCount"] == 1


def test_a_stream_with_consumers_is_deleted_only_by_force(kinesis: Any) -> None:
    register(kinesis)
    for fields in ({}, {"EnforceConsumerDeletion": False}):
        with pytest.raises(ApiError, match=r"ResourceInUseException.*1 registered consumers"):
            kinesis("DeleteStream", **fields)
    kinesis("DeleteStream", EnforceConsumerDeletion=True)
    with pytest.raises(ApiError, match="ResourceNotFoundException: Stream orders"):
        describe(kinesis)


def test_a_stream_in_creation_takes_no_consumers(make_kinesis: Any) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(creating_seconds=1))
    kinesis.create()
    with pytest.raises(ApiError, match=r"ResourceInUseException.*CREATING"):
        register(kinesis)


@pytest.mark.parametrize(
    ("commitment", "mode", "most"),
    [("ENABLED", "PROVISIONED", 20), ("DISABLED", "ON_DEMAND", 20), ("ENABLED", "ON_DEMAND", 50)],
)
def test_a_stream_has_at_most_20_consumers_or_50_with_on_demand_advantage(
    make_kinesis: Any, commitment: str, mode: str, most: int
) -> None:
    kinesis = make_kinesis(Limits(register_consumer_calls_per_second=None))
    kinesis.create()
    kinesis("UpdateAccountSettings", MinimumThroughputBillingCommitment={"Status": commitment})
    kinesis("UpdateStreamMode", StreamARN=ARN, StreamModeDetails={"StreamMode": mode})
    for number in range(most):
        register(kinesis, str(number))
    refusal = rf"LimitExceededException: Stream orders .* {most} registered"
    with pytest.raises(ApiError, match=refusal):
        register(kinesis, "one-more")
    with pytest.raises(ApiError, match="ResourceInUseException"):
        register(kinesis, "0")
    deregister(kinesis, "0")
    register(kinesis, "one-more")


async def test_at_most_five_consumers_are_created_at_once(make_kinesis: Any) -> None:
    kinesis = make_kinesis(
        Limits(register_consumer_calls_per_second=None), Behaviour(consumer_creating_seconds=1)
    )
    kinesis.create()
    for number in range(5):
        register(kinesis, str(number))
    with pytest.raises(ApiError, match=r"LimitExceededException: 5 consumers .* CREATING"):
        register(kinesis, "5")
    await kinesis.clock.advance(1)
    register(kinesis, "5")


def described(fan_out: Any) -> Any:
    answer = Admin(fan_out.service).handle("GET", "/_admin/state", b"")
    return orjson.loads(answer.body)["streams"][STREAM]["consumers"]


async def test_the_state_shows_consumers_and_their_open_subscriptions(fan_out: Any) -> None:
    idle_arn = fan_out.register("idle")
    reader = await fan_out.subscribe()
    await fan_out.clock.advance(6)
    assert described(fan_out) == {
        "c": {
            "arn": fan_out.consumer_arn,
            "status": "ACTIVE",
            "subscriptions": [{"shard_id": SHARD(0), "age_seconds": 6.0, "events": 1}],
        },
        "idle": {"arn": idle_arn, "status": "ACTIVE", "subscriptions": []},
    }
    await reader.close()
    assert described(fan_out)["c"]["subscriptions"] == []


def test_a_test_registers_and_removes_consumers_without_a_client() -> None:
    server = LocalKinesis(behaviour=Behaviour(consumer_deleting_seconds=60))
    server.create_stream(STREAM)
    arn = server.register_consumer(STREAM, "c")
    assert arn.startswith("arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/c:")
    assert server.consumers(STREAM) == {"c": "ACTIVE"}
    server.deregister_consumer(STREAM, "c")
    assert server.consumers(STREAM) == {"c": "DELETING"}
    with pytest.raises(ApiError, match="ResourceInUseException"):
        server.register_consumer(STREAM, "c")
    with pytest.raises(ValueError, match="stream orders has no consumer d"):
        server.deregister_consumer(STREAM, "d")
    assert server.open_subscriptions(STREAM) == 0
