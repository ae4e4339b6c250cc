"""The files of the KCL's MultiLangDaemon: what their properties mean here, and what is refused."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from kinesis_publishers.cli.shared.kcl_properties import (
    MAPPED,
    OF_DAEMON,
    DaemonConfig,
    daemon_config,
)
from kinesis_publishers.config import (
    AwsConfig,
    CheckpointConfig,
    CredentialsConfig,
    CredentialsProvider,
    DiscoveryConfig,
    DynamoDbCheckpointConfig,
    InitialPositionConfig,
    LeaseConfig,
    LeaseFormat,
    MetricsConfig,
    PollingConfig,
    RegistrationConfig,
    RegistrationStrategy,
    SourceConfig,
    StreamsConfig,
)
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers.model import StartingPosition
from tests.unit.cli.cli_support import run_command

# From the sample of amazon_kclpy 3.2.
SAMPLE = {
    "executableName": "sample_kclpy_app.py",
    "streamName": "kclpysample",
    "applicationName": "PythonKCLSample",
    "AwsCredentialsProvider": "DefaultCredentialsProvider",
    "processingLanguage": "python/3.8",
    "initialPositionInStream": "TRIM_HORIZON",
    "regionName": "us-east-1",
}
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
ROLE = "arn:aws:iam::123456789012:role/reader"


def config_of(**more: str) -> DaemonConfig:
    """Return what the sample means with other values; ``_`` in a name stands for a dot."""
    given = SAMPLE | {name.replace("_", "."): value for name, value in more.items()}
    return daemon_config(given.items())


def problems_of(**more: str) -> list[str]:
    with pytest.raises(ConfigErrors) as raised:
        config_of(**more)
    return [str(one) for one in raised.value.problems]


def test_the_sample_of_kcl_python_reads_with_the_lease_table_of_the_kcl() -> None:
    config = config_of()
    properties = config.properties
    assert config.command == ("sample_kclpy_app.py",)
    assert (config.timeout_seconds, config.grace_seconds, config.passes_empty) == (
        math.inf,
        20,
        False,
    )
    assert StreamsConfig.from_properties(properties).streams[0].name == "kclpysample"
    leases = LeaseConfig.from_properties(properties)
    assert (leases.is_enabled, leases.format) == (True, LeaseFormat.KCL)
    checkpoints = CheckpointConfig.from_properties(properties)
    assert (checkpoints.application, checkpoints.store) == ("PythonKCLSample", "dynamodb")
    start = InitialPositionConfig.from_properties(properties).positions.default
    assert start == StartingPosition.trim_horizon()
    assert [one.key for one in config.unused] == ["processingLanguage"]


@pytest.mark.parametrize(
    ("more", "publisher"),
    [
        ({}, "EFO"),
        ({"retrievalMode": "fanout", "maxRecords": "500"}, "EFO"),
        ({"retrievalMode": "POLLING"}, "POLLING"),
        ({"maxRecords": "500"}, "POLLING"),
        ({"idleTimeBetweenReadsInMillis": "250"}, "POLLING"),
        ({"kinesis_stream_recordpublisher": "POLLING"}, "POLLING"),
    ],
)
def test_fan_out_unless_something_chooses_polling(more: dict[str, str], publisher: str) -> None:
    assert config_of(**more).properties.get(SourceConfig.record_publisher) == publisher


def test_a_stream_consumer_has_the_name_of_the_application_and_stays() -> None:
    registration = RegistrationConfig.from_properties(config_of().properties)
    assert registration.consumer_name == "PythonKCLSample"
    assert registration.deregister.value == "never"


def test_a_stream_consumer_may_be_given_by_its_arn() -> None:
    arn = f"{ARN}/consumer/own:1"
    properties = config_of(streamArn=ARN, fanoutConfig_consumerArn=arn).properties
    registration = RegistrationConfig.from_properties(properties)
    assert registration.strategy is RegistrationStrategy.NONE
    assert registration.consumer_arns == {"orders": arn}


@pytest.mark.parametrize(
    ("option", "more", "value"),
    [
        (StreamsConfig.names, {"streamArn": ARN}, ARN),
        (LeaseConfig.worker_id, {"workerId": "one"}, "one"),
        (LeaseConfig.worker_id, {"workerId": ""}, None),
        (LeaseConfig.failover_seconds, {"failoverTimeMillis": "20000"}, 20.0),
        (LeaseConfig.max_leases, {"maxLeasesForWorker": "5"}, 5),
        (LeaseConfig.handover_seconds, {"gracefulLeaseHandoffTimeoutMillis": "500"}, 0.5),
        (DiscoveryConfig.interval_seconds, {"shardSyncIntervalMillis": "60000"}, 60.0),
        (PollingConfig.max_records, {"maxRecords": "500"}, 500),
        (PollingConfig.interval_seconds, {"maxRecords": "500"}, 1.5),
        (PollingConfig.interval_seconds, {"idleTimeBetweenReadsInMillis": "250"}, 0.25),
        (RegistrationConfig.consumer_name, {"fanoutConfig_consumerName": "own"}, "own"),
        (AwsConfig.region, {"regionName": "eu-west-1"}, "eu-west-1"),
        (AwsConfig.endpoint_url, {"kinesisEndpoint": "http://localhost:1"}, "http://localhost:1"),
        (
            DynamoDbCheckpointConfig.endpoint_url,
            {"dynamoDBEndpoint": "http://localhost:2"},
            "http://localhost:2",
        ),
        (DynamoDbCheckpointConfig.table, {"tableName": "another"}, "another"),
        (MetricsConfig.sinks, {}, ("log",)),
        (MetricsConfig.sinks, {"metricsLevel": "none"}, ("log",)),
        (MetricsConfig.sinks, {"metricsLevel": "SUMMARY"}, ("log", "cloudwatch")),
        (MetricsConfig.cloudwatch_namespace, {"metricsLevel": "DETAILED"}, "PythonKCLSample"),
    ],
)
def test_a_property_of_the_kcl_sets_an_option(
    option: Any, more: dict[str, str], value: object
) -> None:
    assert option.read(config_of(**more).properties) == value


def test_a_time_takes_precedence_over_the_position() -> None:
    properties = config_of(initialPositionInStreamExtended="1636609142").properties
    position = InitialPositionConfig.from_properties(properties).positions.default
    assert position.timestamp is not None
    assert position.timestamp.timestamp() == 1636609142


def test_what_only_the_daemon_needs() -> None:
    config = config_of(
        executableName="python  app.py",
        timeoutInSeconds="30",
        shutdownGraceMillis="5000",
        callProcessRecordsEvenForEmptyRecordList="true",
    )
    assert config.command == ("python", "app.py")
    assert (config.timeout_seconds, config.grace_seconds, config.passes_empty) == (30, 5, True)


@pytest.mark.parametrize(
    ("provider", "options"),
    [
        ("DefaultAWSCredentialsProviderChain", {}),
        ("EnvironmentVariableCredentialsProvider", {"provider": CredentialsProvider.ENV_VAR}),
        ("EnvironmentVariableCredentialsProvider, InstanceProfileCredentialsProvider", {}),
        (
            "ProfileCredentialsProvider|test",
            {"provider": CredentialsProvider.PROFILE, "profile_name": "test"},
        ),
        (
            f"StsAssumeRoleCredentialsProvider|{ROLE}|session",
            {
                "provider": CredentialsProvider.ASSUME_ROLE,
                "role_arn": ROLE,
                "role_session_name": "session",
            },
        ),
    ],
)
def test_providers_of_credentials(provider: str, options: dict[str, object]) -> None:
    properties = config_of(AwsCredentialsProvider=provider).properties
    credentials = CredentialsConfig.from_properties(properties)
    expected = {"provider": CredentialsProvider.AUTO} | options
    assert {name: getattr(credentials, name) for name in expected} == expected


def test_a_provider_that_is_a_class_of_java_is_refused_without_its_arguments() -> None:
    (problem,) = problems_of(AwsCredentialsProvider="com.example.Vault|s3cret")
    assert problem == (
        "awsCredentialsProvider: Vault is not known here, or not with these arguments; remove it "
        "and set aws.credentials.provider"
    )


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"executableName": ""}, "executableName is missing"),
        ({"applicationName": ""}, "applicationName is missing"),
        ({"streamName": ""}, "kinesis.streams"),
        ({"failoverTimeMillis": "soon"}, "failoverTimeMillis: got 'soon'"),
        ({"timeoutInSeconds": "0"}, "timeoutInSeconds: got '0'"),
        ({"retrievalMode": "PUSH"}, "retrievalMode: got 'PUSH'"),
        ({"metricsLevel": "ALL"}, "metricsLevel: got 'ALL'"),
        ({"initialPositionInStream": "NOW"}, "initialPositionInStream: got 'NOW'"),
        ({"kinesisClient_maxConcurrency": "5"}, "kinesisClient.maxConcurrency: not an option"),
        (
            {"AwsCredentialsProvider_x": "5"},
            "awsCredentialsProvider.x: one provider, awsCredentialsProvider, serves all",
        ),
        (
            {"AwsCredentialsProviderDynamoDB": "Profile"},
            "awsCredentialsProviderDynamoDB: one provider",
        ),
        ({"maxRecords": "500", "kinesis_shard_getrecords_maxrecordcount": "7"}, "mean the same"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_name(more: dict[str, str], problem: str) -> None:
    (found,) = problems_of(**more)
    assert problem in found


def test_an_arn_in_another_region_is_refused_with_what_the_kcl_reads() -> None:
    """The file means two streams: the KCL reads one, and the ARN is that of the other."""
    more = {"streamArn": ARN, "regionName": "eu-west-1"}
    (problem,) = problems_of(**more)
    assert problem == (
        "streamArn is in us-east-1, but regionName is eu-west-1: the KCL takes only the name of "
        "the ARN, and reads orders in eu-west-1. To read that stream, set streamName = orders in "
        "place of streamArn; to read the stream of the ARN, set regionName = us-east-1"
    )
    # An emulator accepts any region.
    properties = config_of(**more, kinesisEndpoint="http://localhost:1").properties
    assert StreamsConfig.names.read(properties) == ARN


def test_a_name_that_the_kcl_does_not_have_is_told_with_a_similar_one() -> None:
    unused = config_of(maxRecord="5", coordinatorStateTableName="x").unused
    assert [str(one) for one in unused[1:]] == [
        "maxRecord has no effect: the KCL has no such property; did you mean maxRecords?",
        "coordinatorStateTableName has no effect: only the KCL shares shards out by it",
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in SAMPLE.items()))
    return path


def test_check_starts_nothing(file: Path) -> None:
    file.write_text(f"{file.read_text()}executableName = {sys.executable} -m sample\n")
    result = run_command("multilang", str(file), "--check")
    assert result.exit_code == 0
    assert result.stderr == (
        "Warning: processingLanguage has no effect: this package does not need it.\nNo errors.\n"
    )


@pytest.mark.parametrize("more", [(), ("--check",)])
def test_a_program_that_does_not_exist_is_refused_before_anything_else(
    file: Path, more: tuple[str, ...]
) -> None:
    result = run_command("multilang", str(file), *more)
    assert result.exit_code == 1
    assert result.stderr.partition("\n")[2] == (
        "Error: executableName: there is no program 'sample_kclpy_app.py' on the PATH; give its "
        "path, and make it executable\n"
    )


def test_config_check_knows_such_a_file(file: Path) -> None:
    result = run_command("config", "check", str(file), "--json")
    found = json.loads(result.stdout)
    assert found["is_valid"]
    assert [one["key"] for one in found["warnings"]] == ["processingLanguage"]
    values = {one["key"]: one["value"] for one in found["values"] if one["source"] == "given"}
    assert values["kinesis.streams"] == "kclpysample"
    assert values["kinesis.checkpoint.application"] == "PythonKCLSample"


def test_a_mistake_is_one_message(file: Path) -> None:
    file.write_text(
        "executableName =\napplicationName = a\nstreamName = orders\nmaxRecords = many\n"
    )
    result = run_command("multilang", str(file))
    assert result.exit_code == 1
    assert "maxRecords: got 'many'" in result.stderr
    assert "executableName is missing" in result.stderr


def test_the_page_has_every_name_that_has_an_effect() -> None:
    text = (Path(__file__).parents[3] / "docs" / "multilang.md").read_text(encoding="utf-8")
    names = [*MAPPED, *OF_DAEMON]
    assert [name for name in names if f"`{name}`" not in text] == []
