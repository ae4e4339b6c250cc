"""Settings of streams, consumers and the account: what they need, what they change, what ends."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from tests.unit.local_kinesis.test_local_kinesis_consumers import ARN, register

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
    for details in (ON_DEMAND, PROVISIONED):
        kinesis("UpdateStreamMode", StreamARN=ARN, **details)
        now = summary(kinesis)
        assert {"StreamModeDetails": now["StreamModeDetails"]} == details
        assert now["OpenShardCount"] == 1


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
    assert ended == {
        "Status": "DISABLED",
        "StartedAt": enabled["StartedAt"],
        "EndedAt": enabled["EarliestAllowedEndAt"],
    }


@pytest.mark.parametrize(
    ("details", "commits", "most"),
    [
        (ON_DEMAND, True, 50),
        (ON_DEMAND, False, 20),
        ({"ShardCount": 1}, True, 20),
    ],
    ids=["Advantage", "Standard", "provisioned"],
)
def test_a_stream_takes_50_consumers_with_on_demand_advantage(
    make_kinesis: Any, details: dict[str, Any], commits: bool, most: int
) -> None:
    kinesis = make_kinesis(evolve(Limits(), register_consumer_calls_per_second=None))
    kinesis("CreateStream", **details)
    if commits:
        commit(kinesis)
    for number in range(most):
        register(kinesis, f"c{number}")
    with pytest.raises(ApiError, match=f"LimitExceededException: .*{most} registered"):
        register(kinesis, "another")


def test_the_shards_of_provisioned_and_the_streams_of_on_demand_mode_count(kinesis: Any) -> None:
    kinesis("CreateStream", StreamName="on-demand", **ON_DEMAND)
    limits = kinesis("DescribeLimits")
    assert (limits["OpenShardCount"], limits["OnDemandStreamCount"]) == (1, 1)


async def test_monitoring_names_the_metrics_before_and_after(kinesis: Any) -> None:
    first = {"ShardLevelMetrics": ["OutgoingBytes", "IncomingBytes"]}
    answer = kinesis("EnableEnhancedMonitoring", **first)
    assert answer["CurrentShardLevelMetrics"] == ()
    assert answer["DesiredShardLevelMetrics"] == ("IncomingBytes", "OutgoingBytes")
    assert (
        len(
            kinesis("EnableEnhancedMonitoring", ShardLevelMetrics=["ALL"])[
                "DesiredShardLevelMetrics"
            ]
        )
        == 7
    )
    kinesis("DisableEnhancedMonitoring", **first)
    (described,) = kinesis("DescribeStream")["StreamDescription"]["EnhancedMonitoring"]
    assert len(described["ShardLevelMetrics"]) == 5
    for wrong in ([], ["Nothing"], [["IncomingBytes"]]):
        refused = code_of(kinesis, "EnableEnhancedMonitoring", ShardLevelMetrics=wrong)
        assert refused == "ValidationException"


def test_streams_and_consumers_have_tags_and_a_policy(kinesis: Any) -> None:
    for arn in (ARN, register(kinesis)["ConsumerARN"]):
        kinesis("TagResource", ResourceARN=arn, Tags={"a": "1", "b": "2"})
        kinesis("UntagResource", ResourceARN=arn, TagKeys=["a"])
        assert kinesis("ListTagsForResource", ResourceARN=arn) == {
            "Tags": [{"Key": "b", "Value": "2"}]
        }
        policy = '{"Version": "2012-10-17"}'
        kinesis("PutResourcePolicy", ResourceARN=arn, Policy=policy)
        assert kinesis("GetResourcePolicy", ResourceARN=arn) == {"Policy": policy}
        kinesis("DeleteResourcePolicy", ResourceARN=arn)
        assert code_of(kinesis, "DeleteResourcePolicy", ResourceARN=arn) == (
            "ResourceNotFoundException"
        )
    assert kinesis("ListTagsForStream")["Tags"] == [{"Key": "b", "Value": "2"}]


@pytest.mark.parametrize(
    ("operation", "fields", "code"),
    [
        ("TagResource", {"ResourceARN": f"{ARN}s"}, "ResourceNotFoundException"),
        ("TagResource", {"ResourceARN": ARN, "Tags": {"aws:a": ""}}, "InvalidArgumentException"),
        ("TagResource", {"ResourceARN": ARN, "Tags": {"a": "!"}}, "InvalidArgumentException"),
        ("AddTagsToStream", {"Tags": {str(n): "" for n in range(50)}}, "InvalidArgumentException"),
        ("PutResourcePolicy", {"ResourceARN": ARN, "Policy": "[]"}, "InvalidArgumentException"),
        ("StartStreamEncryption", KEY | {"EncryptionType": "NONE"}, "InvalidArgumentException"),
        ("StartStreamEncryption", {"EncryptionType": "KMS"}, "ValidationException"),
        ("UpdateAccountSettings", {}, "ValidationException"),
    ],
)
def test_a_wrong_setting_is_refused(
    kinesis: Any, operation: str, fields: dict[str, Any], code: str
) -> None:
    kinesis("AddTagsToStream", Tags={"first": "one"})
    assert code_of(kinesis, operation, **({"Tags": {"a": "b"}} | fields)) == code


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


@pytest.mark.parametrize(
    ("operation", "most"), [("DescribeAccountSettings", 5), ("DescribeLimits", 1)]
)
def test_settings_have_a_rate(make_kinesis: Any, operation: str, most: int) -> None:
    kinesis = make_kinesis(Limits.aws(control_plane=True))
    for _ in range(most):
        kinesis(operation)
    assert code_of(kinesis, operation) == "LimitExceededException"
