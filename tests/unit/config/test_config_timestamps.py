"""The timestamp of AT_TIMESTAMP, in the patterns of Java's SimpleDateFormat and without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.config import InitialPositionConfig, Properties
from kinesis_publishers.config.timestamps import SimpleDateFormat, parse_timestamp
from kinesis_publishers.errors import ConfigErrors, InvalidOptionError
from kinesis_publishers.model import PositionType


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2016-04-04T19:58:46.480-00:00", "2016-04-04T19:58:46.48"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2016-04-04T19:58:46.480Z", "2016-04-04T19:58:46.48"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2016-04-04T19:58:46.480+05:30", "2016-04-04T14:28:46.48"),
        ("yyyy-MM-dd'T'HH:mm:ssX", "2016-04-04T19:58:46-08", "2016-04-05T03:58:46"),
        ("yyyy-MM-dd", "2016-04-04", "2016-04-04T00:00:00"),
        ("yyyyMMddHHmmss", "20160404195846", "2016-04-04T19:58:46"),
        ("yyyyMMddHHmmssSSS", "20160404195846007", "2016-04-04T19:58:46.007"),
        ("d/M/yy h:mm a", "4/7/16 7:05 pm", "2016-07-04T19:05:00"),
        ("d/M/yy h:mm a", "4/7/99 12:05 AM", "1999-07-04T00:05:00"),
        ("EEE, dd MMM yyyy HH:mm:ss Z", "Mon, 04 Apr 2016 19:58:46 +0200", "2016-04-04T17:58:46"),
        ("EEEE d MMMM yyyy", "monday 4 April 2016", "2016-04-04T00:00:00"),
        ("MM/dd/yyyy HH:mm:ss ZZZ", "06/25/2020 10:23:45 PDT", "2020-06-25T17:23:45"),
        ("yyyy-MM-dd HH:mm z", "2016-07-04 12:00 Europe/Berlin", "2016-07-04T10:00:00"),
        ("yyyy-MM-dd HH:mm z", "2016-07-04 12:00 GMT+02:00", "2016-07-04T10:00:00"),
        ("yyyy 'o''clock' kk", "2016 o'clock 24", "2016-01-01T00:00:00"),
        ("yyyy''MM", "2016'02", "2016-02-01T00:00:00"),
        ("yyyy-DDD", "2016-366", "2016-12-31T00:00:00"),
        ("yyyy K a", "2016 0 PM", "2016-01-01T12:00:00"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "2016-04-04 19:58:46.123456", "2016-04-04T19:58:46.123456"),
        ("yyyy-MM-dd HH:mm:ss.S", "2016-04-04 19:58:46.5", "2016-04-04T19:58:46.005"),
    ],
)
def test_a_pattern_is_read_as_java_reads_it(pattern: str, text: str, expected: str) -> None:
    parsed = parse_timestamp(text, pattern=pattern)
    assert parsed == datetime.fromisoformat(expected).replace(tzinfo=UTC)
    assert parsed.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1459799926.480", datetime(2016, 4, 4, 19, 58, 46, 480_000, UTC)),
        ("1459799926", datetime(2016, 4, 4, 19, 58, 46, 0, UTC)),
        ("2016-04-04T19:58:46Z", datetime(2016, 4, 4, 19, 58, 46, 0, UTC)),
        (" 2016-04-04 19:58:46+02:00 ", datetime(2016, 4, 4, 17, 58, 46, 0, UTC)),
    ],
)
def test_epoch_seconds_and_iso_are_read_where_the_pattern_does_not_fit(
    text: str, expected: datetime
) -> None:
    assert parse_timestamp(text) == expected


@pytest.mark.parametrize(
    ("text", "better"),
    [("2016-04-04", "2016-04-04T00:00:00Z"), ("2016-04-04 19:58:46", "2016-04-04T19:58:46Z")],
)
def test_a_time_without_a_zone_is_refused_as_a_datetime_is(text: str, better: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"no time zone: write '{better}' for UTC"):
        parse_timestamp(text)
    assert parse_timestamp(better).isoformat() == better.replace("Z", "+00:00")


def test_the_pattern_goes_before_epoch_seconds() -> None:
    assert parse_timestamp("20160404", pattern="yyyyMMdd") == datetime(2016, 4, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["yesterday", "", "-5", "nan", "1e300", "2016-13-01T00:00:00.000Z", "2016-02-30"]
)
def test_anything_else_is_an_error_with_examples(text: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_timestamp(text)
    for example in ("'2024-05-31T13:45:30.250Z'", "'1717163130.250'", "+00:00'"):
        assert example in str(caught.value)


def test_milliseconds_are_recognised_in_the_error() -> None:
    with pytest.raises(InvalidOptionError, match=r"milliseconds: give 1459799926\.480"):
        parse_timestamp("1459799926480")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy HH", "2016 24"),
        ("yyyy hh a", "2016 13 pm"),
        ("yyyy MMM", "2016 Foo"),
        ("EEE yyyy", "Foo 2016"),
        ("yyyy z", "2016 Mars/Base"),
        ("yyyy DDD", "2015 366"),
        ("yyyy DDD", "2015 0"),
    ],
)
def test_a_field_out_of_range_does_not_roll_over(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"^not |does not fit"):
        SimpleDateFormat.compile(pattern).parse(text)


@pytest.mark.parametrize("pattern", ["", "yyyy'", "yyyy-QQ", "HH:mm", "yyyy yyyy", "GG yyyy"])
def test_a_pattern_that_is_not_understood_is_an_error_of_its_option(pattern: str) -> None:
    key = "flink.stream.initpos.timestamp.format"
    with pytest.raises(ConfigErrors, match=key):
        Properties.parse({key: pattern}, complete=False)


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_default_format_round_trips(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    text = moment.isoformat(timespec="milliseconds")
    assert parse_timestamp(text) == moment


@given(st.sampled_from(["yyyy-MM-dd HH:mm", "MMM d yy", "EEEE MMMM yyyy", "yyyyMMddHHmmssSSSZ"]))
def test_the_example_of_a_pattern_fits_it(pattern: str) -> None:
    compiled = SimpleDateFormat.compile(pattern)
    assert compiled.parse(compiled.example).year == 2024


def test_the_initial_position_carries_the_instant() -> None:
    properties = Properties.parse(
        {
            "flink.stream.initpos": "AT_TIMESTAMP",
            "flink.stream.initpos.timestamp": "04.07.2016",
            "flink.stream.initpos.timestamp.format": "dd.MM.yyyy",
        },
        complete=False,
    )
    assert InitialPositionConfig.from_properties(properties) == InitialPositionConfig(
        position=PositionType.AT_TIMESTAMP, timestamp=datetime(2016, 7, 4, tzinfo=UTC)
    )


def test_a_bad_timestamp_names_the_key_as_it_was_written() -> None:
    key = "flink.stream.initpos.timestamp"
    with pytest.raises(ConfigErrors, match=rf"{key}: 'soon' is not a timestamp"):
        Properties.parse({key: "soon"}, complete=False)
