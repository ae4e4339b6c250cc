"""The typed configs: units, what they read, and the resolution of the region."""

from __future__ import annotations

from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError

from kinesis_publishers.assembly import with_region
from kinesis_publishers.config import (
    AssignmentConfig,
    AwsConfig,
    CheckpointConfig,
    DiscoveryConfig,
    DynamoDbCheckpointConfig,
    EndingPositionConfig,
    FanOutConfig,
    InitialPositionConfig,
    LeaseConfig,
    MetricsConfig,
    PendingConfig,
    PollingConfig,
    ProcessingConfig,
    ProducerConfig,
    Properties,
    RedisCheckpointConfig,
    RegistrationConfig,
    SourceConfig,
    SqlCheckpointConfig,
    SqliteCheckpointConfig,
    StreamsConfig,
    StreamSelector,
    SubscriptionHttpConfig,
    WatermarkConfig,
)
from kinesis_publishers.config.catalogue import all_options
from kinesis_publishers.errors import MissingOptionError
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers_spark.options import SparkConfig
from tests.unit.config.test_config_options import TEXTS

_MACHINE = "kinesis_publishers.aws.credentials.region_of_machine"
_ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/a.b-c_d"
_TYPED: tuple[Any, ...] = (
    StreamsConfig,
    InitialPositionConfig,
    EndingPositionConfig,
    AwsConfig,
    SourceConfig,
    PollingConfig,
    DiscoveryConfig,
    PendingConfig,
    ProcessingConfig,
    MetricsConfig,
    FanOutConfig,
    SubscriptionHttpConfig,
    RegistrationConfig,
    SparkConfig,
    WatermarkConfig,
    CheckpointConfig,
    SqliteCheckpointConfig,
    DynamoDbCheckpointConfig,
    AssignmentConfig,
    LeaseConfig,
    SqlCheckpointConfig,
    RedisCheckpointConfig,
    ProducerConfig,
)
_APPLICATION = {"kinesis.checkpoint.application": "billing"}
_DYNAMODB = {**_APPLICATION, "kinesis.checkpoint.store": "dynamodb"}
_SQL = {"kinesis.checkpoint.store": "sql", "kinesis.checkpoint.sql.url": "mysql://host/x"}
_REDIS = {"kinesis.checkpoint.store": "redis", "kinesis.checkpoint.redis.url": "redis://host"}
_LEASES = {**_APPLICATION, "kinesis.lease.enabled": True}
_CREDENTIALS = "aws.credentials.provider"
_ROLE = {
    _CREDENTIALS: "ASSUME_ROLE",
    f"{_CREDENTIALS}.role.arn": "arn:aws:iam::123456789012:role/r",
}


def _at_timestamp(key: str, timestamp: str) -> dict[str, str]:
    return {f"kinesis.stream.{key}": "AT_TIMESTAMP", f"kinesis.stream.{key}.timestamp": timestamp}


# The options with which those that begin so matter; of several, the last one counts.
_NEEDED: dict[str, dict[str, Any]] = {
    "stream.initpos.timestamp": _at_timestamp("initpos", "6"),
    "stream.initpos.timestamp.format": _at_timestamp("initpos", "1980"),
    "stream.endpos": {**_at_timestamp("endpos", "6"), "kinesis.stream.endpos": "LATEST"},
    "stream.endpos.timestamp": _at_timestamp("endpos", "6"),
    "stream.endpos.timestamp.format": _at_timestamp("endpos", "1980"),
    "stream.endpos.shards": {},
    "shard.limits": {"aws.endpoint": "http://localhost"},
    "checkpoint": _APPLICATION,
    "checkpoint.dynamodb": _DYNAMODB,
    "checkpoint.dynamodb.readcapacity": {
        **_DYNAMODB,
        "kinesis.checkpoint.dynamodb.billingmode": "PROVISIONED",
    },
    "checkpoint.sql.": {**_APPLICATION, **_SQL},
    "checkpoint.redis.": {**_APPLICATION, **_REDIS},
    "lease": _LEASES,
    "lease.enabled": _APPLICATION,
    "lease.format": {**_LEASES, "kinesis.checkpoint.store": "dynamodb"},
    f"{_CREDENTIALS}.basic": {
        f"{_CREDENTIALS}.basic.accesskeyid": "A",
        f"{_CREDENTIALS}.basic.secretkey": "S",
    },
    f"{_CREDENTIALS}.profile": {_CREDENTIALS: "PROFILE"},
    f"{_CREDENTIALS}.role": _ROLE,
    f"{_CREDENTIALS}.webIdentityToken": {_CREDENTIALS: "WEB_IDENTITY_TOKEN"},
    f"{_CREDENTIALS}.custom": {_CREDENTIALS: "CUSTOM", f"{_CREDENTIALS}.custom.class": "c:D"},
}
_NEEDED["checkpoint.dynamodb.writecapacity"] = _NEEDED["checkpoint.dynamodb.readcapacity"]
_SHARD_END = '{"shardId-000000000000": {"iteratorType": "SHARD_END"}}'
# Where the text of the specification's table means the default, or needs even more.
_OTHER_VALUES = {
    "stream.initpos.timestamp.format": "yyyy",
    "stream.initpos.shards": _SHARD_END,
    "stream.endpos": "AT_TIMESTAMP",
    "stream.endpos.timestamp.format": "yyyy",
    "stream.endpos.shards": _SHARD_END,
    "shard.limits": "off",
    "shard.assigner": "a.b:C",
    "watermark.assigner": "a.b:C",
    "shards": "a:shardId-1",
    "shard.subscribetoshard.backoff.base": "77",
    "list.shards.backoff.base": "77",
    "aggregation.on-invalid": "fail",
    "lease.format": "own",
    _CREDENTIALS: "ENV_VAR",
}


def _read_all(values: dict[str, Any]) -> list[Any]:
    properties = Properties.parse({"kinesis.streams": "a", **values})
    typed = [config.from_properties(properties) for config in _TYPED]
    # The assembly asks for this one, from which it makes a class.
    return [*typed, properties.get(SourceConfig.record_publisher)]


@pytest.mark.parametrize("option", all_options(), ids=lambda option: option.key)
def test_every_option_changes_a_typed_config(option: Any) -> None:
    value, needed = _OTHER_VALUES.get(option.key, TEXTS[option.key]), dict[str, Any]()
    for prefix, options in _NEEDED.items():
        if option.key.startswith(prefix):
            needed = options
    assert _read_all({**needed, option.full_key: value}) != _read_all(needed)


def test_polling_is_read_in_seconds() -> None:
    properties = Properties.parse(
        {
            "flink.shard.getrecords.intervalmillis": "1s",
            "flink.shard.getrecords.backoff.base": 50,
            "flink.shard.adaptivereads": "true",
        },
        complete=False,
    )
    assert PollingConfig.from_properties(properties) == PollingConfig(
        max_records=10_000,
        interval_seconds=1.0,
        adaptive_reads=True,
        get_records_retry=_policy(max_retries=3, base_seconds=0.05, max_seconds=1.0),
        get_iterator_retry=_policy(max_retries=3, base_seconds=0.3, max_seconds=1.0),
    )


def _policy(*, outage: float = 300.0, start: float | None = 30.0, **numbers: float) -> RetryPolicy:
    return RetryPolicy(**numbers, exponent=1.5, outage_seconds=outage, start_seconds=start)


_NUMBER = {"flink.shard.getrecords.maxretries": 7}


@pytest.mark.parametrize(
    ("given", "retries", "outage", "start"),
    [
        ({}, 3, 300.0, 30.0),
        (_NUMBER, 7, 0.0, None),
        ({"kinesis.retry.outagemillis": "1h"}, 3, 3600.0, None),
        ({"kinesis.retry.outagemillis": 0}, 3, 0.0, None),
        ({**_NUMBER, "kinesis.retry.outagemillis": 500}, 7, 0.5, None),
    ],
    ids=["default", "number", "outage", "flink", "both"],
)
def test_calls_are_repeated_by_time_unless_the_number_is_given(
    given: dict[str, str | int], retries: int, outage: float, start: float | None
) -> None:
    config = PollingConfig.from_properties(Properties.parse(given, complete=False))
    assert config.get_records_retry == _policy(
        max_retries=retries, base_seconds=0.3, max_seconds=1.0, outage=outage, start=start
    )
    assert config.get_records_retry.option == "kinesis.shard.getrecords.maxretries"


def test_streams_are_names_and_arns() -> None:
    properties = Properties.parse({"kinesis.streams": f" orders , {_ARN}"})
    streams = StreamsConfig.from_properties(properties)
    assert streams.streams == (StreamSelector("orders"), StreamSelector("a.b-c_d", _ARN))


def test_streams_that_are_missing_from_incomplete_properties_are_an_error() -> None:
    with pytest.raises(MissingOptionError, match=r"kinesis\.streams"):
        StreamsConfig.from_properties(Properties.parse({}, complete=False))


def test_a_typed_config_cannot_be_changed() -> None:
    config = PendingConfig.from_properties(Properties.parse({}, complete=False))
    with pytest.raises(FrozenInstanceError):
        config.max_records = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("configured", "stream", "chain", "region"),
    [
        ("eu-west-1", _ARN, "us-east-1", "eu-west-1"),
        (None, _ARN, "us-east-1", "cn-north-1"),
        (None, "orders", "us-east-1", "us-east-1"),
    ],
)
def test_the_region_is_the_key_s_else_the_arn_s_else_the_chain_s(
    configured: str | None, stream: str, chain: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_MACHINE, lambda _: chain)
    # Behind an endpoint, the region may contradict the ARN.
    written = {"aws.region": configured, "aws.endpoint": "http://here"} if configured else {}
    properties = Properties.parse({"kinesis.streams": stream, **written})
    assert with_region(properties).get(AwsConfig.region) == region


def test_a_missing_region_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_MACHINE, lambda _: None)
    with pytest.raises(MissingOptionError, match=r"aws\.region.*AWS_REGION"):
        with_region(Properties.parse({"kinesis.streams": "a"}))
