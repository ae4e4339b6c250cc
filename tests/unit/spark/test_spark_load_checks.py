"""What load() asks the service, and what becomes of its answer; what is no reading at all."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from kinesis_publishers.testing.local_kinesis import Fault
from kinesis_publishers_spark import KinesisDataSource
from kinesis_publishers_spark.schema import SPARK_SCHEMA
from tests.unit.spark.spark_schemas import struct_type

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


def load(server: LocalKinesis, stream: str = "orders", **more: str) -> str:
    options = server.properties(stream) | {
        key.replace("_", "."): value for key, value in more.items()
    }
    return KinesisDataSource(options).schema()


def test_a_stream_costs_one_call_however_often_the_columns_are_asked_for(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream("orders")
    source = KinesisDataSource(local_kinesis.properties("orders"))
    assert local_kinesis.calls() == []
    assert [source.schema() for _ in range(2)] == [SPARK_SCHEMA] * 2
    assert [call.operation for call in local_kinesis.calls()] == ["DescribeStreamSummary"]


def test_a_stream_that_does_not_exist_is_an_error_without_a_history(
    local_kinesis: LocalKinesis,
) -> None:
    with pytest.raises(StreamNotFoundError, match="Stream orders under account") as raised:
        load(local_kinesis)
    lines = traceback.format_exception(raised.value)
    assert sum("Stream orders" in line for line in lines) == 1
    # This test's own frames, and the boundary's.
    assert len(traceback.extract_tb(raised.value.__traceback__)) <= 3


def test_the_history_is_there_for_those_who_ask(
    local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINESIS_PUBLISHERS_LOG", "debug")
    with pytest.raises(StreamNotFoundError) as raised:
        load(local_kinesis)
    assert raised.value.__cause__ is not None


def test_what_the_start_would_be_refused_is_an_error(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.add_fault(
        Fault("DescribeStreamSummary", "error", code="AccessDeniedException", times=None)
    )
    with pytest.raises(AccessDeniedError, match="DescribeStreamSummary"):
        load(local_kinesis)


def test_missing_credentials_are_an_error(
    local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {
        key: value
        for key, value in local_kinesis.properties("orders").items()
        if "credentials" not in key
    }
    with pytest.raises(CredentialsError):
        KinesisDataSource(options).schema()


def test_an_endpoint_that_nobody_serves_is_an_error_after_a_moment_and_is_said_once(
    local_kinesis: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RetriesExhaustedError, match=r"nothing listens.*Could not connect"):
        load(local_kinesis, aws_endpoint="http://127.0.0.1:9")
    assert caplog.text == ""


@pytest.mark.parametrize("code", ["LimitExceededException", "InternalFailureException"])
def test_a_service_that_has_no_time_is_a_warning(
    local_kinesis: LocalKinesis, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    local_kinesis.create_stream("orders")
    local_kinesis.add_fault(Fault("DescribeStreamSummary", "error", code=code, times=None))
    with caplog.at_level(logging.WARNING):
        assert load(local_kinesis) == SPARK_SCHEMA
    assert "could not be checked, the reader will try again" in caplog.text
    assert code in caplog.text


def test_keys_without_effect_are_named(
    local_kinesis: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    local_kinesis.create_stream("orders")
    with caplog.at_level(logging.WARNING):
        load(local_kinesis, flink_shard_idle_interval="5s")
    assert "flink.shard.idle.interval has no effect" in caplog.text


@pytest.mark.parametrize("kind", ["schema", "reader", "streamReader"])
def test_a_query_without_a_stream_is_told_both_names(kind: str) -> None:
    source = KinesisDataSource({"region": "eu-west-1"})
    with pytest.raises(ConfigError, match=r"streamName \(kinesis\.streams\) is required"):
        read(source, kind)


@pytest.mark.parametrize("kind", ["schema", "reader", "streamReader"])
@pytest.mark.parametrize("name", ["checkpointLocation", "queryName"])
def test_options_of_a_sink_are_refused_where_something_is_read(name: str, kind: str) -> None:
    options = {name: "x", "streamname": "orders", "region": "eu-west-1"}
    with pytest.raises(ConfigError, match=f"{name} is an option of writeStream: remove it"):
        read(KinesisDataSource(options), kind)


@pytest.mark.parametrize(
    ("written", "meant"), [("checkpointLocaton", "checkpointLocation"), ("queryNam", "queryName")]
)
def test_what_looks_like_an_option_of_spark_is_refused(written: str, meant: str) -> None:
    options = {"streamname": "orders", "region": "eu-west-1", "path": "x", "paths": "[]"}
    KinesisDataSource(options)
    with pytest.raises(ConfigError, match=f"unknown option; did you mean {meant}"):
        KinesisDataSource(options | {written.lower(): "x"})


def read(source: KinesisDataSource, kind: str) -> None:
    """Take the first step of a read, to which Spark may come without the one before."""
    if kind == "schema":
        source.schema()
    elif kind == "reader":
        source.reader(struct_type(SPARK_SCHEMA))
    else:
        source.streamReader(struct_type(SPARK_SCHEMA)).initialOffset()


def test_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"CREATE TABLE .* is not possible") as raised:
        KinesisDataSource({"provider": "x", "option.kinesis.streams": "orders"})
    assert "unknown option" not in str(raised.value)
