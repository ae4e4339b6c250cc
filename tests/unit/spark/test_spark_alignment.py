"""Shards that wait for each other in the prefetch planner, one fact at a time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import Delivery, Properties, ShardProgress, ShardStatus, StartingPosition
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard
from kinesis_publishers_spark.alignment import AlignedShards
from kinesis_publishers_spark.chunks import EVERYTHING, NOTHING
from kinesis_publishers_spark.fetched import FetchedRecords
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.micro_batches import Query, Session
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.prefetch import PrefetchSession
from kinesis_publishers_spark.ranges import RangeSession
from tests.unit.readers.fetcher_support import child_of
from tests.unit.spark.spark_builders import arrival, chunk, shard

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


@pytest.fixture
def query() -> Query:
    properties = Properties.parse({"aws.region": "eu-west-1", "kinesis.streams": "orders"})
    return Query(properties=properties, parallelism=1, clock=ServiceClock.around(None), guard=None)


@pytest.fixture
def aligned(query: Query) -> AlignedShards:
    return AlignedShards(query, lambda: None)


def status(number: int, seconds: float) -> ShardStatus:
    """Return the status of a shard that is read up to so many seconds after noon, and behind."""
    progress = ShardProgress(position=StartingPosition.trim_horizon(), as_of=arrival(seconds))
    return ShardStatus(shard=sample_shard(number), progress=progress, millis_behind_latest=1)


def test_a_shard_that_was_left_behind_is_waited_for_as_soon_as_it_moves(
    aligned: AlignedShards,
) -> None:
    aligned.observe(status(0, 1))
    aligned.observe(status(1, 9))
    assert aligned.until == arrival(1)
    aligned.lost.add(sample_shard(0).key)
    aligned.observe(status(0, 1))
    assert aligned.until == arrival(9)
    aligned.observe(status(0, 2))
    assert aligned.until == arrival(2)


async def test_a_shard_that_is_ahead_is_read_on_when_there_is_room(aligned: AlignedShards) -> None:
    pool, key = PendingPool(max_records=10, max_bytes=10), sample_shard(1).key
    taken = await pool.acquire(5, 5)
    aligned.observe(status(0, 1))
    aligned.observe(status(1, 9))
    waiting = asyncio.create_task(aligned.wait(key, pool))
    await asyncio.sleep(0)
    aligned.relieve(pool, lambda: False)
    await asyncio.sleep(0)
    assert not waiting.done()
    taken.release()
    aligned.relieve(pool, lambda: False)
    await waiting


async def test_eight_shards_at_a_time_are_read_beyond_the_pool(aligned: AlignedShards) -> None:
    pool = PendingPool(max_records=1, max_bytes=1)
    await pool.acquire(1, 1)
    waiting = []
    for number in range(20):
        aligned.observe(status(number, 1))
        waiting.append(asyncio.create_task(pool.acquire(1, 1, sample_shard(number).key)))
    await asyncio.sleep(0)
    for left, answers in ((12, False), (12, True), (11, False)):
        aligned.relieve(pool, lambda: True)
        assert pool.waiter_count == left
        if answers:
            aligned.observe(status(0, 1))
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)


def test_a_shard_whose_answer_shows_its_end_is_not_at_its_tip(aligned: AlignedShards) -> None:
    ending = evolve(status(0, 1), millis_behind_latest=0, child_shards=(child_of(0, number=1),))
    aligned.observe(ending)
    assert aligned.until == NOTHING
    aligned.observe(evolve(ending, child_shards=()))
    assert aligned.until == EVERYTHING


async def test_nobody_waits_where_a_publisher_does_not_know_when_records_arrived(
    query: Query,
) -> None:
    fetched, pool = FetchedRecords(query), PendingPool(max_records=10, max_bytes=999)
    batch = batch_of(sample_records(1), requested_at=arrival(-9e6))
    for has_arrival_times in (True, False):
        fetched.observe(status(1, 1))
        one = evolve(batch, has_arrival_times=has_arrival_times)
        room = await pool.acquire(1, 1)
        await fetched.deliver(Delivery(one, status(0, 9).progress, room))
        fetched.observe(status(0, 9))
        expected = arrival(1) if has_arrival_times else EVERYTHING
        assert fetched.aligned.until == expected


@pytest.mark.parametrize("session_class", [PrefetchSession, RangeSession])
def test_late_records_are_counted_from_one_session_to_the_next(
    query: Query, session_class: type[Session], local_kinesis: LocalKinesis
) -> None:
    local_kinesis.create_stream("orders")
    query.properties = Properties.parse(
        local_kinesis.properties("orders") | {"kinesis.stream.initpos": "TRIM_HORIZON"}
    )
    local_kinesis.put_many("orders", [("key", b"x")] * 3)
    for late, ahead in ((0, timedelta()), (3, timedelta(hours=1))):
        now = datetime.now(UTC)
        session = session_class(query, Offset(), now)
        try:
            planned = session.plan(session.begun, BatchLimit())
        finally:
            session.close()
        assert planned is not None
        assert query.late.total() == late
        assert query.aligned_until is not None
        assert now - timedelta(seconds=9) < query.aligned_until - ahead
        query.aligned_until += timedelta(hours=1)


def test_a_record_is_late_if_it_is_much_older(aligned: AlignedShards, query: Query) -> None:
    for seconds in (100, 86, 84):
        aligned.hand_out([chunk(shard(0), [seconds])])
    assert query.late == {shard(0): 1}
