"""The allowance of one shard, without a producer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.producing.limiter import (
    BYTES_PER_SECOND,
    RECORDS_PER_SECOND,
    ShardLimiter,
)

_BURST = 0.05


def send(limiter: ShardLimiter, size: int, seconds: float) -> list[tuple[float, int]]:
    """Send records of one size as fast as it may be done; return when how many were sent."""
    now, sent = 0.0, []
    while now < seconds:
        delay = limiter.delay(10_000, 10_000 * size, size, now)
        if delay > 0:
            now += max(delay, 1e-3)
            continue
        records, most_bytes = limiter.allowance()
        count = max(1, min(records, most_bytes // size))
        limiter.take(count, count * size)
        sent.append((now, count))
    return sent


@given(
    st.sampled_from([1, 100, 1_048, 5_000, 40_000]),
    st.sampled_from([0.25, 0.5, 1.0, 1.5]),
)
def test_no_second_has_more_than_the_rate_and_no_second_has_much_less(
    size: int, rate: float
) -> None:
    sent = send(ShardLimiter(rate, False, 0.0), size, 10.0)
    most = rate * min(RECORDS_PER_SECOND, BYTES_PER_SECOND / size)
    for start, _ in sent:
        second = sum(count for at, count in sent if start <= at < start + 1)
        assert second <= most * (1 + _BURST) + 1
    assert sum(count for _, count in sent) >= 0.95 * most * 10


def test_a_record_that_is_larger_than_the_burst_is_paid_for_afterwards() -> None:
    sent = send(ShardLimiter(1.0, False, 0.0), 524_288, 20.0)
    assert [count for _, count in sent] == [1] * len(sent)
    # Two a second.
    assert 38 <= len(sent) <= 41


def test_what_was_not_used_is_not_saved_up() -> None:
    limiter = ShardLimiter(1.0, False, 0.0)
    limiter.delay(1, 1, 1, 3600.0)
    assert limiter.allowance() == (50, int(BYTES_PER_SECOND * _BURST))


def test_a_refusal_lowers_the_rate_by_half_of_the_refused_share_and_time_raises_it() -> None:
    limiter = ShardLimiter(1.0, True, 0.0)
    limiter.lower(1.0, sent_at=1.0, now=1.0)
    assert limiter.factor == pytest.approx(0.5)
    # A call that was under way says nothing about the lower rate.
    limiter.lower(1.0, sent_at=0.9, now=1.0)
    assert limiter.factor == pytest.approx(0.5)
    limiter.lower(0.5, sent_at=1.01, now=1.01)
    assert limiter.factor == pytest.approx(0.375, abs=0.01)
    limiter.delay(1, 1, 1, 3.01)
    assert limiter.factor == pytest.approx(0.575, abs=0.01)
    limiter.delay(1, 1, 1, 60.0)
    assert limiter.factor == 1.0


def test_a_shard_that_refuses_everything_is_still_asked() -> None:
    limiter = ShardLimiter(1.0, True, 0.0)
    for second in range(100):
        limiter.lower(1.0, sent_at=second + 0.5, now=second + 0.6)
    assert limiter.factor >= 0.05
    assert limiter.allowance()[0] >= 1


def test_without_adaptation_refusals_change_nothing() -> None:
    limiter = ShardLimiter(1.0, False, 0.0)
    limiter.lower(1.0, sent_at=1.0, now=1.0)
    assert limiter.factor == 1.0
