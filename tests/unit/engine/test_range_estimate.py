"""How many records a range asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from kinesis_publishers import RecordBatch
from kinesis_publishers.engine.range_estimate import RangeEstimate
from kinesis_publishers.model import RangeSize
from kinesis_publishers.testing.fakes import FakeDataPlane, StoredShard, batch_of, sample_records
from kinesis_publishers.testing.fakes.samples import SUCCESSOR
from tests.unit.engine.consumer_support import RECORDS
from tests.unit.engine.range_support import polled, range_of
from tests.unit.readers.fetcher_support import POLLING

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def came(count: int, *, first: float, last: float, size: int = 10) -> RecordBatch:
    """Return records that came evenly between two seconds."""
    arrivals = [
        (BEGIN + timedelta(seconds=first + (last - first) * n / max(1, count - 1))).timestamp()
        for n in range(count)
    ]
    batch = batch_of(sample_records(1))
    columns = ("payloads", "partition_keys", "sequence_numbers")
    repeated = {name: list(getattr(batch, name)) * count for name in columns}
    repeated["payloads"] = [b"x" * size] * count
    return RecordBatch(
        shard=batch.shard,
        requested_at=batch.requested_at,
        arrival_epoch_seconds=arrivals,
        **repeated,
    )


def estimate(*batches: RecordBatch, size: RangeSize | None) -> RangeEstimate:
    result = RangeEstimate(size)
    for batch in batches:
        result.add(batch)
    return result


def looked_at(seconds: float, *, records: int | None = 500, seen: int = 10) -> RangeSize:
    since = BEGIN + timedelta(seconds=seconds)
    return RangeSize(records=records, seen_since=since, seen_records=seen)


def test_without_a_size_any_number_is_wanted() -> None:
    assert estimate(came(5, first=0, last=1), size=None).records_wanted is None
    assert estimate(size=looked_at(1, records=None)).records_wanted is None


def test_of_a_range_that_was_counted_exactly_the_rest_is_wanted() -> None:
    size = RangeSize(records=12)
    assert estimate(size=size).records_wanted == 12
    assert estimate(came(5, first=0, last=1), size=size).records_wanted == 7


def test_the_rest_of_a_range_follows_from_how_far_its_records_have_come() -> None:
    wanted = estimate(came(1000, first=0, last=1), size=looked_at(2, records=1)).records_wanted
    assert wanted is not None
    assert 1010 <= wanted <= 1100


def test_what_the_planner_has_seen_is_all_that_is_left_behind_its_look() -> None:
    seen = estimate(came(4000, first=0, last=2), size=looked_at(2, seen=300)).records_wanted
    assert seen == 299
    over = estimate(came(4000, first=0, last=2.1), size=looked_at(2)).records_wanted
    assert over == 200, "five per cent of what came, where the guess was too low"


def test_large_records_are_not_asked_for_by_the_hundred() -> None:
    large = came(2, first=0, last=3, size=1024 * 1024)
    assert estimate(large, size=looked_at(2, seen=1)).records_wanted == 1


def test_times_that_stand_still_say_little_about_what_follows() -> None:
    assert estimate(came(4000, first=1, last=1), size=looked_at(2)).records_wanted == 410


def test_a_burst_after_a_silence_is_not_asked_for_in_small_pieces() -> None:
    silence, burst = came(100, first=0, last=60), came(400, first=60, last=60.4)
    wanted = estimate(silence, burst, size=looked_at(70, seen=10)).records_wanted
    assert wanted is not None
    assert 9600 <= wanted <= 10_100


def test_what_was_put_at_once_is_not_taken_for_more_than_a_shard_can_be_written() -> None:
    steady, at_once = came(1000, first=0, last=10), came(400, first=10, last=10)
    wanted = estimate(steady, at_once, size=looked_at(12, seen=10)).records_wanted
    assert wanted is not None
    assert wanted <= 2.1 * 1000 + 10


async def test_a_range_fetches_nothing_behind_its_end() -> None:
    plane = FakeDataPlane(StoredShard(RECORDS))
    world = polled(plane)
    await world.read(evolve(range_of(1, 6), size=RangeSize(records=5)))
    assert world.sink.records == RECORDS[2:7]
    assert [call.limit for call in plane.records_calls] == [5]


async def test_the_rest_of_a_shard_is_not_asked_for_by_a_guess() -> None:
    plane = FakeDataPlane(StoredShard(RECORDS, is_closed=True, child_shards=(SUCCESSOR,)))
    world = polled(plane)
    await world.read(evolve(range_of(1, None), size=RangeSize(records=2)))
    assert world.sink.records == RECORDS[2:]
    assert {call.limit for call in plane.records_calls} == {POLLING.max_records}


@pytest.mark.parametrize("guess", [1, 2, 100])
async def test_a_range_is_exact_however_wrong_the_guess(guess: int) -> None:
    world = polled(FakeDataPlane(StoredShard(RECORDS)))
    size = RangeSize(records=guess, seen_since=RECORDS[0].approximate_arrival_timestamp)
    await world.read(evolve(range_of(1, 6), size=size))
    assert world.sink.records == RECORDS[2:7]
