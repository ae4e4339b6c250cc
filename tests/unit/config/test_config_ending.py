"""Where a batch read ends, as the options say it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPositionConfig,
    Properties,
)
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers.model import PositionType, Scope, SequenceNumber, StartingPosition
from kinesis_publishers_spark.aliases import parse_options

_SHARD = "shardId-000000000003"


def properties(**options: str) -> Properties:
    values = {f"kinesis.stream.{key.replace('_', '.')}": value for key, value in options.items()}
    return Properties.parse({"kinesis.streams": "orders", **values})


def test_a_batch_ends_at_the_tip_by_default() -> None:
    config = EndingPositionConfig.from_properties(properties())
    assert config == EndingPositionConfig(position=PositionType.LATEST)
    assert properties().given_keys(EndingPositionConfig.options()) == ()


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2026-05-31T12:00:00.000+00:00", None),
        ("1780228800", None),
        ("2026-05-31T14:00+02:00", None),
        ("31.05.2026 12", "dd.MM.yyyy HH"),
    ],
)
def test_the_instant_is_written_like_that_of_the_start(text: str, pattern: str | None) -> None:
    more = {} if pattern is None else {"endpos_timestamp_format": pattern}
    given = properties(endpos="at_timestamp", endpos_timestamp=text, **more)
    config = EndingPositionConfig.from_properties(given)
    assert config.timestamp == datetime(2026, 5, 31, 12, tzinfo=UTC)


def test_the_instant_beside_another_end_is_a_leftover() -> None:
    given = properties(endpos="LATEST", endpos_timestamp="5")
    assert EndingPositionConfig.from_properties(given).timestamp is None


def test_positions_of_single_shards_are_written_like_those_of_the_start() -> None:
    text = f'{{"{_SHARD}": {{"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "77"}}}}'
    (one,) = EndingPositionConfig.from_properties(properties(endpos_shards=text)).shards
    position = StartingPosition.after(SequenceNumber("77"))
    assert one == (Scope(shard_id=_SHARD), position)


def test_the_keys_are_told_as_they_were_written() -> None:
    given = Properties.parse({"kinesis.streams": "a", "Kinesis.Stream.EndPos": "LATEST"})
    assert given.given_keys(EndingPositionConfig.options()) == ("Kinesis.Stream.EndPos",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpos": "TRIM_HORIZON"}, r"endpos: got 'TRIM_HORIZON', expected .*LATEST"),
        (
            {"endpos": "AT_TIMESTAMP"},
            r"endpos is AT_TIMESTAMP: set kinesis.stream.endpos.timestamp",
        ),
        ({"endpos": "AT_TIMESTAMP", "endpos_timestamp": "soon"}, r"'soon' is not a timestamp"),
        (
            {"endpos_timestamp": "5"},
            "nothing says that reading ends there: set kinesis.stream.endpos to AT_TIMESTAMP",
        ),
        (
            {
                "endpos_shards": f'{{"{_SHARD}": {{"iteratorType": "AT_TIMESTAMP", '
                f'"iteratorPosition": "{10**18}"}}}}'
            },
            "endpos.shards: .* expected JSON .* milliseconds since 1970",
        ),
        ({"endpos_timestamp_format": "qq"}, r"endpos.timestamp.format: got 'qq'"),
        ({"endpos_shards": "[]"}, r"endpos.shards: got '\[\]', expected JSON"),
        (
            {"endpos_shards": f'{{"{_SHARD}": {{"iteratorType": "TRIM_HORIZON"}}}}'},
            rf"{_SHARD} ends at TRIM_HORIZON, where it begins",
        ),
    ],
)
def test_what_cannot_be_an_end_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        properties(**options)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigErrors) as raised:
        properties(endpos="AT_TIMESTAMP", endpos_shards="{", initpos="AT_TIMESTAMP")
    assert len(raised.value.problems) == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingPosition": "LATEST"}, (PositionType.LATEST, None)),
        (
            {"endingPosition": "AT_TIMESTAMP 2026-05-31T12:00:00.000+00:00"},
            (PositionType.AT_TIMESTAMP, datetime(2026, 5, 31, 12, tzinfo=UTC)),
        ),
        (
            {"endingTimestamp": "1780228800500"},
            (PositionType.AT_TIMESTAMP, datetime(2026, 5, 31, 12, 0, 0, 500000, tzinfo=UTC)),
        ),
    ],
)
def test_the_end_has_the_names_that_other_sources_use(
    options: dict[str, str], expected: tuple[PositionType, datetime | None]
) -> None:
    given = parse_options({"streamName": "orders", **options})
    config = EndingPositionConfig.from_properties(given)
    assert (config.position, config.timestamp) == expected


def test_an_end_at_the_beginning_is_refused_in_the_words_that_were_written() -> None:
    with pytest.raises(ConfigErrors, match="endingOffsets: got 'earliest', expected one of LATEST"):
        parse_options({"streamName": "orders", "endingOffsets": "earliest"})


def test_a_starting_timestamp_in_milliseconds_is_one_as_for_kafka() -> None:
    given = parse_options({"streamName": "orders", "startingTimestamp": "1780228800500"})
    config = InitialPositionConfig.from_properties(given)
    assert config.timestamp == datetime(2026, 5, 31, 12, 0, 0, 500000, tzinfo=UTC)
