"""Every operation of botocore's model of Kinesis is served, and every answer has its members."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import botocore.session
import orjson
import pytest
from botocore.eventstream import EventStreamBuffer

from kinesis_publishers.clock import SystemClock
from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis
from kinesis_publishers.testing.local_kinesis.answers import StreamingAnswer
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS
from kinesis_publishers.testing.local_kinesis.service import KinesisService

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "blob": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "timestamp": (int, float),
}


def deviations(shape: Any, value: Any, path: str) -> Iterator[str]:
    """Say where a JSON value differs from a shape of the model."""
    if shape.type_name == "structure":
        yield from structure_deviations(shape, value, path)
    elif shape.type_name == "list":
        for index, item in enumerate(value):
            yield from deviations(shape.member, item, f"{path}[{index}]")
    elif not isinstance(value, JSON_TYPES[str(shape.type_name)]):
        yield f"{path}: {value!r} is no {shape.type_name}"
    elif shape.type_name == "string":
        yield from string_deviations(shape, str(value), path)


def structure_deviations(shape: Any, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no structure"
        return
    yield from (f"{path}.{name} is not modelled" for name in value.keys() - shape.members.keys())
    for name, member in shape.members.items():
        if value.get(name) is not None:
            yield from deviations(member, value[name], f"{path}.{name}")
        elif name in shape.required_members:
            yield f"{path}.{name} is required"


def string_deviations(shape: Any, value: str, path: str) -> Iterator[str]:
    rules = shape.metadata
    if shape.enum and value not in shape.enum:
        yield f"{path}: {value} is not one of {shape.enum}"
    if not rules.get("min", 0) <= len(value) <= rules.get("max", len(value)):
        yield f"{path}: length {len(value)}"
    if "pattern" in rules and not re.fullmatch(rules["pattern"], value):
        yield f"{path}: {value} does not match {rules['pattern']}"


ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"

# Channels deliver to S3 and need no reader. Queues, which a later botocore knows, hand out single
# records without an order.
NOT_SERVED = re.compile("Channel|Queue")
DRY = {"GetRecords", "GetShardIterator", "PutRecord", "PutRecords", "SubscribeToShard"}

# In this order each call finds what it needs; the parameters are completed from earlier answers.
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("CreateStream", {"ShardCount": 2, "Tags": {"a": "b"}}),
    ("AddTagsToStream", {"Tags": {"c": "d"}}),
    ("ListTagsForStream", {}),
    ("RemoveTagsFromStream", {"TagKeys": ["c"]}),
    ("ListStreams", {"Limit": 1}),
    ("DescribeStream", {}),
    ("DescribeStreamSummary", {}),
    ("ListShards", {"MaxResults": 1}),
    ("PutRecord", {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "0"}),
    ("PutRecords", {"Records": [{"Data": b"", "PartitionKey": "k", "ExplicitHashKey": "0"}]}),
    ("GetShardIterator", {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}),
    ("GetRecords", {"Limit": 1}),
    ("SplitShard", {"ShardToSplit": "shardId-000000000000", "NewStartingHashKey": "9999"}),
    ("GetRecords", {}),
    (
        "MergeShards",
        {
            "ShardToMerge": "shardId-000000000002",
            "AdjacentShardToMerge": "shardId-000000000003",
        },
    ),
    ("ListShards", {}),
    ("DescribeStream", {}),
    ("UpdateShardCount", {"TargetShardCount": 4, "ScalingType": "UNIFORM_SCALING"}),
    ("IncreaseStreamRetentionPeriod", {"RetentionPeriodHours": 48}),
    ("DecreaseStreamRetentionPeriod", {"RetentionPeriodHours": 24}),
    ("UpdateMaxRecordSize", {"MaxRecordSizeInKiB": 2048}),
    ("CreateStream", {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}, "StreamName": "auto"}),
    ("UpdateStreamRecordDistributionStrategy", {"RecordDistributionStrategy": "AUTO"}),
    ("DescribeStreamSummary", {"StreamName": "auto"}),
    ("RegisterStreamConsumer", {"ConsumerName": "a"}),
    ("RegisterStreamConsumer", {"ConsumerName": "b"}),
    ("DescribeStreamConsumer", {"ConsumerName": "a"}),
    ("TagResource", {"Tags": {"e": "f"}}),
    ("ListTagsForResource", {}),
    ("UntagResource", {"TagKeys": ["e"]}),
    ("PutResourcePolicy", {"Policy": "{}"}),
    ("GetResourcePolicy", {}),
    ("DeleteResourcePolicy", {}),
    ("EnableEnhancedMonitoring", {"ShardLevelMetrics": ["ALL"]}),
    ("DisableEnhancedMonitoring", {"ShardLevelMetrics": ["IncomingBytes"]}),
    ("StartStreamEncryption", {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}),
    ("PutRecord", {"Data": b"x", "PartitionKey": "k"}),
    ("PutRecords", {"Records": [{"Data": b"x", "PartitionKey": "k"}]}),
    ("DescribeStream", {}),
    ("StopStreamEncryption", {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}),
    (
        "UpdateAccountSettings",
        {"MinimumThroughputBillingCommitment": {"Status": "ENABLED"}},
    ),
    (
        "UpdateAccountSettings",
        {"MinimumThroughputBillingCommitment": {"Status": "DISABLED"}},
    ),
    ("DescribeAccountSettings", {}),
    ("DescribeLimits", {}),
    ("UpdateStreamMode", {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}),
    ("UpdateStreamWarmThroughput", {"WarmThroughputMiBps": 5}),
    ("ListStreamConsumers", {"MaxResults": 1}),
    ("DescribeStreamSummary", {}),
    ("DeregisterStreamConsumer", {"ConsumerName": "a"}),
    ("DeleteStream", {"EnforceConsumerDeletion": True}),
]


def test_every_operation_of_the_model_is_served_or_left_out_on_purpose() -> None:
    model = botocore.session.get_session().get_service_model("kinesis")
    assert [
        name
        for name in model.operation_names
        if (name in OPERATIONS) == bool(NOT_SERVED.search(name))
    ] == []
    inputs = {name: model.operation_model(name).input_shape for name in model.operation_names}
    assert {name for name, shape in inputs.items() if "DryRun" in shape.members} == DRY


def test_the_steps_walk_through_every_operation_with_one_answer() -> None:
    assert {operation for operation, _ in STEPS} == OPERATIONS.keys() - {"SubscribeToShard"}


def test_every_answer_is_as_modelled() -> None:
    bodies: list[bytes] = []
    found: list[str] = []
    iterator = ""
    with LocalKinesis.in_thread() as server, closing(server.client()) as client:
        client.meta.events.register(
            "before-parse.kinesis", lambda response_dict, **_: bodies.append(response_dict["body"])
        )
        server.create_stream("another")
        for operation, fields in STEPS:
            parameters = dict(fields)
            if operation == "GetRecords":
                parameters["ShardIterator"] = iterator
            known = client.meta.service_model.operation_model(operation).input_shape.members
            if "StreamName" in known:
                parameters.setdefault("StreamName", "orders")
            else:
                arn = ARN.replace("orders", "auto") if "Distribution" in operation else ARN
                parameters |= {key: arn for key in ("StreamARN", "ResourceARN") if key in known}
            answer = client._make_api_call(operation, parameters)
            iterator = answer.get("ShardIterator", iterator)
            shape = client.meta.service_model.operation_model(operation).output_shape
            if shape is None:
                assert bodies[-1] == b"", operation
            else:
                found += deviations(shape, orjson.loads(bodies[-1]), operation)
        assert server.calls("TagResource", "orders")
    assert found == []
    assert len(bodies) == len(STEPS)


async def test_every_event_is_as_modelled() -> None:
    """Records, a sign of life and the end of the shard, as they come from the service."""
    service = KinesisService(Limits.aws(), SystemClock(), Behaviour(heartbeat_seconds=0))
    service.state.create("orders", "PROVISIONED", 1)
    service.state.write("orders", [("k", b"x")])
    arn = service.state.register(service.state.find("orders"), "c", {}).arn
    shard_id = "shardId-000000000000"
    position = {"Type": "TRIM_HORIZON"}
    request = {"ConsumerARN": arn, "ShardId": shard_id, "StartingPosition": position}
    answer = await service.handle("SubscribeToShard", orjson.dumps(request))
    assert isinstance(answer, StreamingAnswer)
    pieces = [await anext(answer.body) for _ in range(3)]
    split = {"StreamName": "orders", "ShardToSplit": shard_id, "NewStartingHashKey": "9999"}
    await service.handle("SplitShard", orjson.dumps(split))
    pieces += [piece async for piece in answer.body]
    buffer = EventStreamBuffer()
    buffer.add_data(b"".join(pieces))
    _, *events = [orjson.loads(message.payload) for message in buffer]
    shape = (
        botocore.session.get_session()
        .get_service_model("kinesis")
        .shape_for("SubscribeToShardEvent")
    )
    found = [text for event in events for text in deviations(shape, event, "event")]
    # "Required" in the model, null at the end of a shard in the text of the API reference.
    assert found == ["event.ContinuationSequenceNumber is required"]
    assert [len(event["Records"]) for event in events] == [1, 0, 0]
    assert len(events[-1]["ChildShards"]) == 2


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [
        ("PutRecord", {"ShardId": "s"}, ["PutRecord.SequenceNumber is required"]),
        ("ListStreams", {"StreamNames": [1], "HasMoreStreams": True}, ["no string"]),
        ("GetRecords", {"Records": [], "More": 1}, ["GetRecords.More is not modelled"]),
        ("PutRecord", {"ShardId": "s", "SequenceNumber": "01"}, ["does not match"]),
    ],
)
def test_the_check_itself_finds_deviations(
    operation: str, value: dict[str, Any], expected: list[str]
) -> None:
    model = botocore.session.get_session().get_service_model("kinesis")
    found = list(deviations(model.operation_model(operation).output_shape, value, operation))
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))
