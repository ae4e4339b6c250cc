"""Calls that AWS refuses for what they say, and how often each may be made."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from tests.unit.testing.test_local_kinesis_consumers import ARN, register
from tests.unit.testing.test_local_kinesis_settings import KEY

NO_CONSUMER = f"{ARN}/consumer/nobody:1"
INVALID, ARGUMENT = "ValidationException", "InvalidArgumentException"
MISSING, UNREADABLE = "ResourceNotFoundException", "SerializationException"
SHARD = "shardId-000000000000"
# What would be accepted; operations on consumers have no name of a stream.
VALID: dict[str, dict[str, Any]] = {
    "CreateStream": {"StreamName": "others"},
    "PutRecord": {"Data": "eA==", "PartitionKey": "k"},
    "GetShardIterator": {"ShardId": SHARD, "ShardIteratorType": "LATEST"},
    "TagResource": {"Tags": {"a": "b"}},
    "RegisterStreamConsumer": {"StreamName": None},
    "ListStreamConsumers": {"StreamName": None},
    "DescribeStreamConsumer": {"StreamName": None},
}


def shards_of(**shard_filter: Any) -> tuple[str, dict[str, Any]]:
    return "ListShards", {"ShardFilter": shard_filter}


@pytest.mark.parametrize(
    ("operation", "fields", "code"),
    [
        ("CreateStream", {"ShardCount": 0}, INVALID),
        ("CreateStream", {}, INVALID),
        ("CreateStream", {"ShardCount": 1, "StreamName": "no spaces"}, INVALID),
        ("CreateStream", {"ShardCount": "1"}, UNREADABLE),
        (
            "CreateStream",
            {"ShardCount": 1, "StreamModeDetails": {"StreamMode": "ON_DEMAND"}},
            INVALID,
        ),
        ("CreateStream", {"StreamModeDetails": {"StreamMode": "NONE"}}, INVALID),
        (*shards_of(Type="SOMETIMES"), INVALID),
        (*shards_of(Type="AT_TIMESTAMP"), INVALID),
        (*shards_of(Type="AFTER_SHARD_ID"), INVALID),
        (*shards_of(Type="AT_TIMESTAMP", Timestamp=1e12), ARGUMENT),
        *(("ListShards", {"NextToken": token}, ARGUMENT) for token in ("nonsense", "e30=", "WzFd")),
        ("GetShardIterator", {"ShardIteratorType": "NOW"}, INVALID),
        ("GetShardIterator", {"ShardIteratorType": "AT_TIMESTAMP"}, INVALID),
        ("GetShardIterator", {"ShardIteratorType": "AT_SEQUENCE_NUMBER"}, INVALID),
        (
            "GetShardIterator",
            {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": "now"},
            UNREADABLE,
        ),
        ("GetShardIterator", {"ShardId": "shardId-000000000009"}, MISSING),
        ("GetShardIterator", {"StreamName": "unknown"}, MISSING),
        ("PutRecord", {"Data": "x"}, UNREADABLE),
        ("PutRecord", {"Data": 5}, INVALID),
        ("PutRecord", {"PartitionKey": ""}, INVALID),
        ("PutRecord", {"PartitionKey": "k" * 257}, INVALID),
        ("PutRecord", {"ExplicitHashKey": "-1"}, INVALID),
        ("PutRecord", {"ExplicitHashKey": "01"}, INVALID),
        ("PutRecord", {"ExplicitHashKey": str(2**128)}, ARGUMENT),
        ("PutRecord", {"SequenceNumberForOrdering": "x"}, INVALID),
        ("RegisterStreamConsumer", {"ConsumerName": "c"}, INVALID),
        ("RegisterStreamConsumer", {"StreamARN": ARN}, INVALID),
        ("RegisterStreamConsumer", {"StreamARN": ARN, "ConsumerName": "no spaces"}, INVALID),
        ("RegisterStreamConsumer", {"StreamARN": ARN + "x", "ConsumerName": "c"}, MISSING),
        ("ListStreamConsumers", {}, INVALID),
        *(
            ("ListStreamConsumers", {"StreamARN": ARN, "NextToken": token} | more, ARGUMENT)
            for token, more in (("x", {}), ("WzFd", {}), ("x", {"StreamCreationTimestamp": 1}))
        ),
        ("DescribeStreamConsumer", {"StreamARN": ARN}, ARGUMENT),
        ("DescribeStreamConsumer", {"ConsumerName": "c"}, ARGUMENT),
        ("DescribeStreamConsumer", {"ConsumerARN": "c"}, INVALID),
        ("DescribeStreamConsumer", {"ConsumerARN": NO_CONSUMER}, MISSING),
        (
            "DescribeStreamConsumer",
            {"ConsumerARN": NO_CONSUMER.replace("us-east", "eu-west")},
            MISSING,
        ),
        (
            "DeregisterStreamConsumer",
            {"ConsumerARN": NO_CONSUMER, "ConsumerName": "somebody"},
            ARGUMENT,
        ),
        (
            "DeregisterStreamConsumer",
            {"ConsumerARN": NO_CONSUMER, "StreamARN": ARN + "x"},
            ARGUMENT,
        ),
        ("DeregisterStreamConsumer", {"StreamARN": ARN, "ConsumerName": "nobody"}, MISSING),
        ("TagResource", {"ResourceARN": f"{ARN}s"}, MISSING),
        ("TagResource", {"ResourceARN": ARN, "Tags": {"aws:a": ""}}, ARGUMENT),
        ("TagResource", {"ResourceARN": ARN, "Tags": {"a": "!"}}, ARGUMENT),
        ("AddTagsToStream", {"Tags": {str(n): "" for n in range(50)}}, ARGUMENT),
        ("PutResourcePolicy", {"ResourceARN": ARN, "Policy": "[]"}, ARGUMENT),
        ("EnableEnhancedMonitoring", {"ShardLevelMetrics": []}, INVALID),
        ("EnableEnhancedMonitoring", {"ShardLevelMetrics": ["None"]}, INVALID),
        ("StartStreamEncryption", KEY | {"EncryptionType": "NONE"}, ARGUMENT),
        ("StartStreamEncryption", {"EncryptionType": "KMS"}, INVALID),
        ("UpdateAccountSettings", {}, INVALID),
    ],
)
def test_a_malformed_call_is_refused(
    kinesis: Any, operation: str, fields: dict[str, Any], code: str
) -> None:
    kinesis("AddTagsToStream", Tags={"first": "one"})
    with pytest.raises(ApiError, match=f"^{code}"):
        kinesis(operation, **(VALID.get(operation, {}) | fields))


@pytest.mark.parametrize(
    ("operation", "fields", "per_second", "code"),
    [
        ("GetRecords", {}, 5, "ProvisionedThroughputExceeded"),
        ("GetShardIterator", VALID["GetShardIterator"], 5, "ProvisionedThroughputExceeded"),
        ("DescribeStream", {}, 10, "LimitExceeded"),
        ("DescribeStreamSummary", {}, 20, "LimitExceeded"),
        ("ListStreams", {}, 5, "LimitExceeded"),
        ("DescribeAccountSettings", {}, 5, "LimitExceeded"),
        ("DescribeLimits", {}, 1, "LimitExceeded"),
        ("ListStreamConsumers", {"StreamARN": ARN}, 5, "LimitExceeded"),
        ("DescribeStreamConsumer", {"StreamARN": ARN, "ConsumerName": "c"}, 20, "LimitExceeded"),
        ("DeregisterStreamConsumer", {"StreamARN": ARN, "ConsumerName": "c"}, 5, "LimitExceeded"),
        ("RegisterStreamConsumer", {"StreamARN": ARN}, 5, "LimitExceeded"),
    ],
)
async def test_each_operation_has_a_rate(
    make_kinesis: Any, operation: str, fields: dict[str, Any], per_second: int, code: str
) -> None:
    limits = Limits.aws(writes=True, control_plane=True)
    kinesis = make_kinesis(limits, Behaviour(consumer_deleting_seconds=60))
    kinesis.create()
    register(kinesis)
    if operation == "GetRecords":
        fields = {"ShardIterator": kinesis.iterator()}
    await kinesis.clock.advance(1)

    def call(number: int) -> None:
        name = {"ConsumerName": str(number)} if operation == "RegisterStreamConsumer" else {}
        kinesis(operation, **fields, **name)

    for number in range(per_second):
        call(number)
    with pytest.raises(ApiError, match=rf"{code}Exception: Rate exceeded for "):
        call(per_second)
    await kinesis.clock.advance(1)
    call(per_second)
