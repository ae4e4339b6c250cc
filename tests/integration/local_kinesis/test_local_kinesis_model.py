"""Every answer has exactly the members that botocore's model of Kinesis gives it."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kinesis_publishers.testing.local_kinesis import LocalKinesis
from kinesis_publishers.testing.local_kinesis.operations import OPERATIONS

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
    ("DeleteStream", {}),
]


def test_the_steps_walk_through_every_operation() -> None:
    assert {operation for operation, _ in STEPS} == set(OPERATIONS)


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
            elif operation != "ListStreams":
                parameters["StreamName"] = "orders"
            answer = client._make_api_call(operation, parameters)
            iterator = answer.get("ShardIterator", iterator)
            shape = client.meta.service_model.operation_model(operation).output_shape
            if shape is None:
                assert bodies[-1] == b"", operation
            else:
                found += deviations(shape, orjson.loads(bodies[-1]), operation)
    assert found == []
    assert len(bodies) == len(STEPS)


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
    import botocore.session

    model = botocore.session.get_session().get_service_model("kinesis")
    found = list(deviations(model.operation_model(operation).output_shape, value, operation))
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))
