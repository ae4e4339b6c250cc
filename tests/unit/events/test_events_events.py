"""What a fetcher and its shards report about themselves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kinesis_publishers import Delivery, SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import AccessDeniedError, InternalServiceError
from kinesis_publishers.events import (
    BackpressureBegan,
    BackpressureEnded,
    CallRetried,
    FetcherStarted,
    FetcherStopped,
    PoolUsed,
    ProcessingFailed,
    RecordsProcessed,
    ShardEnded,
    ShardStopped,
    StreamPrepared,
)
from kinesis_publishers.testing.fakes import (
    FailingCalls,
    RecordingSink,
    StoredShard,
    finish,
    sample_shard,
    shard_name,
)
from tests.unit.engine.consumer_support import reader_of, run_of
from tests.unit.readers.fetcher_support import Blocks, World, failure, progress_of, records_of

TRIM_HORIZON = StartingPosition.trim_horizon()


async def test_a_fetcher_reports_when_it_starts_and_when_it_has_stopped() -> None:
    world = World()
    world.add(0)
    async with world.running():
        await world.clock.advance(7.0)
    assert world.events[0] == FetcherStarted(streams=("orders",))
    assert world.events[-1] == FetcherStopped(streams=("orders",), seconds=7.0, error=None)


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_a_stream_is_reported_once_its_shards_are_known(is_resumed: bool) -> None:
    world = World()
    world.add(0)
    world.add(1)
    known = progress_of(world.stream, s0=ShardProgress(position=TRIM_HORIZON))
    await world.fetcher(known if is_resumed else None).prepare()
    arn = world.stream.arn
    prepared = StreamPrepared(stream_arn=arn, shards=2, is_resumed=is_resumed)
    assert world.events_of(StreamPrepared) == [prepared]


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (StartingPosition.latest(), "LATEST (2026-01-01 00:00:00 UTC)"),
        (StartingPosition.trim_horizon(), "TRIM_HORIZON"),
        (None, "where they were left"),
    ],
)
async def test_it_says_once_what_is_read_and_from_where(
    caplog: pytest.LogCaptureFixture, start: StartingPosition | None, said: str
):
    world = World(initial_position=start or StartingPosition.latest())
    world.add(0)
    world.add(1)
    resume = None
    if start is None:
        left = ShardProgress(position=StartingPosition.trim_horizon())
        resume = progress_of(world.stream, s0=left, s1=left)
    with caplog.at_level(logging.INFO, "kinesis_publishers.readers.shard_table"):
        await world.fetcher(resume).prepare()
    assert caplog.messages == [f"Reading orders from {said}."]


async def test_a_listing_that_is_repeated_is_reported_with_its_error() -> None:
    world = World()
    world.control_plane.errors = [None, failure(InternalServiceError, "ListShards")]
    async with world.running():
        await world.clock.advance(2.0)
    (retried,) = world.events_of(CallRetried)
    assert (retried.operation, retried.code) == ("ListShards", "InternalServiceError")
    assert (retried.attempt, retried.shard) == (1, None)
    assert retried.delay_seconds <= 0.3


async def test_a_shard_that_is_stopped_reports_where_a_later_reader_goes_on() -> None:
    world = World()
    world.add(0)
    async with world.running():
        await world.clock.advance(1.0)
    last = SequenceNumber(records_of(0)[-1].sequence_number)
    stopped = ShardStopped(
        shard=sample_shard().key, position=StartingPosition.after(last), error=None
    )
    assert world.events_of(ShardStopped) == [stopped]
    assert world.events_of(ShardEnded) == []


async def test_a_failure_is_reported_of_its_shard_and_of_the_fetcher_and_of_no_other() -> None:
    world = World()
    refused = FailingCalls(StoredShard(), on_read=(None, failure(AccessDeniedError)))
    world.add(0, behaviour=refused)
    world.add(1)
    with pytest.raises(AccessDeniedError):
        await finish(world.fetcher().run(), world.clock)
    errors = {one.shard.shard_id: one.error for one in world.events_of(ShardStopped)}
    failed = "AccessDeniedError: GetRecords failed"
    assert errors == {shard_name(0): failed, shard_name(1): None}
    (stopped,) = world.events_of(FetcherStopped)
    assert stopped.error == failed


async def test_a_delivery_is_reported_with_the_time_that_the_application_took() -> None:
    async def takes_three_seconds(delivery: Delivery) -> None:
        await reader.clock.sleep(3.0)

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(takes_three_seconds))
    await reader.read()
    processed = RecordsProcessed(shard=sample_shard().key, records=4, payload_bytes=40, seconds=3.0)
    assert [one for one in reader.events if isinstance(one, RecordsProcessed)] == [processed]


async def test_an_application_that_raises_is_reported_and_has_processed_nothing() -> None:
    async def fails(delivery: Delivery) -> None:
        raise LookupError("no such customer")

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(fails))
    with pytest.raises(LookupError):
        await reader.read()
    of_deliveries = [
        one for one in reader.events if isinstance(one, RecordsProcessed | ProcessingFailed)
    ]
    failed = ProcessingFailed(
        shard=sample_shard().key, records=4, error="LookupError: no such customer"
    )
    assert of_deliveries == [failed]


async def test_waiting_for_room_is_reported_from_its_beginning_to_its_end() -> None:
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks), pool=PendingPool(max_records=1, max_bytes=1))
    world.add(0)
    world.add(1)
    async with world.running():
        await world.clock.advance(5.0)
        (began,) = world.events_of(BackpressureBegan)
        assert began.shard == sample_shard(1).key
        # The pool is more than full: a small page is asked for.
        assert (began.records, began.payload_bytes) == (100, 10 * 1024 * 1024)
        assert world.events_of(BackpressureEnded) == []
        blocks.gate.set()
        await world.clock.advance(0.1)
        ended = world.events_of(BackpressureEnded)[0]
    assert ended.shard == sample_shard(1).key
    assert ended.seconds == pytest.approx(5.0)


async def test_a_pool_reports_its_use_when_a_delivery_has_come_and_when_it_is_released() -> None:
    events: list[object] = []
    pool = PendingPool(max_records=10, max_bytes=100, events=events.append)
    reservation = await pool.acquire(8, 80)
    waiter = asyncio.create_task(pool.acquire(9, 90))
    await asyncio.sleep(0)
    reservation.resize(2, 20)
    reservation.release()
    await waiter
    limits = {"max_records": 10, "max_bytes": 100}
    assert events == [
        PoolUsed(records=2, payload_bytes=20, waiters=1, **limits),
        PoolUsed(records=9, payload_bytes=90, waiters=0, **limits),
    ]
