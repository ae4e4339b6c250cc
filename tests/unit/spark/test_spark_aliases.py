"""The options of the Spark source: bare keys, and the names that other connectors use."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinesis_publishers.config import (
    AwsConfig,
    CredentialsProvider,
    InitialPositionConfig,
    Properties,
    SourceConfig,
    StreamsConfig,
)
from kinesis_publishers.errors import ConfigErrors, KinesisPublishersError
from kinesis_publishers.model import (
    PositionType,
    Scope,
    SequenceNumber,
    StartingPosition,
    resume_after,
)
from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.options import SparkConfig

_CANONICAL = {
    "streamName": ("kinesis.streams", "orders"),
    "streamARN": ("kinesis.streams", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"),
    "region": ("aws.region", "eu-west-1"),
    "endpointUrl": ("aws.endpoint", "http://localhost:4566"),
    "consumerType": ("kinesis.stream.recordpublisher", "POLLING"),
    "consumerMode": ("kinesis.stream.recordpublisher", "POLLING"),
    "consumerName": ("kinesis.stream.efo.consumername", "app"),
    "startingPosition": ("kinesis.stream.initpos", "TRIM_HORIZON"),
    "initialPosition": ("kinesis.stream.initpos", "TRIM_HORIZON"),
    "failOnDataLoss": ("kinesis.failondataloss", "false"),
    "maxRecordsPerTrigger": ("kinesis.spark.maxrecordspertrigger", "10"),
    "maxBytesPerTrigger": ("kinesis.spark.maxbytespertrigger", "10MB"),
    "roleExternalId": ("aws.credentials.provider.role.externalId", "x"),
    "roleSessionName": ("aws.credentials.provider.role.sessionName", "me"),
}


def _parse(options: dict[str, str]) -> Properties:
    return parse_options(options, complete=False)


@pytest.mark.parametrize("alias", _CANONICAL)
@pytest.mark.parametrize("spell", ["{}", "kinesis.{}"])
@pytest.mark.parametrize("lower", [False, True])
def test_an_alias_means_its_key_with_and_without_prefix(
    alias: str, spell: str, lower: bool
) -> None:
    key, value = _CANONICAL[alias]
    written = spell.format(alias.lower() if lower else alias)
    assert _parse({written: value}) == Properties.parse({key: value}, complete=False)


@pytest.mark.parametrize(
    ("option", "value", "publisher"),
    [
        ("consumertype", "GetRecords", "POLLING"),
        ("consumertype", "subscribetoshard", "EFO"),
        ("consumermode", "polling", "POLLING"),
        ("consumermode", "efo", "EFO"),
    ],
)
def test_the_type_of_consumer_selects_the_publisher(
    option: str, value: str, publisher: str
) -> None:
    properties = _parse({option: value, "consumername": "app"})
    assert properties.get(SourceConfig.record_publisher) == publisher


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("latest", InitialPositionConfig(position=PositionType.LATEST)),
        ("EARLIEST", InitialPositionConfig(position=PositionType.TRIM_HORIZON)),
        (
            "AT_TIMESTAMP 2024-05-31T13:45:30Z",
            InitialPositionConfig(
                position=PositionType.AT_TIMESTAMP,
                timestamp=datetime(2024, 5, 31, 13, 45, 30, tzinfo=UTC),
            ),
        ),
        (
            '{"at_timestamp": "06/25/2020 10:23:45 PDT", "format": "MM/dd/yyyy HH:mm:ss ZZZ"}',
            InitialPositionConfig(
                position=PositionType.AT_TIMESTAMP,
                timestamp=datetime(2020, 6, 25, 17, 23, 45, tzinfo=UTC),
            ),
        ),
        (
            (
                '{"metadata": {"streamName": "a"}, "shardId-1": {"iteratorType": '
                '"AFTER_SEQUENCE_NUMBER", "iteratorPosition": "49"}, "shardId-0": {"iteratorType": '
                '"trim_horizon", "iteratorPosition": ""}}'
            ),
            InitialPositionConfig(
                shards=(
                    (Scope("", "shardId-0"), StartingPosition.trim_horizon()),
                    (Scope("", "shardId-1"), resume_after(SequenceNumber("49"))),
                )
            ),
        ),
    ],
)
def test_a_starting_position_is_understood(value: str, expected: InitialPositionConfig) -> None:
    properties = _parse({"startingposition": value})
    assert InitialPositionConfig.from_properties(properties) == expected


@pytest.mark.parametrize(
    "value",
    [
        "SOMEWHERE",
        "AT_TIMESTAMP",
        "AT_TIMESTAMP soon",
        "{",
        "{]",
        '{"at_timestamp": null}',
        '{"at_timestamp": "2026-01-01", "shardId-0": {"iteratorType": "TRIM_HORIZON"}}',
        '{"at_timestamp": "2026-01-01", "formats": "yyyy"}',
        '{"shardId-0": {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "253402300800000"}}',
        '{"shardId-0": 7}',
        "[]",
        '{"shardId-0": {"iteratorType": "NEXT"}}',
        '{"shardId-0": {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": "x"}}',
    ],
)
def test_a_starting_position_that_is_not_understood_names_the_option(value: str) -> None:
    with pytest.raises(ConfigErrors, match="startingPosition"):
        _parse({"startingPosition": value})


def test_a_named_provider_goes_before_the_one_that_the_role_implies() -> None:
    properties = _parse(
        {
            "kinesis.roleArn": "arn:aws:iam::123456789012:role/r",
            "aws.credentials.provider": "WEB_IDENTITY_TOKEN",
        }
    )
    provider = AwsConfig.from_properties(properties).credentials.provider
    assert provider is CredentialsProvider.WEB_IDENTITY_TOKEN


def test_an_alias_that_contradicts_the_key_is_an_error() -> None:
    with pytest.raises(ConfigErrors) as caught:
        _parse({"streamname": "a", "kinesis.streams": "b"})
    assert "streamname ('a') and kinesis.streams ('b')" in str(caught.value)


def test_an_alias_that_agrees_with_the_key_is_fine() -> None:
    properties = _parse({"initialposition": "earliest", "flink.stream.initpos": "trim_horizon"})
    position = InitialPositionConfig.from_properties(properties).position
    assert position is PositionType.TRIM_HORIZON


def test_bare_keys_are_accepted_and_spark_s_own_options_ignored() -> None:
    properties = _parse(
        {"path": "/x", "streams": "a", "spark.planner": "ranges", "stream.initpos": "latest"}
    )
    assert StreamsConfig.from_properties(properties).streams[0].name == "a"
    assert SparkConfig.from_properties(properties).planner.value == "ranges"


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("streamnam", "streamName"),
        ("initialpositions", "initialPosition"),
        ("lingermilis", "kinesis.producer.lingermillis"),
        ("plannr", "kinesis.spark.planner"),
    ],
)
def test_a_mistyped_option_names_the_nearest(written: str, nearest: str) -> None:
    with pytest.raises(ConfigErrors, match=f"did you mean .*{nearest}"):
        _parse({written: "x"})


def test_an_alias_is_not_accepted_in_a_properties_dict() -> None:
    with pytest.raises(ConfigErrors, match="unknown option"):
        Properties.parse({"kinesis.streamName": "a"})


_PREFIX = "aws.credentials.provider"
_GUARDED = [
    ("kinesis.stream.recordpublisher", "my_package.publishers:Mine"),
    ("consumerMode", "my_package.publishers:Mine"),
    ("kinesis.metrics.sinks", "log, my_package.metrics:Sink"),
    (f"{_PREFIX}.custom.class", "my_package.credentials:Vault"),
    (f"{_PREFIX}.role.provider.custom.class", "my_package.credentials:Vault"),
    ("shard.consumer.error.recoverable[0].exception", "my_package.errors.Broken"),
    (f"{_PREFIX}.profile.path", "/srv/my_package.profiles"),
    (f"{_PREFIX}.webIdentityToken.file", "/run/my_package.token"),
    ("stsEndpoint", "http://sts.my_package.example"),
]


@pytest.mark.parametrize(("key", "value"), _GUARDED)
def test_a_value_that_loads_code_or_reads_the_driver_s_own_is_refused(
    key: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr("importlib.import_module", load)
    with pytest.raises(ConfigErrors) as raised:
        _parse({key: value})
    (problem,) = raised.value.problems
    assert str(problem).startswith(f"{key}: {value.rpartition(', ')[2]} ")
    assert "KINESIS_PUBLISHERS_ALLOW" in str(problem)
    assert "register(spark, allow=" in str(problem)


def _complaint(options: dict[str, str], allow: list[str]) -> str:
    try:
        parse_options(options, complete=False, allow=allow)
    except KinesisPublishersError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("key", "value"), _GUARDED)
def test_what_the_operator_permits_is_not_refused(key: str, value: str) -> None:
    for pattern in (value.rpartition(", ")[2], "*my_package.*"):
        assert "permitted" not in _complaint({key: value}, allow=["x", pattern])


def test_a_pattern_for_a_directory_does_not_permit_what_is_around_it() -> None:
    with pytest.raises(ConfigErrors, match="permitted"):
        parse_options(
            {f"{_PREFIX}.profile.path": "/run/secrets/../../etc/passwd"}, allow=["/run/secrets/*"]
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kinesis.stream.recordpublisher", "installed.entry.point"),
        ("kinesis.metrics.sinks", "log,summary"),
        ("shard.consumer.error.recoverable[0].exception", "ThrottlingException"),
        (
            "shard.consumer.error.recoverable[0].exception",
            "kinesis_publishers.errors.ConnectionFailedError",
        ),
        ("stsEndpoint", "https://sts.eu-west-1.amazonaws.com"),
        ("stsEndpoint", "https://sts.eusc-de-east-1.amazonaws.eu"),
        ("stsEndpoint", "https://vpce-1.sts.eu-west-1.vpce.amazonaws.com/"),
    ],
)
def test_what_is_installed_or_of_aws_needs_no_permission(key: str, value: str) -> None:
    _parse({key: value})


@pytest.mark.parametrize(
    "url",
    [
        "http://sts.eu-west-1.amazonaws.com",
        "https://sts.amazonaws.com.example",
        "https://example.org/.amazonaws.com",
    ],
)
def test_a_token_goes_to_aws_alone(url: str) -> None:
    with pytest.raises(ConfigErrors, match="permitted"):
        _parse({"stsEndpoint": url})
