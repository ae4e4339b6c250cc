"""The options of users who come from another connector."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.config import (
    AwsConfig,
    CredentialsProvider,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
    SourceConfig,
)
from kinesis_publishers.errors import ConfigErrors, UnknownOptionError
from kinesis_publishers_spark.aliases import ADVICE, ALIASES, parse_options

_ROLE = "arn:aws:iam::123456789012:role/reader"
_CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1700000000"

# The options of a whole query of each connector, and the properties that mean the same.
_QUERIES = {
    "awslabs": (
        {
            "kinesis.region": "eu-west-1",
            "kinesis.streamName": "orders",
            "kinesis.endpointUrl": "https://kinesis.eu-west-1.amazonaws.com",
            "kinesis.consumerType": "GetRecords",
            "kinesis.startingPosition": "TRIM_HORIZON",
            "kinesis.failOnDataLoss": "true",
            "kinesis.describeShardInterval": "5s",
            "kinesis.getRecords.numberOfRecordsPerFetch": "5000",
            "kinesis.getRecords.fetchIntervalMs": "500",
            "kinesis.subscribeToShard.timeoutSec": "30",
            "kinesis.subscribeToShard.maxRetries": "7",
            "kinesis.stsRoleArn": _ROLE,
            "kinesis.stsSessionName": "spark",
        },
        {
            "aws.region": "eu-west-1",
            "kinesis.streams": "orders",
            "aws.endpoint": "https://kinesis.eu-west-1.amazonaws.com",
            "kinesis.stream.recordpublisher": "POLLING",
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.failondataloss": "true",
            "kinesis.shard.discovery.intervalmillis": "5000",
            "kinesis.shard.getrecords.maxrecordcount": "5000",
            "kinesis.shard.getrecords.intervalmillis": "500",
            "kinesis.shard.subscribetoshard.timeout": "30",
            "kinesis.shard.subscribetoshard.maxretries": "7",
            "aws.credentials.provider": "ASSUME_ROLE",
            "aws.credentials.provider.role.arn": _ROLE,
            "aws.credentials.provider.role.sessionName": "spark",
        },
    ),
    "databricks": (
        {
            "streamName": "orders,returns",
            "region": "eu-west-1",
            "initialPosition": "earliest",
            "consumerMode": "efo",
            "consumerName": "app",
            "requireConsumerDeregistration": "false",
            "minFetchPeriod": "400ms",
            "maxRecordsPerFetch": "10000",
            "shardFetchInterval": "1s",
            "maxPartitions": "16",
            "awsAccessKey": "AKIA",
            "awsSecretKey": "secret",
        },
        {
            "kinesis.streams": "orders,returns",
            "aws.region": "eu-west-1",
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.consumername": "app",
            "kinesis.stream.efo.deregister": "never",
            "kinesis.shard.getrecords.intervalmillis": "400",
            "kinesis.shard.getrecords.maxrecordcount": "10000",
            "kinesis.shard.discovery.intervalmillis": "1000",
            "kinesis.spark.parallelism": "16",
            "aws.credentials.provider.basic.accesskeyid": "AKIA",
            "aws.credentials.provider.basic.secretkey": "secret",
        },
    ),
    "glue": (
        {
            "streamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
            "startingPosition": "2023-04-04T08:00:00Z",
            "maxRecordPerRead": "1000",
            "idleTimeBetweenReadsInMs": "300",
            "describeShardInterval": "1s",
            "awsSTSRoleARN": _ROLE,
            "awsSTSSessionName": "spark",
            "awsSTSEndpoint": "https://sts.eu-west-1.amazonaws.com",
            "failOnDataLoss": "false",
        },
        {
            "kinesis.streams": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
            "kinesis.stream.initpos": "AT_TIMESTAMP",
            "kinesis.stream.initpos.timestamp": "2023-04-04T08:00:00Z",
            "kinesis.shard.getrecords.maxrecordcount": "1000",
            "kinesis.shard.getrecords.intervalmillis": "300",
            "kinesis.shard.discovery.intervalmillis": "1000",
            "aws.credentials.provider": "ASSUME_ROLE",
            "aws.credentials.provider.role.arn": _ROLE,
            "aws.credentials.provider.role.sessionName": "spark",
            "aws.credentials.provider.role.stsEndpoint": "https://sts.eu-west-1.amazonaws.com",
            "kinesis.failondataloss": "false",
        },
    ),
    "qubole": (
        {
            "streamName": "orders",
            "endpointUrl": "https://kinesis.us-east-1.amazonaws.com",
            "startingPosition": "LATEST",
            "kinesis.executor.maxRecordPerRead": "1000",
            "kinesis.client.describeShardInterval": "1s",
            "awsAccessKeyId": "AKIA",
            "awsSecretKey": "secret",
        },
        {
            "kinesis.streams": "orders",
            "aws.endpoint": "https://kinesis.us-east-1.amazonaws.com",
            "aws.region": "us-east-1",
            "kinesis.stream.initpos": "LATEST",
            "kinesis.shard.getrecords.maxrecordcount": "1000",
            "kinesis.shard.discovery.intervalmillis": "1000",
            "aws.credentials.provider.basic.accesskeyid": "AKIA",
            "aws.credentials.provider.basic.secretkey": "secret",
        },
    ),
    "kafka": (
        {
            "subscribe": "orders,returns",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1000",
            "failOnDataLoss": "false",
        },
        {
            "kinesis.streams": "orders,returns",
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.spark.maxrecordspertrigger": "1000",
            "kinesis.failondataloss": "false",
        },
    ),
}


def _parse(options: dict[str, Any]) -> Properties:
    return parse_options(options, complete=False)


@pytest.mark.parametrize("connector", _QUERIES)
@pytest.mark.parametrize("lower", [False, True], ids=["as written", "as Spark gives them"])
def test_the_options_of_another_connector_mean_what_they_meant(connector: str, lower: bool) -> None:
    options, properties = _QUERIES[connector]
    written = {key.lower() if lower else key: value for key, value in options.items()}
    assert _parse(written) == Properties.parse(properties)


@pytest.mark.parametrize("name", ADVICE)
@pytest.mark.parametrize("spell", ["{}", "kinesis.{}"])
@pytest.mark.parametrize("lower", [False, True])
def test_an_option_without_counterpart_says_what_to_do(name: str, spell: str, lower: bool) -> None:
    key = spell.format(name.lower() if lower else name)
    with pytest.raises(ConfigErrors) as caught:
        _parse({key: "1"})
    (problem,) = caught.value.problems
    assert isinstance(problem, UnknownOptionError)
    assert str(problem) == f"{key}: not an option of this source; {ADVICE[name]}"


@pytest.mark.parametrize("prefix", ["kinesis.executor.", "kinesis.client."])
def test_the_prefixes_of_qubole_s_connector_are_known(prefix: str) -> None:
    with pytest.raises(ConfigErrors, match="limit the size with maxRecordsPerTrigger"):
        _parse({f"{prefix}maxFetchTimeInMs": "1000"})


def test_all_that_has_no_counterpart_is_named_at_once() -> None:
    options = dict.fromkeys(("metadataPath", "shardsPerTask", "kafka.bootstrap.servers"), "x")
    with pytest.raises(ConfigErrors) as caught:
        _parse(options)
    assert len(caught.value.problems) == len(options)


def test_no_name_is_both_an_alias_and_without_counterpart() -> None:
    aliases = {name.lower() for name in ALIASES}
    assert aliases.isdisjoint(name.lower() for name in ADVICE)


def test_the_arn_of_a_consumer_selects_enhanced_fan_out_with_that_consumer() -> None:
    properties = _parse({"streamName": "orders", "fanoutConsumerARN": _CONSUMER})
    assert properties.get(SourceConfig.record_publisher) == "EFO"
    registration = RegistrationConfig.from_properties(properties)
    assert registration.strategy is RegistrationStrategy.NONE
    assert registration.consumer_arns == {"orders": _CONSUMER}


def test_what_is_no_arn_of_a_consumer_is_one_problem() -> None:
    with pytest.raises(
        ConfigErrors, match=r"fanoutConsumerARN: got 'app', expected the ARN"
    ) as caught:
        _parse({"streamName": "orders", "fanoutConsumerARN": "app"})
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("value", "policy"), [("true", "created"), ("FALSE", "never")])
def test_deregistration_may_be_required_or_not(value: str, policy: str) -> None:
    assert _parse({"requireConsumerDeregistration": value}) == _parse(
        {"kinesis.stream.efo.deregister": policy}
    )


@pytest.mark.parametrize("name", ["roleArn", "kinesis.stsRoleArn", "awsstsrolearn"])
def test_a_role_of_any_name_is_assumed(name: str) -> None:
    credentials = AwsConfig.from_properties(_parse({name: _ROLE})).credentials
    assert (credentials.provider, credentials.role_arn) == (CredentialsProvider.ASSUME_ROLE, _ROLE)


def test_the_own_key_of_a_role_selects_no_provider() -> None:
    own = {"aws.credentials.provider.role.arn": _ROLE}
    provider = AwsConfig.from_properties(_parse(own)).credentials.provider
    assert provider is CredentialsProvider.AUTO


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://kinesis.us-east-1.amazonaws.com", "us-east-1"),
        ("https://kinesis.cn-north-1.amazonaws.com.cn/", "cn-north-1"),
        ("https://kinesis.us-isob-east-1.api.aws.scloud", "us-isob-east-1"),
        ("https://kinesis-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("http://localhost:4567", None),
        ("https://vpce-0a1b.kinesis.us-east-1.vpce.amazonaws.com", None),
    ],
)
def test_the_region_is_in_the_url_of_aws_s_own_endpoint(endpoint: str, region: str | None) -> None:
    assert AwsConfig.from_properties(_parse({"endpointUrl": endpoint})).region == region
    own = _parse({"endpointUrl": endpoint, "region": "eu-west-1"})
    assert AwsConfig.from_properties(own).region == "eu-west-1"


def test_a_secret_under_a_foreign_name_is_masked() -> None:
    options = {"awsAccessKeyId": "AKIA", "awsSecretKey": "hidden"}
    assert "hidden" not in repr(_parse(options))
    with pytest.raises(ConfigErrors) as caught:
        _parse(options | {"aws.credentials.provider.basic.secretkey": "other"})
    assert "hidden" not in str(caught.value)
