"""Every limit by the manual clock, and that each can be switched off."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve, fields

from kinesis_publishers.testing.local_kinesis import Limits
from kinesis_publishers.testing.local_kinesis.answers import ApiError

MIB = 1024 * 1024
THROTTLED = "ProvisionedThroughputExceededException: Rate exceeded for shard shardId-000000000000"


@pytest.fixture
def limited(make_kinesis: Any) -> Any:
    """AWS's limits; writes and the control plane included; one shard."""
    kinesis = make_kinesis(Limits.aws(writes=True, control_plane=True))
    kinesis.create()
    return kinesis


def lift(kinesis: Any, **changes: Any) -> None:
    kinesis.state.limits = evolve(kinesis.state.limits, **changes)


async def test_a_period_of_200_ms_is_never_refused(limited: Any) -> None:
    iterator = limited.iterator()
    for _ in range(25):
        limited.read(iterator)
        await limited.clock.advance(0.2)


async def test_a_refused_call_costs_nothing(limited: Any) -> None:
    iterator = limited.iterator()
    for _ in range(5):
        limited.read(iterator)
    await limited.clock.advance(0.9)
    for _ in range(5):
        with pytest.raises(ApiError, match=THROTTLED):
            limited.read(iterator)
    await limited.clock.advance(0.1)
    limited.read(iterator)


def test_shards_are_limited_each_for_itself(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(2)
    iterators = [kinesis.iterator(shard=shard) for shard in (0, 1)]
    for _ in range(5):
        for iterator in iterators:
            kinesis.read(iterator)


async def test_a_shard_gives_2_mib_a_second(limited: Any) -> None:
    for _ in range(3):
        limited.put(b"x" * (MIB - 3), "key")
        await limited.clock.advance(1)
    iterator = limited.iterator()
    limited.read(iterator, Limit=2)
    with pytest.raises(ApiError, match=THROTTLED):
        limited.read(iterator, Limit=1)
    await limited.clock.advance(1)
    limited.read(iterator, Limit=1)


async def test_after_10_mib_a_shard_refuses_for_five_seconds(limited: Any) -> None:
    for _ in range(11):
        limited.put(b"x" * (MIB - 3), "key")
        await limited.clock.advance(1)
    answer = limited.read()
    assert len(answer["Records"]) == 10
    iterator = answer["NextShardIterator"]
    await limited.clock.advance(4.99)
    with pytest.raises(ApiError, match=THROTTLED):
        limited.read(iterator)
    await limited.clock.advance(0.01)
    assert len(limited.read(iterator)["Records"]) == 1


def test_an_answer_holds_10_000_records(make_kinesis: Any) -> None:
    kinesis = make_kinesis()
    kinesis.create()
    for _ in range(21):
        entries = [{"Data": "", "PartitionKey": "k"}] * 500
        kinesis("PutRecords", Records=entries)
    assert len(kinesis.read()["Records"]) == 10_000
    for limit in (0, 10_001):
        with pytest.raises(ApiError, match="ValidationException"):
            kinesis.read(Limit=limit)
    lift(kinesis, get_records_max_records=5)
    assert len(kinesis.read()["Records"]) == len(kinesis.read(Limit=100)["Records"]) == 5
    assert len(kinesis.read(Limit=3)["Records"]) == 3
    lift(kinesis, get_records_max_records=None)
    assert len(kinesis.read()["Records"]) == 10_500


async def test_an_iterator_lives_five_minutes(limited: Any) -> None:
    iterator = limited.iterator()
    await limited.clock.advance(300)
    following = limited.read(iterator)["NextShardIterator"]
    await limited.clock.advance(0.001)
    with pytest.raises(ApiError, match="ExpiredIteratorException: Iterator expired"):
        limited.read(iterator)
    limited.read(following)
    await limited.clock.advance(3600)
    lift(limited, iterator_lifetime_seconds=None)
    limited.read(iterator)


async def test_a_shard_takes_1_mib_a_second(limited: Any) -> None:
    limited.put(b"x" * (MIB - 3), "key")
    with pytest.raises(ApiError, match=THROTTLED):
        limited.put("x")
    await limited.clock.advance(1)
    limited.put("x")


async def test_a_large_record_passes_alone_and_is_made_up_for(limited: Any) -> None:
    limited("CreateStream", StreamName="large", ShardCount=1, MaxRecordSizeInKiB=10_240)
    limited.put("x", StreamName="large")
    with pytest.raises(ApiError, match=THROTTLED):
        limited.put(b"x" * 3 * MIB, StreamName="large")
    await limited.clock.advance(1)
    limited.put(b"x" * 3 * MIB, StreamName="large")
    await limited.clock.advance(2.9)
    with pytest.raises(ApiError, match=THROTTLED):
        limited.put("x", StreamName="large")
    await limited.clock.advance(0.2)
    limited.put("x", StreamName="large")


async def test_a_shard_takes_1000_records_a_second(limited: Any) -> None:
    entries = [{"Data": "", "PartitionKey": "k"}] * 500
    failures = [limited("PutRecords", Records=entries)["FailedRecordCount"] for _ in range(3)]
    assert failures == [0, 0, 500]
    await limited.clock.advance(1)
    assert limited("PutRecords", Records=entries)["FailedRecordCount"] == 0


def test_one_scaling_at_most_doubles_or_halves(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.aws())
    kinesis.create(4)
    for target in (9, 1):
        with pytest.raises(ApiError, match="UpdateShardCount cannot scale"):
            kinesis("UpdateShardCount", TargetShardCount=target, ScalingType="UNIFORM_SCALING")


def test_switched_off_no_rate_holds(make_kinesis: Any) -> None:
    kinesis = make_kinesis(Limits.off())
    kinesis.create()
    for _ in range(50):
        kinesis.put(b"x" * MIB)
        kinesis.read()
        kinesis("DescribeStream")
        kinesis("ListStreams")
    kinesis("UpdateShardCount", TargetShardCount=10, ScalingType="UNIFORM_SCALING")


def test_off_keeps_only_what_makes_pages() -> None:
    off = Limits.off()
    kept = {field.name for field in fields(Limits) if getattr(off, field.name) is not None}
    assert kept == {
        "get_records_max_bytes",
        "get_records_max_records",
        "list_shards_max_results",
        "event_max_bytes",
        "event_max_records",
    }
