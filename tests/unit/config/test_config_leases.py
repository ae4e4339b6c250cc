"""The options that say which shards are read: what they need, and what contradicts."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_publishers.config import AssignmentConfig, LeaseConfig, LeaseFormat, Properties
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers_spark.aliases import parse_options

_STREAM = {"kinesis.streams": "orders"}
_APPLICATION = {**_STREAM, "kinesis.checkpoint.application": "billing"}
_LEASES = {**_APPLICATION, "kinesis.lease.enabled": "true"}


def _problems(options: dict[str, Any]) -> list[str]:
    try:
        Properties.parse(options)
    except ConfigErrors as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("options", "assigner"),
    [
        ({}, "ALL"),
        ({"kinesis.shards": "orders:shardId-1"}, "MANUAL"),
        ({"kinesis.shards": "orders:shardId-1", "kinesis.shard.assigner": "manual"}, "MANUAL"),
        ({"kinesis.checkpoint.application": "b", "kinesis.lease.enabled": "true"}, "LEASES"),
        ({"kinesis.shard.assigner": "my.module:Class"}, "my.module:Class"),
    ],
)
def test_one_option_is_enough_to_choose_an_assigner(options: dict[str, Any], assigner: str) -> None:
    properties = Properties.parse(_STREAM | options)
    assert AssignmentConfig.from_properties(properties).assigner == assigner


def test_shards_are_named_by_stream_and_id() -> None:
    properties = Properties.parse(
        {"kinesis.streams": "a, b", "kinesis.shards": "a:shardId-1 , b:shardId-2"}
    )
    config = AssignmentConfig.from_properties(properties)
    assert config.shards == (("a", "shardId-1"), ("b", "shardId-2"))


@pytest.mark.parametrize(
    ("store", "written", "expected"),
    [
        ("sqlite", None, LeaseFormat.OWN),
        ("dynamodb", None, LeaseFormat.KCL),
        ("dynamodb", "own", LeaseFormat.OWN),
    ],
)
def test_in_dynamodb_leases_have_the_form_of_the_kcl(
    store: str, written: str | None, expected: LeaseFormat
) -> None:
    options = {**_LEASES, "kinesis.checkpoint.store": store}
    if written is not None:
        options["kinesis.lease.format"] = written
    assert LeaseConfig.from_properties(Properties.parse(options)).format is expected


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            {**_STREAM, "kinesis.lease.enabled": "true"},
            ["kinesis.lease.enabled is set but kinesis.checkpoint.application is not, and without"],
        ),
        (
            {**_APPLICATION, "kinesis.lease.workerid": "one"},
            ["kinesis.lease.workerid is for kinesis.lease.enabled = true, which is false"],
        ),
        (
            {**_LEASES, "kinesis.shard.assigner": "ALL"},
            ["kinesis.shard.assigner is ALL, and kinesis.lease.enabled is true"],
        ),
        (
            {**_APPLICATION, "kinesis.shard.assigner": "LEASES"},
            ["kinesis.shard.assigner is LEASES, and kinesis.lease.enabled is false"],
        ),
        (
            {**_STREAM, "kinesis.shard.assigner": "MANUAL"},
            ["kinesis.shards is required: set it to stream:shardId pairs"],
        ),
        (
            {**_LEASES, "kinesis.shards": "orders:shardId-1"},
            ["only shards to read, and kinesis.lease.enabled is true: remove one of the two"],
        ),
        (
            {**_STREAM, "kinesis.shard.assigner": "ALL", "kinesis.shards": "orders:shardId-1"},
            ["only shards to read, and kinesis.shard.assigner is ALL: remove one of the two"],
        ),
        (
            {**_STREAM, "kinesis.shards": "orders"},
            ["kinesis.shards: got 'orders', expected stream:shardId pairs"],
        ),
        (
            {**_STREAM, "kinesis.shards": "invoices:shardId-1"},
            ["kinesis.shards names shards of invoices, which kinesis.streams does not name"],
        ),
        (
            {**_LEASES, "kinesis.lease.format": "kcl"},
            ["kinesis.lease.format is for kinesis.checkpoint.store = dynamodb, which is sqlite"],
        ),
        (
            {**_LEASES, "kinesis.lease.failovermillis": "999"},
            ["kinesis.lease.failovermillis: got '999'", "at least 1000"],
        ),
    ],
)
def test_what_does_not_fit_together_is_said(options: dict[str, Any], parts: list[str]) -> None:
    (problem,) = _problems(options)
    for part in parts:
        assert part in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kinesis.lease.enabled", "true"),
        ("kinesis.lease.workerid", "one"),
        ("kinesis.shard.assigner", "leases"),
    ],
)
def test_spark_has_no_leases_and_says_so(key: str, value: str) -> None:
    with pytest.raises(ConfigErrors) as raised:
        parse_options({"streamName": "orders", key: value})
    (problem,) = raised.value.problems
    assert str(problem).startswith(key)
    assert "Spark itself assigns shards to its tasks: remove it" in str(problem)


def test_spark_may_read_named_shards() -> None:
    properties = parse_options({"streamName": "orders", "kinesis.shards": "orders:shardId-1"})
    assert AssignmentConfig.from_properties(properties).assigner == "MANUAL"
