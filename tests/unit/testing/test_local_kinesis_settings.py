"""Settings of streams, consumers and the account: what they need, what they change, what ends."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from tests.unit.testing.test_local_kinesis_consumers import ARN, register

DAY = 24 * 3600
KEY = {"EncryptionType": "KMS", "KeyId": "alias/orders"}
ON_DEMAND = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
PROVISIONED = {"StreamModeDetails": {"StreamMode": "PROVISIONED"}}


def summary(kinesis: Any) -> dict[str, Any]:
    answer: dict[str, Any] = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]
    return answer


def commit(kinesis: Any, status: str = "ENABLED") -> dict[str, Any]:
    answer: dict[str, Any] = kinesis(
        "UpdateAccountSettings", MinimumThroughputBillingCommitment={"Status": status}
    )["MinimumThroughputBillingCommitment"]
    return answer


def code_of(kinesis: Any, operation: str, **fields: Any) -> str:
    with pytest.raises(ApiError) as refused:
        kinesis(operation, **fields)
    return refused.value.code


async def test_a_stream_is_encrypted_after_it_was_updating(make_kinesis: Any) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(updating_seconds=5))
    kinesis.create()
    assert summary(kinesis)["EncryptionType"] == "NONE"
    kinesis("StartStreamEncryption", **KEY)
    assert "EncryptionType" not in kinesis.put("plain")
    assert code_of(kinesis, "StopStreamEncryption", **KEY) == "ResourceInUseException"
    await kinesis.clock.advance(5)
    assert kinesis.put("secret")["EncryptionType"] == "KMS"
    described = kinesis("DescribeStream")["StreamDescription"]
    assert (described["EncryptionType"], described["KeyId"]) == ("KMS", "alias/orders")
    types = [record.get("EncryptionType") for record in kinesis.read()["Records"]]
    assert types == [None, "KMS"]
    kinesis("StopStreamEncryption", **KEY)
    await kinesis.clock.advance(5)
    assert "EncryptionType" not in kinesis.put("plain")
    assert summary(kinesis)["KeyId"] is None


def test_the_mode_changes_and_the_shards_stay(kinesis: Any) -> None:
    assert code_of(kinesis, "UpdateStreamMode", **ON_DEMAND) == "ValidationException"
    for details, shards, on_demand in ((ON_DEMAND, 0, 1), (PROVISIONED, 1, 0)):
        kinesis("UpdateStreamMode", StreamARN=ARN, **details)
        assert summary(kinesis) == summary(kinesis) | details | {"OpenShardCount": 1}
        counts = kinesis("DescribeLimits")
        assert (counts["OpenShardCount"], counts["OnDemandStreamCount"]) == (shards, on_demand)


async def test_a_stream_is_warmed_on_demand_in_a_committed_account(make_kinesis: Any) -> None:
    kinesis = make_kinesis(behaviour=Behaviour(updating_seconds=5))
    kinesis("CreateStream", **ON_DEMAND)
    warm = {"WarmThroughputMiBps": 6}
    assert code_of(kinesis, "UpdateStreamWarmThroughput", **warm) == "ValidationException"
    assert "WarmThroughput" not in summary(kinesis)
    commit(kinesis)
    answer = kinesis("UpdateStreamWarmThroughput", **warm)
    assert answer["WarmThroughput"] == {"TargetMiBps": 6, "CurrentMiBps": 4}
    await kinesis.clock.advance(5)
    assert summary(kinesis)["WarmThroughput"] == {"TargetMiBps": 6, "CurrentMiBps": 6}
    too_much = code_of(kinesis, "UpdateStreamWarmThroughput", WarmThroughputMiBps=10_241)
    assert too_much == "LimitExceededException"
    provisioned = {"StreamName": "provisioned", "ShardCount": 1}
    assert code_of(kinesis, "CreateStream", **provisioned, **warm) == "ValidationException"


async def test_a_commitment_lasts_a_day_at_least(kinesis: Any) -> None:
    settings = "MinimumThroughputBillingCommitment"
    assert kinesis("DescribeAccountSettings") == {settings: {"Status": "DISABLED"}}
    enabled = commit(kinesis)
    assert enabled["EarliestAllowedEndAt"] - enabled["StartedAt"] == DAY
    await kinesis.clock.advance(DAY / 2)
    assert commit(kinesis, "DISABLED")["Status"] == "ENABLED_UNTIL_EARLIEST_ALLOWED_END"
    assert commit(kinesis) == enabled
    commit(kinesis, "DISABLED")
    await kinesis.clock.advance(DAY / 2)
    ended = kinesis("DescribeAccountSettings")[settings]
    assert (ended["Status"], ended["EndedAt"]) == ("DISABLED", enabled["EarliestAllowedEndAt"])


def test_monitoring_names_the_metrics_before_and_after(kinesis: Any) -> None:
    two = {"ShardLevelMetrics": ["OutgoingBytes", "IncomingBytes"]}
    answer = kinesis("EnableEnhancedMonitoring", **two)
    assert answer["CurrentShardLevelMetrics"] == ()
    assert answer["DesiredShardLevelMetrics"] == ("IncomingBytes", "OutgoingBytes")
    kinesis("EnableEnhancedMonitoring", ShardLevelMetrics=["ALL"])
    assert len(kinesis("DisableEnhancedMonitoring", **two)["CurrentShardLevelMetrics"]) == 7
    (described,) = summary(kinesis)["EnhancedMonitoring"]
    assert len(described["ShardLevelMetrics"]) == 5


def test_streams_and_consumers_have_tags_and_a_policy(kinesis: Any) -> None:
    for arn in (ARN, register(kinesis)["ConsumerARN"]):
        resource = {"ResourceARN": arn}
        kinesis("TagResource", **resource, Tags={"a": "1", "b": "2"})
        kinesis("UntagResource", **resource, TagKeys=["a"])
        tags = [{"Key": "b", "Value": "2"}]
        assert kinesis("ListTagsForResource", **resource) == {"Tags": tags}
        kinesis("PutResourcePolicy", **resource, Policy='{"Version": "2012-10-17"}')
        policy = kinesis("GetResourcePolicy", **resource)
        assert policy == {"Policy": '{"Version": "2012-10-17"}'}
        kinesis("DeleteResourcePolicy", **resource)
        refused = code_of(kinesis, "DeleteResourcePolicy", **resource)
        assert refused == "ResourceNotFoundException"
    assert kinesis("ListTagsForStream")["Tags"] == tags


RECORD = {"Data": "eA==", "PartitionKey": "k"}
PLACE = {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}


@pytest.mark.parametrize(
    ("operation", "fields", "wrong"),
    [
        ("PutRecord", RECORD, {"PartitionKey": ""}),
        ("PutRecords", {"Records": [RECORD]}, {"Records": []}),
        ("GetShardIterator", PLACE, {"ShardId": "nothing"}),
        ("GetRecords", {}, {"ShardIterator": "nothing"}),
    ],
)
def test_a_dry_run_says_that_a_call_would_succeed_and_has_no_effect(
    kinesis: Any, operation: str, fields: dict[str, Any], wrong: dict[str, Any]
) -> None:
    call = {"ShardIterator": kinesis.iterator(), "DryRun": True, "StreamName": "orders"} | fields
    assert code_of(kinesis, operation, **call) == "DryRunOperationException"
    assert code_of(kinesis, operation, **(call | wrong)) != "DryRunOperationException"
    assert kinesis.texts() == []
