"""Which shards a fetcher reads, when, and from where."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers import (
    SequenceNumber,
    ShardProgress,
    StartingPosition,
    StreamProgress,
)
from kinesis_publishers.errors import (
    CheckpointError,
    DataLossError,
    LimitExceededError,
    PositionTrimmedError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from kinesis_publishers.events import DataLossTolerated, ShardsDiscovered
from kinesis_publishers.testing.fakes import FakeStream, shard_name
from tests.unit.readers.fetcher_support import World, progress_of, records_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRIM_HORIZON = StartingPosition.trim_horizon()
ZERO, ONE, TWO, THREE = map(shard_name, range(4))
PAYMENTS = "arn:aws:kinesis:eu-west-1:123456789012:stream/payments"
AT_THE_HORIZON = ShardProgress(position=TRIM_HORIZON)


def after(number: int, index: int, **more: object) -> ShardProgress:
    """Return the progress of a reader that has read a shard up to its record ``index``."""
    place = SequenceNumber(records_of(number)[index].sequence_number)
    return ShardProgress(position=StartingPosition.after(place), **more)


async def test_every_shard_is_read_from_the_initial_position():
    world = World()
    world.add(0)
    world.add(1)
    async with world.running():
        await world.clock.advance(1)
    assert world.started() == [(ZERO, TRIM_HORIZON), (ONE, TRIM_HORIZON)]
    assert world.sink.records_of(ZERO) == records_of(0)
    assert world.sink.records_of(ONE) == records_of(1)


async def test_a_stream_without_shards_is_listed_until_there_is_one():
    world = World()
    async with world.running():
        await world.clock.advance(35)
        assert len(world.control_plane.list_calls) == 4
        assert world.data_plane.calls == []
        world.add(0)
        await world.clock.advance(6)
    assert world.sink.records == records_of(0)


async def test_a_stream_that_does_not_exist_is_an_error():
    world = World()
    world.control_plane.streams.clear()
    with pytest.raises(StreamNotFoundError, match="orders"):
        await world.fetcher().run()


async def test_children_begin_after_the_end_of_their_parent_and_at_once():
    world = World()
    world.add(0)
    async with world.running():
        await world.clock.advance(1)
        world.add(1, parent=0)
        world.add(2, parent=0)
        world.close(0)
        await world.clock.advance(0.3)
        assert world.started() == [(ZERO, TRIM_HORIZON), (ONE, TRIM_HORIZON), (TWO, TRIM_HORIZON)]
    assert world.sink.records == [*records_of(0), *records_of(1), *records_of(2)]


async def test_a_child_waits_while_its_parent_is_open():
    world = World()
    world.add(0)
    world.add(1, parent=0)
    async with world.running():
        await world.clock.advance(60)
    assert world.started() == [(ZERO, TRIM_HORIZON)]


async def test_without_parents_first_a_child_does_not_wait():
    world = World(parents_first=False)
    world.add(0)
    world.add(1, parent=0)
    async with world.running():
        await world.clock.advance(1)
    assert {shard_id for shard_id, _ in world.started()} == {ZERO, ONE}


async def test_a_merge_waits_for_both_parents():
    world = World()
    world.add(0)
    world.add(1)
    world.add(2, parent=0, adjacent_parent=1)
    async with world.running():
        world.close(0)
        await world.clock.advance(30)
        assert TWO not in dict(world.started())
        world.close(1)
        await world.clock.advance(0.3)
        assert TWO in dict(world.started())


async def test_a_shard_that_is_found_later_begins_at_trim_horizon():
    world = World(initial_position=StartingPosition.latest())
    world.add(0)
    async with world.running():
        await world.clock.advance(1)
        world.add(1)
        await world.clock.advance(10)
    assert world.started()[1] == (ONE, TRIM_HORIZON)
    assert world.sink.records_of(ONE) == records_of(1)


async def test_latest_is_one_instant_for_all_shards_and_streams():
    other = FakeStream(arn="arn:aws:kinesis:eu-west-1:123456789012:stream/payments")
    stream = FakeStream()
    world = World(
        stream=stream, streams=[stream, other], initial_position=StartingPosition.latest()
    )
    world.add(0)
    world.add(1)
    world.control_plane.errors = [None] * 2 + [slow_down() for _ in range(2)]
    async with world.running() as fetcher:
        await world.clock.advance(5)
        progress = fetcher.progress
    assert [position for _, position in world.started()] == [StartingPosition.at_timestamp(NOW)] * 2
    assert all(one.as_of >= NOW for one in progress[stream.arn].shards.values())


async def test_latest_does_not_list_what_was_closed_before():
    world = World(initial_position=StartingPosition.latest())
    world.add_closed(0)
    world.add(1, parent=0)
    world.stream.close(ZERO, at=NOW - timedelta(hours=1))
    async with world.running():
        await world.clock.advance(30)
    assert world.control_plane.list_calls[0].since == NOW
    assert [shard_id for shard_id, _ in world.started()] == [ONE]


async def test_preparing_fixes_the_beginning_before_anything_is_read():
    world = World(initial_position=StartingPosition.latest())
    world.add(0)
    fetcher = world.fetcher()
    await fetcher.prepare()
    expected = ShardProgress(position=StartingPosition.at_timestamp(NOW), as_of=NOW)
    assert fetcher.progress[world.stream.arn].shards == {ZERO: expected}
    assert world.data_plane.calls == []
    await world.clock.advance(100)
    async with world.running(fetcher):
        await world.clock.advance(1)
    assert world.started() == [(ZERO, StartingPosition.at_timestamp(NOW))]


async def test_positions_of_single_shards_go_before_the_initial_position():
    initial = {
        ZERO: after(0, 1),
        ONE: ShardProgress(position=TRIM_HORIZON, is_ended=True),
        TWO: ShardProgress(position=StartingPosition.latest()),
    }
    world = World(initial_shards=initial)
    for number in range(4):
        world.add(number)
    async with world.running():
        await world.clock.advance(1)
    assert dict(world.started()) == {
        ZERO: after(0, 1).position,
        TWO: StartingPosition.at_timestamp(NOW),
        THREE: TRIM_HORIZON,
    }


async def test_a_position_for_a_shard_that_is_not_listed_is_data_loss_or_a_slip():
    initial = {
        ONE: after(0, 1),
        TWO: ShardProgress(position=TRIM_HORIZON, is_ended=True),
        THREE: ShardProgress(position=StartingPosition.latest()),
    }
    for fails in (True, False):
        world = World(initial_shards=initial, fails_on_data_loss=fails)
        world.add(0)
        reader = world.fetcher()
        with pytest.raises(DataLossError, match=f"{ONE}.*misspelt") if fails else nullcontext():
            await reader.prepare()
    lost = [one.shard.shard_id for one in world.events_of(DataLossTolerated)]
    assert lost == [ONE, THREE]
    # After the beginning the option has no meaning any more.
    await world.fetcher(reader.progress).prepare()
    assert len(world.events_of(DataLossTolerated)) == 2


async def test_progress_of_a_child_alone_does_not_read_its_ancestors_again():
    world = World()
    world.add_closed(0)
    world.add_closed(1, parent=0)
    world.add(2, parent=1)
    async with world.running(world.fetcher(progress_of(world.stream, s2=after(2, 0)))):
        await world.clock.advance(1)
    assert world.started() == [(TWO, after(2, 0).position)]


async def test_the_progress_of_one_fetcher_is_where_the_next_one_goes_on():
    world = World()
    parent = world.add(0)
    async with world.running() as first:
        await world.clock.advance(1)
    parent.extend(records_of(0, 2, first=3))
    world.close(0)
    world.add(1, parent=0)
    async with world.running(world.fetcher(first.progress)) as second:
        await world.clock.advance(1)
    assert world.sink.records == [*records_of(0, 5), *records_of(1)]
    shards = second.progress[world.stream.arn].shards
    assert {shard_id: one.is_ended for shard_id, one in shards.items()} == {ZERO: True, ONE: False}


async def test_a_stream_that_was_created_again_is_an_error():
    world = World()
    world.add(0)
    resume = progress_of(world.stream, s0=after(0, 1))
    world.stream.created_at = NOW
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        await world.fetcher(resume).run()
    assert world.data_plane.calls == []


async def test_a_stream_that_was_created_again_is_read_from_its_beginning_if_tolerated():
    world = World(fails_on_data_loss=False)
    world.add(0)
    resume = progress_of(world.stream, s0=after(0, 1), s7=after(0, 1))
    world.stream.created_at = NOW
    async with world.running(world.fetcher(resume)):
        await world.clock.advance(1)
    assert world.sink.records == records_of(0)
    assert len(world.events_of(DataLossTolerated)) == 1


async def test_an_unfinished_shard_that_is_not_listed_any_more_is_an_error():
    world = World()
    world.add(1)
    resume = progress_of(world.stream, s0=after(0, 1), s1=after(1, 0))
    with pytest.raises(PositionTrimmedError, match=f"orders/{ZERO}: .*no longer listed"):
        await world.fetcher(resume).run()


async def test_a_missing_shard_that_is_tolerated_lets_its_children_begin():
    world = World(fails_on_data_loss=False)
    world.add(1, parent=0)
    async with world.running(world.fetcher(progress_of(world.stream, s0=after(0, 1)))) as fetcher:
        await world.clock.advance(1)
        assert fetcher.progress[world.stream.arn].shards[ZERO].is_ended
    assert world.sink.records == records_of(1)
    assert len(world.events_of(DataLossTolerated)) == 1


async def test_a_finished_shard_that_is_not_listed_any_more_is_no_loss():
    world = World()
    world.add(1)
    resume = progress_of(world.stream, s0=after(0, 2, is_ended=True), s1=after(1, 0))
    async with world.running(world.fetcher(resume)):
        await world.clock.advance(1)
    assert world.sink.records == records_of(1)[1:]


async def test_an_unread_shard_that_vanishes_while_others_are_read_is_an_error():
    """A child waits for its parent for so long that the retention removes it."""
    world = World()
    world.add(0)
    world.add(1, parent=0)
    world.add(2, parent=1)
    reading = asyncio.create_task(world.fetcher().run())
    await world.clock.advance(1)
    world.stream.remove(ONE)
    await world.clock.advance(10)
    with pytest.raises(PositionTrimmedError, match=f"orders/{ONE}: .*no longer listed"):
        await reading


async def test_finished_shards_are_forgotten_once_they_are_not_listed():
    world = World()
    world.add_closed(0)
    world.add(1, parent=0)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        assert set(fetcher.progress[world.stream.arn].shards) == {ZERO, ONE}
        world.stream.remove(ZERO)
        await world.clock.advance(10)
        assert set(fetcher.progress[world.stream.arn].shards) == {ONE}
    assert world.events_of(DataLossTolerated) == []


async def test_a_shard_that_is_being_read_stays_although_it_is_not_listed():
    world = World()
    shard = world.add(0)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        world.stream.remove(ZERO)
        shard.extend(records_of(0, 2, first=3))
        await world.clock.advance(30)
        assert set(fetcher.progress[world.stream.arn].shards) == {ZERO}
    assert world.sink.records == records_of(0, 5)


async def test_shards_are_reported_when_they_are_found():
    world = World()
    world.add(0)
    async with world.running():
        world.add(1)
        await world.clock.advance(25)
    assert world.events_of(ShardsDiscovered) == [
        ShardsDiscovered(stream_arn=world.stream.arn, shard_ids=(ZERO,)),
        ShardsDiscovered(stream_arn=world.stream.arn, shard_ids=(ONE,)),
    ]


def slow_down() -> Exception:
    return LimitExceededError("slow down", operation="ListShards", code="LimitExceededException")


async def test_progress_of_other_streams_is_refused_before_anything_is_read():
    world = World()
    world.add(0)
    resume = progress_of(FakeStream(arn=PAYMENTS), s0=AT_THE_HORIZON)
    with pytest.raises(CheckpointError, match=r"payments.*orders.*checkpoint of its own"):
        await world.fetcher(resume).prepare()
    assert world.control_plane.list_calls == world.data_plane.calls == []


def left_out(world: World) -> dict[str, StreamProgress]:
    other = FakeStream(arn=PAYMENTS)
    return progress_of(world.stream, s0=AT_THE_HORIZON) | progress_of(other, s0=AT_THE_HORIZON)


async def test_a_stream_that_is_not_configured_any_more_is_data_loss():
    world = World()
    world.add(0)
    with pytest.raises(DataLossError, match=r"payments.*no longer configured"):
        await world.fetcher(left_out(world)).prepare()


async def test_a_stream_that_is_not_configured_any_more_is_left_out_if_tolerated():
    world = World(fails_on_data_loss=False)
    world.add(0)
    async with world.running(world.fetcher(left_out(world))):
        await world.clock.advance(1)
    assert [one.shard.stream_arn for one in world.events_of(DataLossTolerated)] == [PAYMENTS]
    assert world.sink.records == records_of(0)


async def test_a_closed_shard_with_a_position_of_its_own_is_read_although_others_begin_at_latest():
    own = ShardProgress(position=TRIM_HORIZON)
    world = World(initial_position=StartingPosition.latest(), initial_shards={ZERO: own})
    world.add_closed(0)
    world.stream.close(ZERO, at=NOW - timedelta(hours=1))
    world.add(1)
    async with world.running():
        await world.clock.advance(1)
    assert dict(world.started())[ZERO] == TRIM_HORIZON
    assert world.sink.records_of(ZERO) == records_of(0)
