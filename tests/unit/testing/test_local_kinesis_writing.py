"""PutRecord and PutRecords: routing, sizes and partial failures."""

from __future__ import annotations

from typing import Any

import pybase64
import pytest

from kinesis_publishers.testing.local_kinesis import Fault, Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError
from kinesis_publishers.testing.local_kinesis.operations.shards import scale_shards

MIB = 1024 * 1024
LOW, HIGH = "0", str(2**128 - 1)


def entry(data: bytes = b"x", key: str = "key", **fields: str) -> dict[str, str]:
    return {"Data": pybase64.b64encode(data).decode(), "PartitionKey": key, **fields}


@pytest.fixture
def two_shards(make_kinesis: Any) -> Any:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(2)
    return kinesis


def test_a_stream_on_demand_takes_records_without_keys_while_it_distributes_them(
    kinesis: Any,
) -> None:
    """As AWS documents it: keys are kept, and ignored; back with its keys it wants them again."""
    kinesis("CreateStream", StreamName="auto", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    arn, strategy = kinesis.state.arn_of("auto"), "RecordDistributionStrategy"

    def update(value: str) -> str:
        kinesis("UpdateStreamRecordDistributionStrategy", StreamARN=arn, **{strategy: value})
        summary = kinesis("DescribeStreamSummary", StreamARN=arn)["StreamDescriptionSummary"]
        return str(summary[strategy])

    def put(**fields: Any) -> str:
        return str(kinesis("PutRecord", StreamARN=arn, Data="eA==", **fields)["ShardId"])

    assert update("AUTO") == "AUTO"
    keys = [{}, {"PartitionKey": "a"}, {"PartitionKey": "a", "ExplicitHashKey": LOW}, {}]
    assert len({put(**fields) for fields in keys}) == 4
    stored = kinesis.state.read("auto").values()
    assert sorted(str(one.partition_key) for shard in stored for one in shard) == [
        "None", "None", "a", "a",
    ]  # fmt: skip
    with pytest.raises(ApiError, match="SequenceNumberForOrdering"):
        put(SequenceNumberForOrdering="1")
    scale_shards(kinesis.state.find("auto"), 3, kinesis.state.now_ms())
    assert len({put() for _ in range(3)}) == 3
    assert update("USER_PARTITION_KEY") == "USER_PARTITION_KEY"
    assert put(PartitionKey="a") == put(PartitionKey="a")
    with pytest.raises(ApiError, match="partitionKey") as refused:
        put()
    assert refused.value.code == "ValidationException"


def test_a_provisioned_stream_has_no_strategy(kinesis: Any) -> None:
    summary = kinesis("DescribeStreamSummary")["StreamDescriptionSummary"]
    assert "RecordDistributionStrategy" not in summary
    arn, auto = kinesis.state.arn_of("orders"), {"RecordDistributionStrategy": "AUTO"}
    for refused in (
        lambda: kinesis("UpdateStreamRecordDistributionStrategy", StreamARN=arn, **auto),
        lambda: kinesis("CreateStream", StreamName="more", ShardCount=1, **auto),
    ):
        with pytest.raises(ApiError, match="ON_DEMAND") as error:
            refused()
        assert error.value.code == "InvalidArgumentException"


def test_only_the_entries_of_a_faulty_shard_fail(two_shards: Any) -> None:
    two_shards.state.faults.add(
        Fault("PutRecords", "throttle", shard_id="shardId-000000000001", times=1)
    )
    entries = [entry(ExplicitHashKey=key) for key in (LOW, HIGH, HIGH, LOW)]
    answer = two_shards("PutRecords", Records=entries)
    codes = [result.get("ErrorCode") for result in answer["Records"]]
    throttled = "ProvisionedThroughputExceededException"
    assert (answer["FailedRecordCount"], codes) == (2, [None, throttled, throttled, None])
    assert two_shards("PutRecords", Records=entries)["FailedRecordCount"] == 0


def test_a_rate_refuses_the_entries_beyond_it(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits(write_records_per_second=3, write_bytes_per_second=None))
    kinesis.create()
    answer = kinesis("PutRecords", Records=[entry()] * 5)
    assert answer["FailedRecordCount"] == 2
    assert [sorted(result) for result in answer["Records"]][2:4] == [
        ["SequenceNumber", "ShardId"],
        ["ErrorCode", "ErrorMessage"],
    ]
    assert len(kinesis.texts()) == 3


def test_one_malformed_entry_fails_the_whole_call(kinesis: Any) -> None:
    with pytest.raises(ApiError, match="SerializationException"):
        kinesis("PutRecords", Records=[entry(), {"Data": "?", "PartitionKey": "k"}])
    with pytest.raises(ApiError, match="SerializationException"):
        kinesis("PutRecords", Records=["?"])
    assert kinesis.texts() == []


def test_a_record_is_at_most_1_mib_with_its_key(two_shards: Any) -> None:
    two_shards.put(b"x" * (MIB - 3), "key")
    with pytest.raises(ApiError, match="ValidationException"):
        two_shards.put(b"x" * (MIB - 2), "key")


def test_a_stream_may_allow_records_of_10_mib(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis("CreateStream", ShardCount=1, MaxRecordSizeInKiB=10_240)
    kinesis.put(b"x" * (10 * MIB - 3), "key")
    (record,) = kinesis.read()["Records"]
    assert len(pybase64.b64decode(record["Data"])) == 10 * MIB - 3


def test_a_call_holds_500_records_and_10_mib(two_shards: Any) -> None:
    two_shards("PutRecords", Records=[entry()] * 500)
    for count in (0, 501):
        with pytest.raises(ApiError, match="ValidationException"):
            two_shards("PutRecords", Records=[entry()] * count)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        two_shards("PutRecords", Records=[entry(b"x" * (MIB - 3))] * 10 + [entry()])
