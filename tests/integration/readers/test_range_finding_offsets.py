"""Rounds of looking, with the ranges taken from the offsets that a query would have written."""

from __future__ import annotations

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.aggregation.codec import aggregate_class, sealed
from kinesis_publishers.readers import Portion, ReadLimit
from kinesis_publishers.readers.ranges import finder
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault
from tests.integration.readers.range_query import Query
from tests.integration.readers.simulated_world import STREAM

HOUR = 3600.0
# More than the looks of one round read of a shard on their way to its end.
MANY = 9000


@pytest.fixture
async def query() -> Query:
    """A query that has read all of a stream's first records."""
    query = Query()
    query.put(30)
    await query.begin()
    await query.read_everything()
    return query


async def test_a_generation_that_came_and_went_while_the_query_was_down_is_read(
    query: Query,
) -> None:
    query.reshard(1)
    await query.clock.advance(1.0)
    await query.read_everything()
    for _ in range(2):
        query.put(MANY)
        await query.clock.advance(5.0)
    query.reshard(2)
    await query.clock.advance(5.0)
    query.put(30)
    for _ in range(2):
        await query.restart()
        await query.read_everything()
    assert query.read == query.stored()


async def test_one_round_for_everything_outlasts_a_shard_that_is_refused_for_long(
    query: Query,
) -> None:
    query.put(30)
    with query.service.lock:
        query.service.state.faults.add(Fault("GetRecords", "throttle", times=400))
    await query.read_everything()
    assert query.read == query.stored()


async def test_one_round_reads_on_where_only_the_old_position_has_left_the_retention(
    query: Query,
) -> None:
    for _ in range(3):
        await query.clock.advance(10 * HOUR)
        await query.restart()
        await query.read_everything()
    query.put(30)
    await query.restart()
    await query.read_everything()
    left = query.stored()
    assert {shard: numbers[-len(left[shard]) :] for shard, numbers in query.read.items()} == left


async def test_available_now_ends_although_a_producer_is_faster_than_the_limit(
    query: Query,
) -> None:
    query.put(300)
    await query.clock.advance(0.001)
    until, there = query.clock.now(), query.stored()
    limit = ReadLimit(records=40)
    for _ in range(200):
        found = await query.read_some(limit, until=until)
        if not found and query.finder.is_caught_up(until):
            break
        query.put(200)
        await query.clock.advance(1.0)
    else:
        raise AssertionError("it does not end")
    for shard, numbers in there.items():
        assert query.read[shard][: len(numbers)] == numbers


async def test_available_now_lists_the_children_of_shards_that_ended_before_it() -> None:
    query = Query(Behaviour(late_shard_end=True))
    query.put(30)
    await query.begin()
    query.reshard(1)
    query.put(30)
    await query.clock.advance(0.001)
    until = query.clock.now()
    for _ in range(200):
        if query.finder.is_caught_up(until):
            break
        await query.read_some(ReadLimit(), until=until)
        await query.clock.advance(1.0)
    else:
        raise AssertionError("it is never caught up")
    assert query.read == query.stored()


@pytest.mark.parametrize("limit", [ReadLimit(), ReadLimit(records=MANY)])
@pytest.mark.parametrize("patience_seconds", [None, 30.0])
async def test_the_children_of_shards_that_ended_without_a_record_are_read(
    limit: ReadLimit, patience_seconds: float | None
) -> None:
    query = Query(Behaviour(late_shard_end=True), patience_seconds=patience_seconds)
    query.reshard(1)
    query.put(30)
    await query.begin()
    for _ in range(10):
        await query.read_some(limit)
        await query.clock.advance(1.0)
    assert {shard: read for shard, read in query.read.items() if read} == query.stored()


async def test_available_now_lists_once_where_no_shard_ends(query: Query) -> None:
    query.put(30)
    await query.clock.advance(0.001)
    until = query.clock.now()
    query.service.calls.clear()
    await query.restart()
    for _ in range(5):
        await query.read_some(ReadLimit(), until=until)
        await query.clock.advance(1.0)
    assert query.finder.is_caught_up(until)
    assert len(query.service.calls.find("ListShards")) == 1


async def test_no_more_is_counted_than_the_limit_has_a_use_for(query: Query) -> None:
    query.put(MANY)
    fetched = query.records_fetched
    for _ in range(30):
        await query.read_some(ReadLimit(records=60))
        await query.clock.advance(1.0)
    # What waits for later rounds is a page for each of the two shards.
    assert query.records_fetched - fetched <= 30 * 60 + 2 * 120


async def test_the_retention_is_asked_for_once_per_stream_and_not_per_shard(query: Query) -> None:
    query.reshard(8)
    query.put(100)
    for _ in range(4):
        await query.clock.advance(1.0)
        await query.read_everything()
    query.service.calls.clear()
    await query.restart()
    await query.read_everything()
    assert len(query.service.calls.find("DescribeStreamSummary")) == 1


async def test_between_two_looks_nothing_is_asked(query: Query) -> None:
    await query.clock.advance(1.0)
    await query.read_some(ReadLimit())
    assert query.service.calls.find("GetRecords")
    query.service.calls.clear()
    for _ in range(5):
        await query.read_some(ReadLimit())
    assert query.service.calls.find() == []


@pytest.mark.parametrize("limit", [ReadLimit(), ReadLimit(records=MANY)])
async def test_a_shard_that_may_not_be_asked_yet_holds_up_no_round(
    query: Query, limit: ReadLimit
) -> None:
    held_up = 0.0
    for second in range(60):
        with query.service.lock:
            query.service.state.write(STREAM, [("key-0", b"x")])
            if second == 30:
                query.service.state.faults.add(Fault("GetRecords", "throttle", times=1))
        # The other shard is silent.
        for _ in range(5):
            await query.clock.advance(0.2)
            began_at = query.clock.monotonic()
            await query.read_some(limit)
            held_up = max(held_up, query.clock.monotonic() - began_at)
    # A step of the simulated time is a tenth of a second.
    assert held_up < 0.3
    assert query.read == query.stored()


@pytest.mark.parametrize("limit", [ReadLimit(), ReadLimit(records=MANY)])
async def test_an_aggregate_that_holds_nothing_is_in_a_range_like_any_other_record(
    query: Query, limit: ReadLimit
) -> None:
    empty = sealed(aggregate_class()(partition_key_table=["key-0"]).SerializeToString())
    for _ in range(3):
        with query.service.lock:
            query.service.state.write(STREAM, [("key-0", empty)])
        await query.clock.advance(1.0)
        await query.read_some(limit)
    assert query.read == query.stored()


async def test_many_shards_are_looked_at_in_groups(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two shards are many here. Each comes due once a second, one 100 ms after the other.
    monkeypatch.setattr(finder, "_LOOKS_PER_SECOND", 2)
    monkeypatch.setattr(finder, "_LOOKS_AT_ONCE", 1)
    monkeypatch.setattr(finder, "_GROUPS", 2)
    with query.service.lock:
        query.service.state.faults.add(Fault("GetRecords", "delay", delay_seconds=0.1))
    await query.clock.advance(1.0)
    await query.read_some(ReadLimit())
    query.service.calls.clear()
    looks: list[float] = []
    for _ in range(200):
        await query.clock.advance(0.01)
        await query.read_some(ReadLimit())
        done = len(query.service.calls.find("GetRecords"))
        looks += [query.clock.monotonic()] * (done - len(looks))
    first, second, *_ = looks
    assert first == second


async def test_a_lag_of_hours_shrinks_quickly_also_where_records_come_in_bursts(
    query: Query,
) -> None:
    for _ in range(90):
        await query.clock.advance(97.0)
        query.put(60)
    rounds = 0
    while query.read != query.stored():
        await query.clock.advance(1.0)
        await query.read_some(ReadLimit())
        rounds += 1
        assert rounds < 30


@pytest.mark.parametrize("instants", [60, 1])
async def test_a_burst_that_is_over_is_few_micro_batches(query: Query, instants: int) -> None:
    await query.clock.advance(5.0)
    await query.read_some(ReadLimit())
    fetched, batches = query.records_fetched, 0
    for _ in range(instants):
        query.put(MANY // instants)
        await query.clock.advance(0.001)
    while query.read != query.stored():
        await query.clock.advance(0.5)
        batches += bool(await query.read_some(ReadLimit()))
        # A jump that has found nothing at the tip does not say that the shard is read up to there.
        if query.read != query.stored():
            now, finder = query.clock.now(), query.finder
            assert finder.waiting_since or any(one.lag_seconds(now) for one in finder.statuses)
    assert batches <= 3
    # Beyond one instant the driver sees samples.
    assert query.records_fetched - fetched <= MANY // instants + 2500


async def test_what_came_before_a_silence_is_few_micro_batches(query: Query) -> None:
    for _ in range(600):
        query.put(10)
        await query.clock.advance(0.1)
    await query.clock.advance(40.0)
    fetched, batches = query.records_fetched, 0
    while query.read != query.stored():
        await query.clock.advance(0.5)
        batches += bool(await query.read_some(ReadLimit()))
    assert batches <= 4
    assert query.records_fetched - fetched <= 6000 * 1.1


async def test_the_first_range_of_a_query_that_lags_is_a_portion_too() -> None:
    horizon = Properties.parse(
        {
            "aws.region": "us-east-1",
            "kinesis.streams": STREAM,
            "kinesis.stream.initpos": "TRIM_HORIZON",
        }
    )
    query = Query(properties=horizon)
    for _ in range(100):
        query.put(100)
        await query.clock.advance(10.0)
    await query.begin()
    # A look reads more than comes at one instant, so that the rate is known.
    portion = Portion(payload_bytes=1, most_bytes=100_000)
    await query.read_some(ReadLimit(), portion)
    records = sum(map(len, query.read.values()))
    assert 0 < records < 5000, "of ten thousand"
