"""Numbers, times and texts as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.cli.shared.console import printable
from kinesis_publishers.cli.shared.formats import (
    format_behind,
    format_bytes,
    format_rate,
    format_share,
    hash_key_share,
    iso_utc,
)


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min"),
        (3_599_999, "59 min 59 s"),
        (3_600_000, "1 h"),
        (3_601_000, "1 h"),
        (90_061_000, "1 d 1 h"),
    ],
)
def test_a_distance_from_the_tip_has_at_most_two_units(millis: int | None, text: str) -> None:
    assert format_behind(None if millis is None else millis / 1000) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (3e15, "2728.5 TiB"),
    ],
)
def test_a_size_is_in_the_largest_unit_of_which_there_is_one(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0"), (0.04, "0.0"), (9.94, "9.9"), (12.4, "12"), (12345, "12,345")]
)
def test_a_small_rate_has_a_decimal(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (0, 2**128 - 1, "100 %"),
        (0, 2**127 - 1, "50 %"),
        (2**126, 2**126 + 2**125 - 1, "12.5 %"),
        (0, 2**128 // 3, "33.33 %"),
        (7, 7, "0 %"),
    ],
)
def test_a_range_of_hash_keys_is_a_percentage(start: int, end: int, text: str) -> None:
    assert format_share(hash_key_share(str(start), str(end))) == text


def test_a_time_is_shown_in_utc() -> None:
    instant = datetime(2026, 11, 22, 3, 2, 1, 5000, timezone(timedelta(hours=2)))
    assert iso_utc(instant) == "2026-11-22T01:02:01.005000Z"
    assert iso_utc(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("an order, grüße 🎉", "an order, grüße 🎉"),
        ("two\nlines\t", r"two\nlines\t"),
        ("\x1b[31mred\x1b[0m", r"\u001b[31mred\u001b[0m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        (r"C:\new", r"C:\new"),
        (b"\xff\x00".decode("utf-8", "surrogateescape"), r"\xff\u0000"),
        ("a\u00a0b", "a\u00a0b"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_every_text_stays_on_one_line(text: str) -> None:
    assert len(printable(text).splitlines()) <= 1
