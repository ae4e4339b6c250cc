"""When to ask next and how much to ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.publishers.polling import (
    MAX_PAGE_BYTES,
    MIN_PAGE_BYTES,
    adapted_limit,
    expected_page,
    period_after,
)

MEBIBYTE = 1024 * 1024
SECONDS = st.floats(0, 100)
COUNTS = st.integers(0, 10_000)
SIZES = st.integers(0, MAX_PAGE_BYTES)


@pytest.mark.parametrize("lag", [0, 999, None])
def test_the_tip_is_polled_with_the_configured_period(lag: int | None):
    assert period_after(0.4, is_cut=False, millis_behind_latest=lag, silent_seconds=6) == 0.4


@pytest.mark.parametrize(("is_cut", "lag"), [(True, 0), (True, None), (False, 1000)])
def test_behind_the_tip_only_the_limits_are_waited_for(*, is_cut: bool, lag: int | None):
    assert period_after(5, is_cut=is_cut, millis_behind_latest=lag, silent_seconds=99) == 0


@pytest.mark.parametrize(
    ("silent_seconds", "period"), [(0, 0.2), (4, 0.2), (10, 0.5), (20, 1.0), (1e6, 1.0)]
)
def test_a_silent_shard_is_polled_less_often_but_once_a_second(
    silent_seconds: float, period: float
):
    chosen = period_after(0.2, is_cut=False, millis_behind_latest=0, silent_seconds=silent_seconds)
    assert chosen == pytest.approx(period)


def test_a_configured_period_beyond_a_second_holds_for_silent_shards_too():
    assert period_after(60, is_cut=False, millis_behind_latest=0, silent_seconds=1e6) == 60


def test_the_limit_uses_the_two_mebibytes_per_second_of_a_shard():
    limit = adapted_limit(
        10_000, records=100, payload_bytes=MEBIBYTE, loop_seconds=0.5, maximum=10_000
    )
    assert limit == 100


def test_payloads_without_length_allow_the_maximum():
    assert adapted_limit(5, records=10, payload_bytes=0, loop_seconds=1, maximum=800) == 800


@pytest.mark.parametrize(("records", "loop_seconds"), [(0, 1.0), (10, 0.0)])
def test_an_answer_that_says_nothing_keeps_the_limit(records: int, loop_seconds: float):
    limit = adapted_limit(
        77, records=records, payload_bytes=500, loop_seconds=loop_seconds, maximum=10_000
    )
    assert limit == 77


@given(COUNTS, SIZES, SECONDS, st.integers(1, 10_000), st.data())
def test_the_limit_stays_between_one_and_the_configured_maximum(
    records: int, payload_bytes: int, seconds: float, maximum: int, data: st.DataObject
):
    current = data.draw(st.integers(1, maximum))
    limit = adapted_limit(
        current,
        records=records,
        payload_bytes=payload_bytes,
        loop_seconds=seconds,
        maximum=maximum,
    )
    assert 1 <= limit <= maximum


def test_room_for_twice_the_last_answer_is_asked_for():
    assert expected_page(1000, MEBIBYTE, 10_000) == (2000, 2 * MEBIBYTE)


@given(COUNTS, SIZES, st.integers(1, 10_000))
def test_room_never_exceeds_what_an_answer_can_be(records: int, payload_bytes: int, limit: int):
    expected_records, expected_bytes = expected_page(records, payload_bytes, limit)
    assert 1 <= expected_records <= limit
    assert MIN_PAGE_BYTES <= expected_bytes <= MAX_PAGE_BYTES
