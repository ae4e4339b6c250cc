"""Where a probe looks, and how much it asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers.engine.alignment import Weight
from kinesis_publishers.readers.ranges.rules import (
    Portion,
    Sample,
    cut_instants,
    expected_bytes,
    is_little,
    is_small_tail,
    portion_end,
    sampled,
    tail_limit,
)

MIB = 1024 * 1024
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FAST = Sample(bytes_per_second=1024 * 1024, record_bytes=1024, user_record_bytes=1024)
SLOW = Sample(bytes_per_second=1024, record_bytes=1024, user_record_bytes=1024)


def end_after(portion: Portion, *places: tuple[float, Sample | None]) -> float:
    """Return how many seconds after NOW a portion ends of shards that stand so long after it."""
    found = [(NOW + timedelta(seconds=seconds), sample) for seconds, sample in places]
    return (portion_end(found, portion) - NOW).total_seconds()


def test_a_portion_ends_where_all_shards_together_have_enough() -> None:
    assert end_after(Portion(), (0, FAST)) == 32.0
    assert end_after(Portion(), (0, None)) == 32.0, "an unknown shard is taken for a fast one"
    assert end_after(Portion(), (0, FAST), (0, FAST)) == 32.0
    assert end_after(Portion(), (0, FAST), (10, FAST)) == 37.0
    assert end_after(Portion(), (0, FAST), (3600, FAST)) == 64.0, "one waits for the other"
    assert end_after(Portion(), (0, SLOW)) == 32 * 1024
    assert end_after(Portion(), (0, SLOW), (0, FAST)) == pytest.approx(64 * 1024 / 1025, abs=0.001)


def test_a_portion_has_as_much_as_is_asked_for_within_its_bounds() -> None:
    assert end_after(Portion(payload_bytes=100 * MIB), (0, FAST)) == 100.0
    assert end_after(Portion(payload_bytes=100 * MIB, most_bytes=50 * MIB), (0, FAST)) == 50.0
    assert end_after(Portion(most_bytes=MIB, least_seconds=600), (0, FAST)) == 600.0
    assert end_after(Portion(most_bytes=1), (0, FAST)) == 0.001, "later than where it begins"


def test_a_portion_follows_the_rate_of_the_one_before() -> None:
    portion = Portion(most_bytes=7e9).after(100_000_000, 2.0, target_seconds=10.0)
    assert portion == Portion(payload_bytes=500e6, most_bytes=7e9, least_seconds=4.0)
    small = portion.after(1000, 1.0, target_seconds=10.0)
    assert small == Portion(payload_bytes=500e6, most_bytes=7e9, least_seconds=2.0)


@pytest.mark.parametrize("faster", [1.2, 1.5, 3.0])
def test_micro_batches_stay_bounded_where_spark_is_little_faster_than_the_stream(
    faster: float,
) -> None:
    portion = Portion(most_bytes=512 * MIB)
    for _ in range(50):
        reach = end_after(portion, *[(0, FAST)] * 100)
        seconds = reach / faster
        portion = portion.after(int(reach * MIB * 100), seconds, target_seconds=10.0)
        assert seconds <= 300.0


@pytest.mark.parametrize("interval", [1.0, 60.0, 3600.0])
def test_a_query_catches_up_whatever_the_interval_of_its_trigger(interval: float) -> None:
    portion = Portion(most_bytes=1).after(1000, interval, target_seconds=10.0)
    assert end_after(portion, (0, FAST)) >= interval + min(interval, 60.0)
    portion = portion.after(1000, interval, target_seconds=interval)
    assert end_after(portion, (0, FAST)) == 2 * interval, "as many as the user asks for"


def test_what_is_little_is_read_and_not_jumped_over() -> None:
    assert is_little(FAST, 1.0)
    assert not is_little(FAST, 1.1)
    assert is_little(SLOW, 100.0, records=100)
    assert not is_little(SLOW, 101.0, records=100)
    assert is_little(None, 1.0)
    assert not is_little(None, 1.1)


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
    assert cuts(30 * MIB, 30 * 1024) == []
    assert cuts(31 * MIB, 30 * 1024) == [15.5]
    assert cuts(40 * MIB, 16 * 1024) == [pytest.approx(40 / 3), pytest.approx(80 / 3)]
    assert cuts(200 * MIB, 16 * 1024) == [50, 100, 150], "more tasks would wait for the shard"


def test_what_is_cut_is_aggregates_by_what_is_inside() -> None:
    aggregates = Sample(bytes_per_second=MIB, record_bytes=10_240, user_record_bytes=102.4)
    assert cuts(40 * MIB, 200_000, aggregates) == [pytest.approx(40 / 3), pytest.approx(80 / 3)]


def test_no_piece_is_less_than_one_answer_may_have() -> None:
    assert cuts(19 * MIB, 1) == []
    assert cuts(31 * MIB, 1) == [pytest.approx(31 / 3), pytest.approx(62 / 3)]
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
    begin, until = NOW - timedelta(seconds=60), NOW - timedelta(seconds=10)
    assert expected_bytes(SLOW, begin, until) == 50 * 1024
    assert expected_bytes(None, begin, until) == 0
    assert expected_bytes(SLOW, None, until) == 0
