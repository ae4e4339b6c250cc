"""The typed configs: units, what they read, and the resolution of the region."""

from __future__ import annotations

from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError

from kinesis_publishers.config import (
    AggregationMode,
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
    Planner,
    PollingConfig,
    ProcessingConfig,
    ProducerConfig,
    Properties,
    RedisCheckpointConfig,
    RegistrationConfig,
    SourceConfig,
    SparkConfig,
    SqlCheckpointConfig,
    SqliteCheckpointConfig,
    StreamsConfig,
    StreamSelector,
    SubscriptionHttpConfig,
    resolve_region,
)
from kinesis_publishers.config.catalogue import ALL_OPTIONS
from kinesis_publishers.errors import MissingOptionError
from kinesis_publishers.retry import RetryPolicy

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
    CheckpointConfig,
    SqliteCheckpointConfig,
    DynamoDbCheckpointConfig,
    AssignmentConfig,
    LeaseConfig,
    SqlCheckpointConfig,
    RedisCheckpointConfig,
    ProducerConfig,
)
_ROLE = {
    "aws.credentials.provider": "ASSUME_ROLE",
    "aws.credentials.provider.role.arn": "arn:aws:iam::123456789012:role/r",
}
_APPLICATION = {"kinesis.checkpoint.application": "billing"}
_DYNAMODB = {**_APPLICATION, "kinesis.checkpoint.store": "dynamodb"}
_LEASES = {**_APPLICATION, "kinesis.lease.enabled": True}
_PROVISIONED = {**_DYNAMODB, "kinesis.checkpoint.dynamodb.billingmode": "PROVISIONED"}
_SQL = {
    **_APPLICATION,
    "kinesis.checkpoint.store": "sql",
    "kinesis.checkpoint.sql.url": "sqlite:////x",
}
_REDIS = {
    **_APPLICATION,
    "kinesis.checkpoint.store": "redis",
    "kinesis.checkpoint.redis.url": "redis://host",
}
_NEEDED = {
    "lease": _LEASES,
    "basic": {
        "aws.credentials.provider.basic.accesskeyid": "A",
        "aws.credentials.provider.basic.secretkey": "S",
    },
    "profile": {"aws.credentials.provider": "PROFILE"},
    "role": _ROLE,
    "checkpoint": _APPLICATION,
    "webIdentityToken": {"aws.credentials.provider": "WEB_IDENTITY_TOKEN"},
}


# A value that is not the default, and the options with which it matters.
_AT_TIMESTAMP = {"kinesis.stream.initpos": "AT_TIMESTAMP"}
_ENDS_AT_TIMESTAMP = {"kinesis.stream.endpos": "AT_TIMESTAMP"}
_OTHER_VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "streams": ("b", {}),
    "stream.recordpublisher": ("a.b:C", {}),
    "stream.initpos": ("TRIM_HORIZON", {}),
    "stream.initpos.timestamp": ("5", {**_AT_TIMESTAMP, "kinesis.stream.initpos.timestamp": "6"}),
    "stream.initpos.timestamp.format": (
        "yyyy",
        {**_AT_TIMESTAMP, "kinesis.stream.initpos.timestamp": "1980"},
    ),
    "stream.initpos.shards": ('{"shardId-000000000000": {"iteratorType": "SHARD_END"}}', {}),
    "stream.endpos": (
        "AT_TIMESTAMP",
        {"kinesis.stream.endpos": "LATEST", "kinesis.stream.endpos.timestamp": "6"},
    ),
    "stream.endpos.timestamp": (
        "5",
        {**_ENDS_AT_TIMESTAMP, "kinesis.stream.endpos.timestamp": "6"},
    ),
    "stream.endpos.timestamp.format": (
        "yyyy",
        {**_ENDS_AT_TIMESTAMP, "kinesis.stream.endpos.timestamp": "1980"},
    ),
    "stream.endpos.shards": ('{"shardId-000000000000": {"iteratorType": "SHARD_END"}}', {}),
    "shard.limits": ("off", {"aws.endpoint": "http://localhost"}),
    "shard.order": ("none", {}),
    "aggregation": ("off", {}),
    "aggregation.on-invalid": ("fail", {}),
    "failondataloss": (False, {}),
    "shard.adaptivereads": (True, {}),
    "shard.getrecords.encoding": ("json", {}),
    "stream.efo.http-version": ("1.1", {}),
    "stream.efo.http2-client": ("pyreqwest", {}),
    "stream.efo.registration": ("EAGER", {}),
    "stream.efo.deregister": ("never", {}),
    "metrics.sinks": ("none", {}),
    "metrics.level": ("stream", {}),
    "metrics.summary.intervalmillis": ("10s", {}),
    "metrics.cloudwatch.namespace": ("billing", {}),
    "metrics.cloudwatch.intervalmillis": ("10s", {}),
    "metrics.cloudwatch.endpoint": ("http://localhost", {}),
    "spark.planner": ("ranges", {}),
    "spark.alignment": ("none", {}),
    "checkpoint.application": ("billing", {}),
    "checkpoint.dynamodb.table": ("table", _DYNAMODB),
    "checkpoint.dynamodb.endpoint": ("http://localhost", _DYNAMODB),
    "checkpoint.dynamodb.createtable": (False, _DYNAMODB),
    "shard.assigner": ("a.b:C", {}),
    "shards": ("a:shardId-1", {}),
    "lease.enabled": (True, _APPLICATION),
    "lease.failovermillis": ("30s", _LEASES),
    "lease.format": ("own", {**_LEASES, "kinesis.checkpoint.store": "dynamodb"}),
    "checkpoint.dynamodb.billingmode": ("PROVISIONED", _DYNAMODB),
    "checkpoint.dynamodb.readcapacity": (5, _PROVISIONED),
    "checkpoint.dynamodb.writecapacity": (5, _PROVISIONED),
    "checkpoint.dynamodb.tags": ("team=data", _DYNAMODB),
    "checkpoint.sql.url": ("mysql://host/database", _SQL),
    "checkpoint.sql.table": ("table", _SQL),
    "checkpoint.sql.createtable": (False, _SQL),
    "producer.buffer.whenfull": ("fail", {}),
    "producer.ordering": ("key", {}),
    "producer.aggregation": (True, {}),
    "producer.ratelimit.adaptive": (False, {}),
    "producer.failonerror": (True, {}),
    "producer.partitioner": ("a.b:C", {}),
    "checkpoint.redis.url": ("rediss://host", _REDIS),
    "checkpoint.redis.prefix": ("prefix", _REDIS),
    "spark.includemetadata": (True, {}),
    "spark.includebatchmarker": (True, {}),
    "aws.region": ("eu-west-1", {}),
    "aws.endpoint": ("http://localhost", {}),
    "aws.credentials.provider": ("ENV_VAR", {}),
    "aws.credentials.provider.custom.class": (
        "a:B",
        {"aws.credentials.provider": "CUSTOM", "aws.credentials.provider.custom.class": "c:D"},
    ),
    "aws.credentials.provider.role.arn": ("arn:aws:iam::123456789012:role/other", _ROLE),
    "aws.credentials.provider.role.stsEndpoint": ("http://localhost", _ROLE),
    "aws.credentials.provider.role.provider": ("ENV_VAR", _ROLE),
}


def _read_all(values: dict[str, Any]) -> list[Any]:
    properties = Properties.parse({"kinesis.streams": "a", **values})
    typed = [config.from_properties(properties) for config in _TYPED]
    # The assembly asks for this one, from which it makes a class.
    return [*typed, properties.get(SourceConfig.record_publisher)]


@pytest.mark.parametrize(
    "option",
    [option for option in ALL_OPTIONS if not option.unread],
    ids=lambda option: option.key,
)
def test_every_implemented_option_changes_a_typed_config(option: Any) -> None:
    group = option.key.removeprefix("aws.credentials.provider.").partition(".")[0]
    value, needed = _OTHER_VALUES.get(option.key, ("77", _NEEDED.get(group, {})))
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


def test_the_defaults_of_the_other_configs() -> None:
    properties = Properties.parse({}, complete=False)
    assert PendingConfig.from_properties(properties) == PendingConfig(
        max_records=200_000, max_bytes=64 * 1024 * 1024
    )
    assert DiscoveryConfig.from_properties(properties) == DiscoveryConfig(
        interval_seconds=10.0,
        list_shards_retry=_policy(max_retries=10, base_seconds=1.0, max_seconds=5.0),
        describe_retry=_policy(max_retries=50, base_seconds=2.0, max_seconds=5.0),
    )
    assert SparkConfig.from_properties(properties) == SparkConfig(
        planner=Planner.AUTO,
        parallelism=None,
        max_records_per_trigger=None,
        max_bytes_per_trigger=None,
        include_metadata=False,
    )
    assert SourceConfig.from_properties(properties) == SourceConfig(
        aggregation=AggregationMode.AUTO,
        fail_on_data_loss=True,
    )
    assert AwsConfig.from_properties(properties) == AwsConfig()
    assert InitialPositionConfig.from_properties(properties) == InitialPositionConfig()


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
    configured: str | None, stream: str, chain: str, region: str
) -> None:
    streams = [StreamSelector.parse(stream)]
    assert resolve_region(AwsConfig(region=configured), streams, lambda: chain) == region


def test_a_missing_region_says_what_to_set() -> None:
    with pytest.raises(MissingOptionError, match=r"aws\.region.*AWS_REGION"):
        resolve_region(AwsConfig(), [StreamSelector("a")], lambda: None)
