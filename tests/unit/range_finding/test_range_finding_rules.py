"""Where a probe looks, and how much it asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.readers.range_ends.rules import (
    Portion,
    Sample,
    Weight,
    cut_instants,
    expected_bytes,
    is_divisible,
    is_narrow,
    is_small_tail,
    is_within_reach,
    jump_target,
    latest_end,
    reach_seconds,
    rest_limit,
    sampled,
    tail_limit,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FAST = Sample(bytes_per_second=1024 * 1024, record_bytes=1024, user_record_bytes=1024)
SLOW = Sample(bytes_per_second=1024, record_bytes=1024, user_record_bytes=1024)


def read_until(seconds_ago: float) -> ShardProgress:
    position = StartingPosition.after(SequenceNumber("7"))
    return ShardProgress(position=position, as_of=NOW - timedelta(seconds=seconds_ago))


def target(
    progress: ShardProgress,
    *,
    sample: Sample | None = SLOW,
    nothing_since: datetime | None = None,
    is_bounded: bool = True,
    misses: int = 0,
) -> float | None:
    """Return how many seconds ago the target is."""
    latest = latest_end(progress, NOW, sample, Portion() if is_bounded else None)
    found = jump_target(progress, latest, nothing_since, misses=misses)
    return None if found is None else (NOW - found).total_seconds()


def test_a_shard_that_is_nearly_read_is_looked_at_just_behind_now() -> None:
    assert target(read_until(10)) == pytest.approx(0.2)


def test_nothing_is_jumped_over_where_the_last_record_is_newer_than_the_target() -> None:
    assert target(read_until(0.1)) is None


@pytest.mark.parametrize(
    "position", [StartingPosition.trim_horizon(), StartingPosition.at_timestamp(NOW)]
)
def test_the_first_record_of_a_shard_is_read_and_not_jumped_over(
    position: StartingPosition,
) -> None:
    assert target(ShardProgress(position=position, as_of=NOW - timedelta(hours=1))) is None


def test_a_lagging_range_of_a_fast_shard_covers_half_a_minute() -> None:
    assert target(read_until(3600), sample=FAST) == pytest.approx(3600 - 32)


def test_a_lagging_range_of_a_slow_shard_covers_as_many_bytes() -> None:
    hours = reach_seconds(SLOW, Portion()) / 3600
    assert hours == pytest.approx(32 * 1024 / 3600)
    assert target(read_until(24 * 3600)) == pytest.approx(24 * 3600 - hours * 3600)


def test_a_portion_is_shared_by_the_shards_that_lag() -> None:
    mib = 1024 * 1024
    portion = Portion(payload_bytes=800 * mib, most_bytes=1000 * mib)
    assert reach_seconds(FAST, portion.share(4)) == 200.0
    assert reach_seconds(FAST, portion.share(30)) == 32.0, "less is not worth a micro-batch"
    assert reach_seconds(FAST, portion.share(100)) == 10.0, "all together are not too much"


def test_a_portion_follows_the_rate_of_the_one_before() -> None:
    portion = Portion(most_bytes=7e9).after(100_000_000, 2.0, target_seconds=10.0)
    assert portion == Portion(payload_bytes=500e6, most_bytes=7e9, least_seconds=4.0)
    small = portion.after(1000, 1.0, target_seconds=10.0)
    assert small == Portion(payload_bytes=500e6, most_bytes=7e9, least_seconds=2.0)


def test_a_query_that_comes_seldom_takes_more_than_has_come_meanwhile() -> None:
    assert reach_seconds(FAST, Portion(most_bytes=1, least_seconds=600).share(4)) == 600.0


@pytest.mark.parametrize("faster", [1.2, 1.5, 3.0])
def test_micro_batches_stay_bounded_where_spark_is_little_faster_than_the_stream(
    faster: float,
) -> None:
    shards, portion = 100, Portion(most_bytes=512 * 1024 * 1024)
    for _ in range(50):
        reach = reach_seconds(FAST, portion.share(shards))
        seconds = reach / faster
        size = int(reach * FAST.bytes_per_second * shards)
        portion = portion.after(size, seconds, target_seconds=10.0)
        assert seconds <= 300.0


@pytest.mark.parametrize("interval", [1.0, 60.0, 3600.0])
def test_a_query_catches_up_whatever_the_interval_of_its_trigger(interval: float) -> None:
    portion = Portion(most_bytes=1).after(1000, interval, target_seconds=10.0)
    assert reach_seconds(FAST, portion) >= interval + min(interval, 60.0)
    portion = portion.after(1000, interval, target_seconds=interval)
    assert reach_seconds(FAST, portion) == 2 * interval, "as many as the user asks for"


def test_without_a_sample_the_shard_is_taken_for_a_fast_one() -> None:
    assert reach_seconds(None, Portion()) == 32.0


def test_a_look_for_everything_jumps_to_the_tip_however_far() -> None:
    assert target(read_until(23 * 3600), sample=FAST, is_bounded=False) == pytest.approx(0.2)


def test_where_nothing_came_lately_the_jump_halves_what_is_left() -> None:
    nothing_since = NOW - timedelta(seconds=20)
    assert target(read_until(60), nothing_since=nothing_since) == pytest.approx(40)


def test_a_burst_that_the_jumps_miss_is_sought_nearer_and_nearer() -> None:
    nothing_since = NOW - timedelta(seconds=52)
    found = [target(read_until(60), nothing_since=nothing_since, misses=n) for n in range(4)]
    assert found == [56.0, 59.0, 59.75, 59.9375]
    assert target(read_until(60), nothing_since=nothing_since, misses=9) == 59.999


def test_the_end_of_a_burst_is_read_where_that_is_little() -> None:
    silent_since = NOW - timedelta(seconds=59)
    assert rest_limit(FAST, read_until(60), silent_since) == 1024, "records of 1 KiB in a MiB"
    assert rest_limit(FAST, read_until(61), silent_since) is None, "two seconds have 2 MiB"
    assert rest_limit(None, read_until(60), silent_since) is None


def test_times_divide_a_burst_down_to_the_instant() -> None:
    progress = read_until(60)
    for millis, divides in ((0, False), (1.5, False), (2, True)):
        nothing_since = NOW - timedelta(seconds=60, milliseconds=-millis)
        assert is_divisible(progress, nothing_since) is divides
        assert is_narrow(progress, nothing_since) is (0 < millis < 2)
    assert target(progress, nothing_since=NOW - timedelta(seconds=59.9985)) is None
    assert target(progress, nothing_since=NOW - timedelta(seconds=59.998)) == 59.999


def test_an_old_answer_about_an_empty_time_does_not_hold_the_jump_back() -> None:
    assert target(read_until(60), nothing_since=NOW - timedelta(seconds=61)) == pytest.approx(0.2)


def test_a_closed_shard_is_read_to_its_end_when_little_is_left() -> None:
    assert is_within_reach(read_until(31), NOW, FAST, Portion())
    assert not is_within_reach(read_until(33), NOW, FAST, Portion())
    assert is_within_reach(read_until(33), NOW, FAST, None)


def test_a_closed_shard_is_not_finished_before_its_first_record_was_seen() -> None:
    progress = ShardProgress(position=StartingPosition.trim_horizon(), as_of=NOW)
    assert not is_within_reach(progress, NOW, SLOW, None)


def test_samples_are_averaged_and_never_faster_than_a_shard_can_be() -> None:
    first = sampled(None, [Weight(100)] * 10, seconds=10)
    assert first == Sample(bytes_per_second=100, record_bytes=100, user_record_bytes=100)
    second = sampled(first, [Weight(200)] * 10, seconds=10)
    assert second is not None
    assert 100 < second.bytes_per_second < 200
    burst = sampled(None, [Weight(10**6)] * 10, seconds=0)
    assert burst is not None
    assert burst.bytes_per_second == 1024 * 1024
    assert sampled(first, [], seconds=1) is first


def test_an_aggregate_is_a_large_record_of_small_ones() -> None:
    found = sampled(None, [Weight(1000, 19), Weight(500)], seconds=1)
    assert found == Sample(bytes_per_second=1500, record_bytes=750, user_record_bytes=75)


def test_an_aggregate_that_holds_nothing_is_no_number_to_divide_by() -> None:
    found = sampled(None, [Weight(100, 0)], seconds=1)
    assert found == Sample(bytes_per_second=100, record_bytes=100, user_record_bytes=100)


def cuts(payload_bytes: int, piece_records: int, sample: Sample = FAST) -> list[float]:
    """Return how far into a range it is cut, in seconds."""
    found = cut_instants(sample, NOW, payload_bytes, piece_records)
    return [(one - NOW).total_seconds() for one in found]


def test_a_large_range_is_cut_into_even_pieces_of_so_many_records_at_most() -> None:
    mib = 1024 * 1024
    assert cuts(30 * mib, 30 * 1024) == []
    assert cuts(31 * mib, 30 * 1024) == [15.5]
    assert cuts(40 * mib, 16 * 1024) == [pytest.approx(40 / 3), pytest.approx(80 / 3)]
    assert cuts(200 * mib, 16 * 1024) == [50, 100, 150], "more tasks would wait for the shard"


def test_what_is_cut_is_aggregates_by_what_is_inside() -> None:
    mib = 1024 * 1024
    aggregates = Sample(bytes_per_second=mib, record_bytes=10_240, user_record_bytes=102.4)
    assert cuts(40 * mib, 200_000, aggregates) == [pytest.approx(40 / 3), pytest.approx(80 / 3)]


def test_no_piece_is_less_than_one_answer_may_have() -> None:
    mib = 1024 * 1024
    assert cuts(19 * mib, 1) == []
    assert cuts(31 * mib, 1) == [pytest.approx(31 / 3), pytest.approx(62 / 3)]
    tiny = Sample(bytes_per_second=1000, record_bytes=10, user_record_bytes=10)
    assert cuts(199_999, 1, tiny) == []
    assert cuts(200_000, 1, tiny) == [100]


def test_empty_payloads_have_a_size_to_divide_by() -> None:
    empty = sampled(None, [Weight(0), Weight(0)], seconds=1)
    assert empty is not None
    assert tail_limit(empty) == 100


def test_a_look_at_large_records_asks_for_few() -> None:
    large = Sample(bytes_per_second=1.0, record_bytes=1024 * 1024, user_record_bytes=1.0)
    assert tail_limit(large) == 1
    assert tail_limit(FAST) == 100
    assert tail_limit(FAST, is_jump=True) == 10


def test_a_small_tail_is_small_in_records_and_in_bytes() -> None:
    assert is_small_tail(50, 1000)
    assert not is_small_tail(51, 1000)
    assert not is_small_tail(2, 129 * 1024)


def test_the_size_of_a_range_follows_from_its_time_and_the_rate() -> None:
    start, end = (
        read_until(60),
        ShardProgress(
            position=StartingPosition.after(SequenceNumber("9")), as_of=NOW - timedelta(seconds=10)
        ),
    )
    assert expected_bytes(SLOW, start.as_of, end, NOW) == 50 * 1024
    assert expected_bytes(SLOW, start.as_of, start.ended(), NOW) == 60 * 1024
    assert expected_bytes(None, start.as_of, end, NOW) == 0
    assert expected_bytes(SLOW, None, end, NOW) == 0
