"""One notation of places in time, for ``start`` and ``end``, keywords and properties."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers.config import EndingPositionConfig, InitialPositionConfig, Properties
from kinesis_publishers.config.timestamps import parse_time
from kinesis_publishers.errors import ConfigErrors, InvalidOptionError
from kinesis_publishers.model import PositionType, StartingPosition
from kinesis_publishers_spark.aliases import parse_options

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT_NOON = StartingPosition.at_timestamp(NOON)
AN_HOUR_AGO = StartingPosition.latest(timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("LATEST", StartingPosition.latest()),
        ("latest", StartingPosition.latest()),
        (NOON, AT_NOON),
        ("2026-01-01T12:00:00Z", AT_NOON),
        ("2026-01-01 13:00:00+01:00", AT_NOON),
        ("AT_TIMESTAMP 2026-01-01T12:00:00Z", AT_NOON),
        (NOON.timestamp(), AT_NOON),
        (int(NOON.timestamp()), AT_NOON),
        (f"{NOON.timestamp():.3f}", AT_NOON),
        (timedelta(hours=1), AN_HOUR_AGO),
        ("-1h", AN_HOUR_AGO),
        ("- 1 hour", AN_HOUR_AGO),
        ("-3600s", AN_HOUR_AGO),
        ("-60m", AN_HOUR_AGO),
        ("-0.5d", StartingPosition.latest(timedelta(hours=12))),
        ("AT_TIMESTAMP -1h", AN_HOUR_AGO),
        (timedelta(0), StartingPosition.latest()),
        ("-0s", StartingPosition.latest()),
        (timedelta(microseconds=1), StartingPosition.latest(timedelta(microseconds=1))),
    ],
)
def test_start_and_end_take_the_same_notations_in_keywords_and_properties(
    value: object, expected: StartingPosition
) -> None:
    by_keyword = Properties.of(None, {"stream": "orders", "start": value, "end": value})
    given = [by_keyword]
    if isinstance(value, str | float):
        written = {"kinesis.streams": "orders", "kinesis.stream.initpos": value}
        given.append(Properties.parse({**written, "kinesis.stream.endpos": value}))
    for properties in given:
        assert InitialPositionConfig.from_properties(properties).positions.default == expected
        assert EndingPositionConfig.from_properties(properties).positions.default == expected


@pytest.mark.parametrize(
    "options",
    [
        {"startingPosition": "-1h", "endingPosition": "-1h"},
        {"startingTimestamp": "-1h", "endingTimestamp": "-1h"},
        {"kinesis.stream.initpos": "-1h", "stream.endpos": "-1h"},
    ],
)
def test_so_do_the_options_of_spark(options: dict[str, str]) -> None:
    properties = parse_options({"streamName": "orders", **options})
    assert InitialPositionConfig.from_properties(properties).positions.default == AN_HOUR_AGO
    assert EndingPositionConfig.from_properties(properties).positions.default == AN_HOUR_AGO


def test_a_start_is_trim_horizon_too() -> None:
    properties = Properties.of(None, {"stream": "orders", "start": "trim_horizon"})
    start = InitialPositionConfig.from_properties(properties).positions.default
    assert start == StartingPosition.trim_horizon()


@pytest.mark.parametrize("text", ["-1", "-", "--1h", "-h", "-1x", "1h", "+1h", "-1h30"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="or how long ago, as '-1h'"):
        parse_time(text)
    for name in ("start", "end"):
        with pytest.raises(ConfigErrors, match=rf"{name}: .*as '?-1h"):
            Properties.of(None, {"stream": "orders", name: text})


def test_a_datetime_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigErrors, match=r"end: .* has no time zone: add one"):
        Properties.of(None, {"stream": "orders", "end": datetime(2026, 1, 1)})  # noqa: DTZ001


def test_a_time_of_the_properties_is_replaced_by_that_of_a_keyword() -> None:
    written = {"kinesis.streams": "orders", "kinesis.stream.endpos": "2026-01-01T12:00:00Z"}
    properties = Properties.of(written, {"end": "-1h"})
    assert EndingPositionConfig.from_properties(properties).positions.default == AN_HOUR_AGO


def test_a_relative_time_is_resolved_when_it_is_pinned_and_never_before_1970() -> None:
    assert AN_HOUR_AGO.pinned(NOON) == StartingPosition.at_timestamp(NOON - timedelta(hours=1))
    ages_ago = StartingPosition.latest(timedelta(days=900_000))
    assert ages_ago.pinned(NOON).timestamp == datetime(1970, 1, 1, tzinfo=UTC)
    assert str(AN_HOUR_AGO) == "1:00:00 ago"
    with pytest.raises(ValueError, match="must be pinned"):
        AN_HOUR_AGO.require_pinned()


def test_only_latest_has_an_age_and_none_lies_in_the_future() -> None:
    for kind, ago in [(PositionType.TRIM_HORIZON, 1), (PositionType.LATEST, -1)]:
        with pytest.raises(ValueError, match="do not go together"):
            StartingPosition(kind, ago=timedelta(seconds=ago))
