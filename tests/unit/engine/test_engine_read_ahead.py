"""Reading on while the application processes: bounded, in order, and nothing counts too early."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import AccessDeniedError, PositionTrimmedError
from kinesis_publishers.events import BackpressureBegan
from kinesis_publishers.testing.fakes import (
    FailingCalls,
    FakeStream,
    RecordingSink,
    ScriptedPublisherFactory,
    ShardReader,
    StoredShard,
    shard_name,
)
from tests.unit.engine.consumer_support import RECORDS, run_of
from tests.unit.readers.fetcher_support import Blocks, World, failure, other_tasks, records_of

if TYPE_CHECKING:
    from kinesis_publishers import Delivery, Shard, ShardKey, StartingPosition

ZERO, ONE = shard_name(0), shard_name(1)


def pages(count: int, *, of: int) -> StoredShard:
    """Return an open shard with so many records that is answered in pages."""
    return StoredShard(records_of(0, count), page_ends=range(of, count, of))


def stored_in(world: World) -> list:
    return world.shards[ZERO].records


async def test_further_calls_are_made_while_a_delivery_takes_three_seconds():
    async def takes_three_seconds(delivery: Delivery) -> None:
        await world.clock.sleep(3)

    world = World(sink=RecordingSink(takes_three_seconds))
    world.add(0, behaviour=pages(400, of=100))
    async with world.running():
        await world.clock.advance(2.9)
        assert len(world.data_plane.records_calls) >= 4
        await world.clock.advance(3.2)
        assert [len(one.batch) for one in world.sink.deliveries] == [100, 300]
        assert world.sink.records_of(ZERO) == stored_in(world)
        assert world.data_plane.iterator_calls[1:] == []


@pytest.mark.parametrize(("page", "calls"), [(100, 1 + 10), (5000, 1 + 1)])
async def test_no_more_is_read_ahead_than_one_page_or_a_thousand_records(page: int, calls: int):
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    world.add(0, behaviour=pages(40_000, of=page))
    async with world.running():
        await world.clock.advance(60)
        assert len(world.data_plane.records_calls) == calls
        blocks.gate.set()
        await world.clock.advance(120)
        assert world.sink.records_of(ZERO) == stored_in(world)


async def test_a_mebibyte_is_enough_too():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    large = [one._replace(data=bytes(400_000)) for one in records_of(0, 20)]
    world.add(0, behaviour=StoredShard(large, page_ends=range(1, 20)))
    async with world.running():
        await world.clock.advance(60)
        assert len(world.data_plane.records_calls) == 1 + 3
        blocks.gate.set()


async def test_what_is_read_ahead_takes_no_room_that_another_shard_waits_for():
    blocks = Blocks(ZERO)
    world = World(sink=RecordingSink(blocks), pool=PendingPool(max_records=10_000, max_bytes=10**9))
    world.add(0, behaviour=pages(40_000, of=9000))
    world.add(1)
    async with world.running():
        await world.clock.advance(60)
        assert [one.shard_id for one in world.data_plane.records_calls] == [ZERO]
        assert {one.shard.shard_id for one in world.events_of(BackpressureBegan)} == {ONE}
        assert world.pool.waiter_count == 1
        blocks.gate.set()
        await world.clock.advance(1)
        assert world.sink.records_of(ONE) == records_of(1)


async def test_progress_is_that_of_what_was_processed():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    world.add(0, behaviour=pages(300, of=100))
    async with world.running() as fetcher:
        await world.clock.advance(10)
        (status,) = fetcher.statuses
        assert status.progress.processed is None
        assert status.is_delivering
        blocks.gate.set()
        await world.clock.advance(1)
        (status,) = fetcher.statuses
        assert str(status.progress.processed) == stored_in(world)[-1].sequence_number


async def test_answers_that_come_meanwhile_are_observed_after_the_delivery():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    world.add(0)
    async with world.running():
        await world.clock.advance(10)
        assert len(world.data_plane.records_calls) > 10
        assert world.sink.statuses == []
        blocks.gate.set()
        await world.clock.settle()
        assert [str(one.progress.processed) for one in world.sink.statuses] == (
            [records_of(0)[-1].sequence_number] * 2
        )
        assert world.sink.statuses[-1].read_until > world.sink.statuses[0].read_until


async def test_stopping_finishes_the_delivery_and_drops_what_was_read_ahead():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    world.add(0, behaviour=pages(300, of=100))
    fetcher = world.fetcher()
    running = asyncio.create_task(fetcher.run())
    await world.clock.advance(10)
    fetcher.stop()
    calls = len(world.data_plane.records_calls)
    await world.clock.advance(10)
    assert not running.done()
    blocks.gate.set()
    await running
    assert len(world.data_plane.records_calls) == calls
    assert [len(one.batch) for one in world.sink.deliveries] == [100]
    assert world.pool.records == 0
    assert other_tasks() == set()
    async with world.running(world.fetcher(fetcher.progress)):
        await world.clock.advance(2)
    assert world.sink.records_of(ZERO) == stored_in(world)


async def test_a_shard_ends_only_when_what_was_read_ahead_is_processed():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    world.add(0, behaviour=pages(300, of=100))
    world.close(0)
    fetcher = world.fetcher()
    running = asyncio.create_task(fetcher.run())
    await world.clock.advance(10)
    assert not fetcher.is_finished
    fetcher.stop()
    blocks.gate.set()
    await running
    assert not next(iter(fetcher.progress.values())).shards[ZERO].is_ended
    async with world.running(world.fetcher(fetcher.progress)) as second:
        await world.clock.advance(2)
        assert second.is_finished
    assert world.sink.records_of(ZERO) == stored_in(world)


async def test_an_error_is_reported_after_what_was_read_before_it():
    blocks = Blocks()
    world = World(sink=RecordingSink(blocks))
    behaviour = FailingCalls(pages(300, of=100), on_read=(None, None, failure(AccessDeniedError)))
    world.add(0, behaviour=behaviour)
    running = asyncio.create_task(world.fetcher().run())
    await world.clock.advance(10)
    assert not running.done()
    blocks.gate.set()
    with pytest.raises(AccessDeniedError):
        await running
    assert world.sink.records_of(ZERO) == records_of(0, 200)
    assert world.pool.records == 0


async def test_a_delivery_that_fails_ends_reading_and_drops_what_was_read_ahead():
    async def fails_later(delivery: Delivery) -> None:
        await world.clock.sleep(3)
        raise LookupError("the application")

    world = World(sink=RecordingSink(fails_later))
    world.add(0, behaviour=pages(300, of=100))
    fetcher = world.fetcher()
    running = asyncio.create_task(fetcher.run())
    await world.clock.advance(4)
    with pytest.raises(LookupError, match="the application"):
        await running
    assert len(world.sink.deliveries) == 1
    assert next(iter(fetcher.progress.values())).shards[ZERO].processed is None
    assert world.pool.records == 0
    assert other_tasks() == set()


async def test_cancelling_leaves_nothing_behind():
    world = World(sink=RecordingSink(Blocks()))
    world.add(0, behaviour=pages(300, of=100))
    running = asyncio.create_task(world.fetcher().run())
    await world.clock.advance(10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.pool.records == 0
    assert other_tasks() == set()


@given(
    pages=st.lists(st.integers(1, 400), min_size=1, max_size=12),
    seconds=st.lists(st.floats(0, 2), min_size=1, max_size=12),
    stops=st.lists(st.floats(0.01, 4), max_size=4),
)
async def test_whenever_reading_stops_each_record_is_processed_once(
    pages: list[int], seconds: list[float], stops: list[float]
):
    async def takes_a_while(delivery: Delivery) -> None:
        await world.clock.sleep(seconds[len(world.sink.deliveries) % len(seconds)])

    world = World(sink=RecordingSink(takes_a_while), stream=FakeStream())
    records = records_of(0, sum(pages))
    ends = [sum(pages[:index]) for index in range(1, len(pages))]
    world.add(0, behaviour=StoredShard(records, page_ends=ends))
    progress = None
    for stop in [*stops, 60.0]:
        fetcher = world.fetcher(progress)
        running = asyncio.create_task(fetcher.run())
        await world.clock.advance(stop)
        fetcher.stop()
        await world.clock.advance(3)
        await running
        progress = fetcher.progress
    assert world.sink.records_of(ZERO) == records
    assert world.pool.records == world.pool.payload_bytes == 0


class AsksLater(RecordingSink):
    """Wants more only when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked: list[str] = []

    async def wait_until_wanted(self, shard: ShardKey) -> None:
        self.asked.append(shard.shard_id)
        await self.gate.wait()


async def test_a_shard_is_polled_only_when_the_sink_wants_it():
    sink = AsksLater()
    world = World(sink=sink)
    world.add(0, behaviour=pages(300, of=100))
    async with world.running():
        await world.clock.advance(30)
        assert (len(world.data_plane.records_calls), sink.asked) == (0, [ZERO])
        sink.gate.set()
        await world.clock.advance(30)
        assert sink.records_of(ZERO) == stored_in(world)


async def test_a_shard_that_waits_for_room_gets_it_beyond_the_pool_when_it_is_favoured():
    world = World(pool=PendingPool(max_records=1, max_bytes=1000))
    for number in (0, 1):
        world.add(number, behaviour=pages(100, of=100))
    taken = await world.pool.acquire(1, 1000)
    async with world.running() as fetcher:
        await world.clock.advance(30)
        key = world.shard(1).key
        assert key in fetcher.pool.waiting
        fetcher.pool.favour(key)
        await world.clock.advance(30)
        ((shard_id, limit),) = [(one.shard_id, one.limit) for one in world.data_plane.records_calls]
        assert (shard_id, limit) == (key.shard_id, 100), "little beyond the pool"
        assert key in fetcher.pool.waiting
        taken.release()


async def test_stopping_does_not_wait_for_a_sink_that_wants_nothing():
    sink = AsksLater()
    world = World(sink=sink)
    world.add(0, behaviour=pages(100, of=100))
    async with world.running():
        await world.clock.advance(30)
        assert sink.asked == [ZERO]


async def test_a_publisher_that_is_not_read_ahead_waits_for_what_another_has_read():
    class Turns(ScriptedPublisherFactory):
        async def create(self, starting_position: StartingPosition, shard: Shard):
            made = await super().create(starting_position, shard)
            made.reads_ahead = len(self.publishers) == 1
            return made

    at_work: list[int] = []

    async def takes_its_time(delivery: Delivery) -> None:
        at_work.append(len(at_work) + 1)
        await reader.clock.sleep(3)
        assert at_work.pop() == 1

    trimmed = run_of(error=PositionTrimmedError("orders: trimmed"))
    factory = Turns([run_of((0, 3)), trimmed], [run_of((3, 10))])
    sink = RecordingSink(takes_its_time)
    reader = ShardReader(factory=factory, sink=sink, fails_on_data_loss=False)
    await reader.read()
    assert sink.records == RECORDS
