"""Options as keyword arguments mean what the keys of a properties dict mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_type_hints

import pytest

from kinesis_publishers.config import Encoding, Options, PollingConfig, Properties
from kinesis_publishers.config.assignments import SHORT_NAMES, keyword_of
from kinesis_publishers.config.catalogue import OWN_OPTIONS
from kinesis_publishers.config.parsers import Flag, WholeNumber
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers.leases.assigners import AllShards

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS = {"kinesis.streams": "orders"}


class SomeAssigner(AllShards):
    pass


def parsed(**options: object) -> Properties:
    return Properties.of(None, options)


def test_every_option_has_a_keyword_of_its_own_and_editors_know_its_type() -> None:
    keywords = [keyword_of(option) for option in OWN_OPTIONS]
    assert len({*keywords, *SHORT_NAMES}) == len(keywords) + len(SHORT_NAMES)
    types = get_type_hints(Options)
    assert types.keys() == {*keywords, *SHORT_NAMES}
    for option in OWN_OPTIONS:
        if isinstance(option.parser, Flag | WholeNumber):
            expected = bool if isinstance(option.parser, Flag) else int
            assert types[keyword_of(option)] == expected | None


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        (
            {"region": "eu-west-1", "endpoint": "http://localhost:4567"},
            {"aws.region": "eu-west-1", "aws.endpoint": "http://localhost:4567"},
        ),
        ({"start": "trim_horizon"}, {"kinesis.stream.initpos": "TRIM_HORIZON"}),
        (
            {"start": NOON},
            {
                "kinesis.stream.initpos": "AT_TIMESTAMP",
                "kinesis.stream.initpos.timestamp": "2026-01-01T12:00:00+00:00",
            },
        ),
        (
            {"publisher": "EFO", "consumer_name": "billing"},
            {
                "kinesis.stream.recordpublisher": "EFO",
                "kinesis.stream.efo.consumername": "billing",
            },
        ),
        (
            {"shard_assigner": SomeAssigner},
            {"kinesis.shard.assigner": f"{__name__}:SomeAssigner"},
        ),
        (
            {"shard_getrecords_intervalmillis": timedelta(seconds=1.5)},
            {"kinesis.shard.getrecords.intervalmillis": "1500"},
        ),
        (
            {"shard_subscribetoshard_timeout": timedelta(minutes=1)},
            {"kinesis.shard.subscribetoshard.timeout": "60"},
        ),
        (
            {"shard_getrecords_encoding": Encoding.JSON},
            {"kinesis.shard.getrecords.encoding": "json"},
        ),
        (
            {"checkpoint_sqlite_path": Path("/data/c"), "application": "billing"},
            {
                "kinesis.checkpoint.sqlite.path": "/data/c",
                "kinesis.checkpoint.application": "billing",
            },
        ),
        (
            {"metrics_sinks": ["log", "summary"], "application": "billing"},
            {"kinesis.metrics.sinks": "log,summary", "kinesis.checkpoint.application": "billing"},
        ),
        (
            {
                "credentials_provider_role_arn": "arn:aws:iam::123456789012:role/r",
                "credentials_provider": "ASSUME_ROLE",
                "credentials_provider_role_session_name": "me",
            },
            {
                "aws.credentials.provider": "ASSUME_ROLE",
                "aws.credentials.provider.role.arn": "arn:aws:iam::123456789012:role/r",
                "aws.credentials.provider.role.sessionName": "me",
            },
        ),
    ],
    ids=lambda value: next(iter(value)),
)
def test_keywords_are_the_properties_in_other_words(
    options: dict[str, object], properties: dict[str, str]
) -> None:
    expected = Properties.parse({**ORDERS, **properties})
    assert parsed(stream="orders", **options) == expected
    # And back, by the dict.
    assert Properties.parse(parsed(stream="orders", **options).to_dict()) == expected


def test_streams_may_be_a_list_and_none_is_the_default() -> None:
    assert parsed(streams=["orders", "returns"], endpoint=None, start=None) == Properties.parse(
        {"kinesis.streams": "orders,returns"}
    )


@pytest.mark.parametrize("is_parsed", [False, True])
def test_keywords_take_precedence_over_the_properties(is_parsed: bool) -> None:
    former = {
        **ORDERS,
        "flink.stream.initpos": "AT_TIMESTAMP",
        "flink.stream.initpos.timestamp": "2026-01-01T12:00:00Z",
        "kinesis.shard.getrecords.maxrecordcount": "7",
    }
    properties = Properties.parse(former) if is_parsed else former
    combined = Properties.of(properties, {"stream": "returns", "start": "LATEST"})
    assert combined == Properties.parse(
        {
            "kinesis.streams": "returns",
            "kinesis.stream.initpos": "LATEST",
            "kinesis.shard.getrecords.maxrecordcount": "7",
        }
    )
    assert Properties.of(properties, {}) == Properties.parse(former)
    assert PollingConfig.from_properties(combined).max_records == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "orders", "regionn": "eu-west-1"}, "regionn: unknown option; did you mean reg"),
        (
            {"stream": "orders", "maxrecordcuont": 5},
            r"maxrecordcuont: unknown option; did you mean shard_getrecords_maxrecordcount\?",
        ),
        ({"stream": "orders", "end": "TRIM_HORIZON"}, "end: got 'TRIM_HORIZON', expected one of L"),
        ({"stream": "orders", "spark_planner": "auto"}, "spark_planner: only Spark has this"),
        (
            {"stream": "orders", "start": "SOON"},
            "start: got 'SOON', .* or a time such as -1h or 2026-11-26T10:00:00Z",
        ),
        ({"stream": "orders", "start": "-1"}, "start: '-1' is not a timestamp.* as '-1h'"),
        ({"stream": "orders", "end": timedelta(hours=-1)}, "end: got '3600.0s', expected one of"),
        (
            {"stream": "orders", "start": datetime(2026, 1, 1)},  # noqa: DTZ001
            "start: .* has no time zone: add one",
        ),
        ({"stream": "orders", "lease_enabled": 3}, "lease_enabled: got 3, expected true or false"),
        ({"stream": "orders", "region": ["a", 1]}, r"region: got \['a', 1\]"),
        ({"stream": "orders", "streams": "returns"}, "mean the same option and differ"),
        ({}, r"stream \(kinesis.streams\) is required"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_of_the_keyword(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        parsed(**options)
