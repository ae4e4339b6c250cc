"""Options that are fine one by one and cannot hold together."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.config import Properties
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers_spark.aliases import parse_options

_SHARDS = (
    '{"shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "7"}}'
)


def _problems(options: dict[str, Any]) -> list[str]:
    try:
        parse_options({"streamName": "orders"} | options, allow=["my.module:Factory"])
    except ConfigErrors as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_timestamp_without_a_position_is_not_ignored() -> None:
    timestamp = {"kinesis.stream.initpos.timestamp": "2024-05-31T13:45:30Z"}
    (problem,) = _problems(timestamp)
    assert "set kinesis.stream.initpos to AT_TIMESTAMP" in problem
    assert _problems(timestamp | {"kinesis.stream.initpos": "AT_TIMESTAMP"}) == []


def test_a_leftover_timestamp_beside_a_chosen_position_is_fine_as_in_flink() -> None:
    leftover = {"flink.stream.initpos": "LATEST", "flink.stream.initpos.timestamp": "1459799926"}
    assert _problems(leftover) == []


def test_positions_by_shard_belong_to_one_stream() -> None:
    (problem,) = _problems({"streamName": "orders,returns", "startingPosition": _SHARDS})
    assert problem.startswith("startingPosition has positions by shard id")
    (problem,) = _problems({"streamName": "orders,returns", "endingOffsets": _SHARDS})
    assert problem.startswith("endingOffsets has positions by shard id")
    assert _problems({"startingPosition": _SHARDS}) == []


_ORDERS_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def test_positions_of_several_streams_stand_below_their_names() -> None:
    streams = {"streamName": f"{_ORDERS_ARN},returns"}
    for name in ("orders", _ORDERS_ARN):
        text = f'{{"{name}": {_SHARDS}, "returns": "LATEST"}}'
        assert _problems({**streams, "startingPosition": text}) == []
    problem, _ = _problems({**streams, "startingPosition": '{"order": "LATEST", "x": "LATEST"}'})
    assert problem == (
        "startingPosition has positions of order, which kinesis.streams does not name so"
    )


@pytest.mark.parametrize(
    "of_stream",
    [
        '"SHARD_END"',
        "5",
        '{"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "5"}',
        '{"clicks": {"iteratorType": "LATEST"}}',
        '{"shardId-1": "LATEST"}',
    ],
)
def test_what_is_no_position_of_a_stream_or_its_shards_is_refused(of_stream: str) -> None:
    (problem,) = _problems({"startingPosition": f'{{"orders": {of_stream}}}'})
    assert "startingPosition: got" in problem
    assert "expected JSON such as" in problem


_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_FAR_ARN = "arn:aws:kinesis:ap-south-1:123456789012:stream/returns"


@pytest.mark.parametrize("key", ["region", "aws.region"])
def test_a_region_that_is_not_the_arn_s_is_an_error_that_names_both(key: str) -> None:
    (problem,) = _problems({"streamName": _ARN, key: "eu-west-1"})
    assert problem.startswith(f"{key} is eu-west-1")
    assert f"us-east-1 ({_ARN})" in problem
    assert _problems({"streamName": _ARN, key: "US-East-1"}) == []


def test_a_region_beside_arns_of_several_regions_names_those_that_differ() -> None:
    streams = {"streamName": f"{_ARN},{_FAR_ARN}"}
    (problem,) = _problems(streams | {"region": "us-east-1"})
    assert _FAR_ARN in problem
    assert _ARN not in problem


def test_another_server_s_regions_are_its_own_affair() -> None:
    options = {"streamName": f"{_ARN},{_FAR_ARN}", "region": "eu-west-1"}
    assert _problems(options | {"aws.endpoint": "http://localhost:4566"}) == []


@pytest.mark.parametrize(
    "endpoint",
    [
        {},
        {"aws.endpoint": "https://kinesis.us-east-1.amazonaws.com"},
        {"aws.endpoint": "https://KINESIS.cn-north-1.amazonaws.com.cn./"},
        {"aws.endpoint": "https://vpce-1.kinesis.eu-west-1.vpce.amazonaws.com"},
        {"aws.endpoint": "https://kinesis.us-east-1.api.aws"},
        {"aws.endpoint": "https://kinesis.us-iso-east-1.c2s.ic.gov"},
    ],
)
def test_the_limits_of_aws_cannot_be_switched_off(endpoint: dict[str, str]) -> None:
    (problem,) = _problems({"kinesis.shard.limits": "off", **endpoint})
    assert "kinesis.shard.limits is off, but AWS limits the calls to each shard" in problem


def test_a_server_without_limits_may_be_called_without_them() -> None:
    options = {"kinesis.shard.limits": "off"}
    assert _problems(options | {"aws.endpoint": "http://localhost:4566"}) == []


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_both_publishers_go_with_both_planners(publisher: str) -> None:
    options = {"consumerMode": publisher, "consumerName": "app"}
    for planner in ("prefetch", "ranges"):
        assert _problems(options | {"kinesis.spark.planner": planner}) == []


def test_a_publisher_of_the_user_s_own_needs_the_prefetch_planner() -> None:
    own = {"kinesis.stream.recordpublisher": "my.module:Factory"}
    (problem,) = _problems(own | {"kinesis.spark.planner": "ranges"})
    assert "my.module:Factory" in problem
    assert "use prefetch" in problem
    assert _problems(own) == []


@pytest.mark.parametrize(
    "options",
    [
        {"streams": "returns"},
        {"streamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"},
        {"startingPosition": "earliest", "kinesis.stream.initpos": "LATEST"},
        {
            "startingPosition": "AT_TIMESTAMP 2024-05-31T00:00Z",
            "flink.stream.initpos": "TRIM_HORIZON",
        },
        {"maxRecordsPerTrigger": "10", "maxOffsetsPerTrigger": "11"},
        {"kinesis.shard.adaptivereads": "true", "flink.shard.adaptivereads": "false"},
        {"consumerMode": "polling", "consumerType": "SubscribeToShard", "consumerName": "app"},
        {
            "roleArn": "arn:aws:iam::123456789012:role/a",
            "stsRoleArn": "arn:aws:iam::123456789012:role/b",
        },
    ],
)
def test_two_names_of_one_option_with_two_values_are_both_named(options: dict[str, str]) -> None:
    (problem,) = _problems(options)
    assert "mean the same option and differ: keep one" in problem
    assert next(iter(options)).lower() in problem.lower()


def test_contradictions_are_reported_together_with_everything_else() -> None:
    problems = _problems(
        {
            "streamName": "orders,returns",
            "startingPosition": _SHARDS,
            "kinesis.spark.planner": "ranges",
            "kinesis.stream.recordpublisher": "my.module:Factory",
            "kinesis.stream.initpos.timestamp": "1459799926",
            "kinesis.metadataPath": "/tmp",
            "kinesis.unheardof": "1",
        }
    )
    assert len(problems) == 5


def test_a_first_failure_is_not_final_for_what_waits_on_disk() -> None:
    options = {"kinesis.producer.spill.path": "/tmp", "kinesis.producer.FailIfThrottled": "true"}
    with pytest.raises(ConfigErrors) as raised:
        Properties.parse({"kinesis.streams": "orders"} | options)
    (problem,) = raised.value.problems
    assert "spill.path is for kinesis.producer.FailIfThrottled = false" in str(problem)
