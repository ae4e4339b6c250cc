"""Exact ranges of one shard: the same records each time, or an error."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from kinesis_publishers import RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.errors import (
    AccessDeniedError,
    PositionTrimmedError,
    PublisherCancelledError,
    ReplayMismatchError,
    ShardNotFoundError,
)
from kinesis_publishers.testing.fakes import (
    FakeDataPlane,
    RecordingSink,
    ScriptedPublisherFactory,
    ScriptedRun,
    StoredShard,
    batch_of,
    finish,
)
from tests.unit.engine.consumer_support import RECORDS, place, run_of
from tests.unit.engine.range_support import RangeWorld, losses, polled, range_of, scripted


@pytest.mark.parametrize(
    "runs",
    [
        [run_of((2, 10), lag=5)],
        [run_of((2, 4), lag=5), run_of((4, 10), lag=5)],
        [run_of((2, 7), lag=5)],
        [run_of((2, 7))],
        [run_of((2, 2), lag=5), run_of((2, 5), (5, 8), lag=5)],
        [run_of((0, 10))],
    ],
    ids=["more follows", "two answers", "exact", "at the tip", "empty first", "more before"],
)
async def test_a_range_is_cut_at_its_end_to_the_record(runs: list):
    world = scripted(*runs)
    await world.read(range_of(1, 6))
    assert world.sink.records == RECORDS[2:7]
    assert world.sink.deliveries[-1].progress.processed == place(6)


@pytest.mark.parametrize(
    "runs",
    [
        [run_of((2, 10), lag=5)],
        [run_of((2, 6), lag=5), run_of((6, 10), lag=5)],
        [run_of((2, 7))],
        [run_of((0, 10))],
    ],
    ids=["more follows", "two answers", "at the tip", "more before"],
)
async def test_a_range_may_end_before_a_record_with_which_the_next_one_begins(runs: list):
    world = scripted(*runs)
    await world.read(evolve(range_of(1, 6), excludes_end=True))
    assert world.sink.records == RECORDS[2:6]


async def test_a_range_may_be_empty_before_the_record_that_ends_it():
    world = scripted(run_of((6, 10), lag=5))
    await world.read(evolve(range_of(5, 6), excludes_end=True))
    assert world.sink.records == []


@pytest.mark.parametrize(
    ("runs", "last"),
    [
        ([run_of((2, 10), lag=5)], 6),
        ([run_of((2, 5), lag=5), run_of((5, 7), lag=5), run_of((7, 10), lag=5)], 6),
        ([run_of((2, 5)), run_of((5, 6)), run_of((6, 6)), run_of((6, 10))], 5),
    ],
    ids=["cut", "followed", "the tip of an empty answer"],
)
async def test_a_range_may_end_at_an_instant_or_at_the_tip(runs: list, last: int):
    world, until = scripted(*runs), RECORDS[7].approximate_arrival_timestamp
    await world.read(evolve(range_of(1, 6), end=None, until=until))
    assert world.sink.records == RECORDS[2 : last + 1]


@pytest.mark.parametrize("runs", [[run_of((2, 6), (7, 10), lag=5)], [run_of((2, 6))]])
async def test_a_range_whose_following_record_is_gone_is_a_mismatch(runs: list):
    with pytest.raises(ReplayMismatchError, match="ends before record"):
        await scripted(*runs).read(evolve(range_of(1, 6), excludes_end=True))


async def test_reading_stops_as_soon_as_the_range_is_complete():
    world = scripted(run_of((2, 7), lag=5), run_of((7, 10), lag=5))
    await world.read(range_of(1, 6))
    (publisher,) = world.factory.publishers
    assert publisher.processed == [place(6)]


async def test_a_range_may_end_where_the_shard_ends():
    world = scripted(run_of((2, 10)))
    await world.read(range_of(1, 9))
    assert world.sink.records == RECORDS[2:]


async def test_a_range_that_begins_at_a_record_contains_it():
    world = scripted(run_of((2, 10)))
    await world.read(range_of(2, 4, at=True))
    assert world.sink.records == RECORDS[2:5]


async def test_an_empty_range_asks_for_nothing():
    world = scripted(run_of((5, 10), lag=5))
    assert await world.read(range_of(4, 4)) is None
    assert world.sink.records == []
    assert world.factory.positions == []


async def test_a_range_without_an_end_reaches_to_the_end_of_the_shard():
    world = scripted(run_of((2, 5)), run_of((5, 5)), run_of((5, 10)), run_of((10, 10)))
    assert await world.read(range_of(1, None)) is None
    assert world.sink.records == RECORDS[2:]


async def test_a_range_without_an_end_may_be_empty():
    world = scripted()
    await world.read(range_of(9, None))
    assert world.sink.records == []


async def test_a_range_without_an_end_begins_with_its_first_record():
    with pytest.raises(PositionTrimmedError, match="record 993 is gone"):
        await scripted(run_of((4, 10))).read(range_of(2, None, at=True))


async def test_a_missing_last_record_is_a_mismatch():
    without_last = [run_of((2, 6), (7, 8), lag=5)]
    with pytest.raises(ReplayMismatchError, match="record 998 follows"):
        await scripted(*without_last).read(range_of(1, 6))


async def test_a_tip_that_stays_before_the_end_is_a_mismatch():
    world = polled(FakeDataPlane(StoredShard(RECORDS[:5])))
    with pytest.raises(ReplayMismatchError, match="the tip of the shard follows"):
        await world.read(range_of(1, 6))
    assert world.sink.records == RECORDS[2:5]


async def test_a_copy_of_the_shard_that_lags_behind_for_a_moment_is_no_loss():
    shard = StoredShard(RECORDS[:5])
    world = polled(FakeDataPlane(shard))
    reading = asyncio.create_task(world.consumer(range_of(1, 6)).run())
    await world.clock.advance(0.5)
    shard.extend(RECORDS[5:])
    await finish(reading, world.clock)
    assert world.sink.records == RECORDS[2:7]


async def test_a_copy_of_the_shard_that_catches_up_record_by_record_is_no_loss():
    shard = StoredShard(RECORDS[:3])
    world = polled(FakeDataPlane(shard))
    reading = asyncio.create_task(world.consumer(range_of(1, 6)).run())
    for record in RECORDS[3:7]:
        await world.clock.advance(0.9)
        shard.extend([record])
    await finish(reading, world.clock)
    assert world.sink.records == RECORDS[2:7]


async def test_a_shard_that_ends_before_the_range_is_a_mismatch():
    with pytest.raises(ReplayMismatchError, match="the end of the shard follows"):
        await scripted(run_of((2, 5), lag=5)).read(range_of(1, 6))


async def test_a_trimmed_first_record_is_an_error():
    with pytest.raises(PositionTrimmedError, match="record 993 is gone"):
        await scripted(run_of((4, 10), lag=5)).read(range_of(2, 6, at=True))


async def test_the_rest_of_an_aggregate_that_is_gone_is_an_error():
    within = SequenceNumber(RECORDS[2].sequence_number, 1)
    wanted = evolve(range_of(2, 6), start=StartingPosition.at(within))
    with pytest.raises(PositionTrimmedError, match=r"record 993 is gone"):
        await scripted(run_of((4, 10), lag=5)).read(wanted)


async def test_a_trimmed_position_is_an_error():
    trimmed = run_of(error=PositionTrimmedError("trimmed"))
    with pytest.raises(PositionTrimmedError, match="NUMBER 992, is no longer available"):
        await scripted(trimmed).read(range_of(1, 6))


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (False, "reading continues with record 995; all between AFTER_SEQUENCE_NUMBER 993"),
        (True, "record 993 is gone; the next one that the stream still holds is 995"),
    ],
)
async def test_tolerated_loss_delivers_what_is_left_and_says_what_was_skipped(
    at: bool, expected: str
):
    factory = ScriptedPublisherFactory(
        [run_of(error=PositionTrimmedError("trimmed"))], [run_of((4, 5), (5, 10), lag=5)]
    )
    world = RangeWorld(factory=factory, fails_on_data_loss=False)
    await world.read(range_of(2, 6, at=at))
    assert world.sink.records == RECORDS[4:7]
    trimmed, skipped = losses(world)
    assert "is no longer available" in trimmed
    assert expected in skipped


async def test_a_trim_horizon_that_is_trimmed_is_not_asked_for_again_and_again():
    trimmed = [run_of(error=PositionTrimmedError("trimmed"))]
    world = RangeWorld(factory=ScriptedPublisherFactory(trimmed, trimmed), fails_on_data_loss=False)
    with pytest.raises(PositionTrimmedError, match=r"^trimmed$"):
        await world.read(range_of(1, 6))


async def test_a_tolerated_mismatch_ends_the_range_and_leaves_nothing():
    world = scripted(run_of((2, 6), (7, 9), lag=5), fails_on_data_loss=False)
    assert await world.read(range_of(1, 6)) is None
    assert world.sink.records == RECORDS[2:6]
    assert len(losses(world)) == 1


async def test_a_tolerated_mismatch_is_reported_once_when_the_shard_ends_with_it():
    world = scripted(run_of((2, 5), lag=5), fails_on_data_loss=False)
    await world.read(range_of(1, 6))
    assert len(losses(world)) == 1


async def test_the_retention_is_not_requested():
    world = scripted(run_of((2, 10), lag=5))
    await world.read(range_of(1, 6))
    assert world.reader.control_plane.describe_calls == []


async def test_a_publisher_that_stops_unasked_is_an_error():
    with pytest.raises(PublisherCancelledError, match="ScriptedPublisher returned CANCELLED"):
        await scripted(ScriptedRun(result=RunResult.CANCELLED)).read(range_of(1, 6))


@pytest.mark.parametrize(
    "error",
    [
        PositionTrimmedError("of the application"),
        ShardNotFoundError("of the application", operation="GetRecords", code="code"),
    ],
    ids=["trimmed", "not found"],
)
async def test_an_error_of_the_sink_is_not_taken_for_one_of_the_service(error: Exception):
    async def fails(delivery: object) -> None:
        raise error

    world = scripted(run_of((2, 10)), sink=RecordingSink(fails), fails_on_data_loss=False)
    with pytest.raises(type(error)) as caught:
        await world.read(range_of(1, 6))
    assert caught.value is error
    assert losses(world) == []


async def test_a_failure_of_the_publisher_surfaces():
    error = AccessDeniedError("no", operation="GetRecords", code="AccessDeniedException")
    with pytest.raises(AccessDeniedError):
        await scripted(run_of((2, 4), lag=5, error=error)).read(range_of(1, 6))


async def test_a_slow_sink_holds_the_reading_back():
    gate = asyncio.Event()

    async def blocks(delivery: object) -> None:
        await gate.wait()

    plane = FakeDataPlane(StoredShard(RECORDS, page_ends=[3, 6, 9]))
    world = polled(plane, sink=RecordingSink(blocks))
    reading = asyncio.create_task(world.consumer(range_of(0, 8)).run())
    await world.clock.advance(10)
    assert len(plane.records_calls) == 1
    gate.set()
    await finish(reading, world.clock)
    assert world.sink.records == RECORDS[1:9]


async def test_a_range_out_of_a_delivery_out_of_order_is_handed_on_in_order_and_once():
    run = ScriptedRun(batches=[batch_of([*RECORDS[5:0:-1], *RECORDS[3:9]])])
    world = scripted(run)
    await world.read(range_of(0, 6))
    assert world.sink.records == RECORDS[1:7]


async def test_a_range_whose_first_records_were_removed_before_it_is_read_is_an_error():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    left = ScriptedRun(batches=[batch_of(RECORDS[4:], requested_at=now)])
    wanted = evolve(range_of(1, 6), as_of=now - timedelta(days=3))
    with pytest.raises(PositionTrimmedError, match="24 hours only"):
        await scripted(left).read(wanted)
    world = scripted(left, fails_on_data_loss=False)
    await world.read(wanted)
    assert world.sink.records == RECORDS[4:7]
    assert len(losses(world)) == 1
