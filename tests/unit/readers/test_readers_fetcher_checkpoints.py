"""A fetcher with a store: checkpoints follow what was processed; reading continues from them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field

from kinesis_publishers import (
    Delivery,
    KinesisDataFetcher,
    SequenceNumber,
    ShardAssigner,
    ShardProgress,
    StartingPosition,
    StreamProgress,
)
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    PositionTrimmedError,
    ReaderReplacedError,
    StaleCheckpointError,
)
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.model import PositionType
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.progress.single_reader import SingleReader
from kinesis_publishers.testing.fakes import (
    STREAM_ARN,
    FakeStream,
    RecordingSink,
    StoredShard,
    sample_shard,
    shard_name,
)
from tests.unit.readers.fetcher_support import (
    POLICY,
    Blocks,
    World,
    child_of,
    failure,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ZERO, ONE = shard_name(0), shard_name(1)
CONFIG = CheckpointConfig(
    application="billing", store="memory", interval_seconds=10.0, max_records=10_000, retry=POLICY
)


@define(kw_only=True)
class StoredWorld(World):
    """A world whose fetchers keep their progress in a store."""

    memory: CheckpointMemory = field(factory=CheckpointMemory)

    @asynccontextmanager
    async def stored_fetcher(self, *, records: bool = True) -> AsyncIterator[KinesisDataFetcher]:
        context = CheckpointStoreContext(application="billing", retry=POLICY, clock=self.clock)
        async with MemoryCheckpointStore(context, self.memory) as store:
            checkpointer = Checkpointer(SingleReader(store, self.clock), CONFIG, self.clock)
            resume = await checkpointer.take_over({})
            sink = checkpointer.sink(self.sink) if records else self.sink
            yield KinesisDataFetcher(self.parts(), sink, resume=resume, checkpointer=checkpointer)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[KinesisDataFetcher]:
        async with self.stored_fetcher() as fetcher, self.running(fetcher):
            yield fetcher

    @property
    def stored(self) -> dict[str, ShardProgress]:
        found = self.memory.applications["billing"]
        return {
            key.shard_id: one.checkpoint.progress
            for key, (one, _) in found.items()
            if key.shard_id != "*"
        }


def last_of(number: int) -> SequenceNumber:
    return SequenceNumber(records_of(number)[-1].sequence_number)


async def test_a_pinned_latest_is_stored_before_anything_is_read():
    world = StoredWorld(initial_position=StartingPosition.latest())
    world.add(0)
    pinned = StartingPosition.at_timestamp(world.clock.now())
    async with world.stored_fetcher() as fetcher:
        await fetcher.prepare()
        assert world.data_plane.iterator_calls == []
        assert world.stored[ZERO].position == pinned
    await world.clock.advance(3600)
    async with world.reading():
        assert world.started()[0] == (ZERO, pinned)


async def test_a_checkpoint_follows_processing_and_not_fetching():
    blocks = Blocks()
    world = StoredWorld(sink=RecordingSink(blocks))
    world.add(0)
    async with world.reading():
        await world.clock.advance(60)
        assert world.data_plane.records_calls, "it has been fetched"
        assert world.stored[ZERO].processed is None
        blocks.gate.set()
        await world.clock.advance(10)
        assert world.stored[ZERO].processed == last_of(0)


class Waking(ShardAssigner):
    """Lets a test wake the fetcher."""

    def on_change(self, wake: Callable[[], None]) -> None:
        self.wake = wake


@pytest.mark.parametrize("turns", range(16))
async def test_what_was_processed_is_stored_although_a_shard_fails_during_a_look(turns):
    assigner = Waking()

    class Failing(StoredShard):
        async def read(self, index, limit):
            if index < len(self.records):
                return await super().read(index, limit)
            assigner.wake()
            for _ in range(turns):
                await asyncio.sleep(0)
            raise failure(AccessDeniedError)

    world = StoredWorld(assigner=assigner)
    world.add(0, behaviour=Failing(records_of(0)))
    async with world.stored_fetcher() as fetcher:
        running = asyncio.create_task(fetcher.run())
        await world.clock.advance(1)
        with pytest.raises(AccessDeniedError):
            await running
    assert world.stored[ZERO].processed == last_of(0)


async def test_the_next_reader_begins_after_what_was_processed():
    world = StoredWorld()
    world.add(0)
    async with world.reading():
        await world.clock.advance(1)
    assert world.stored[ZERO].processed == last_of(0)
    async with world.reading():
        assert world.started()[1:] == [(ZERO, StartingPosition.after(last_of(0)))]


async def test_an_ended_shard_is_stored_as_ended_and_its_children_are_read_after_a_restart():
    world = StoredWorld()
    world.add_closed(0)
    async with world.reading():
        await world.clock.advance(1)
    assert world.stored[ZERO].is_ended
    world.add(1, parent=0)
    async with world.reading():
        await world.clock.advance(1)
        assert world.started()[1:] == [(ONE, StartingPosition.trim_horizon())]
    assert world.stored[ONE].processed == last_of(1)


async def test_a_shard_that_leaves_the_retention_leaves_the_store():
    world = StoredWorld()
    world.add_closed(0)
    world.add(1, parent=0)
    async with world.reading():
        await world.clock.advance(1)
        world.stream.remove(ZERO)
        await world.clock.advance(20)
        assert set(world.stored) == {ONE}


async def test_a_shard_that_was_lost_unread_is_reported_and_not_just_forgotten():
    world = StoredWorld(sink=RecordingSink(Blocks()))
    world.add(0)
    world.add(1, parent=0)
    async with world.stored_fetcher() as fetcher:
        await fetcher.prepare()
    world.stream.remove(ZERO)
    async with world.stored_fetcher() as fetcher:
        with pytest.raises(PositionTrimmedError, match=ZERO):
            await fetcher.run()
    assert set(world.stored) == {ZERO, ONE}


async def test_what_was_processed_before_a_failing_callback_is_stored():
    async def fail_at_the_second(delivery):
        if delivery.shard.shard_id == ONE:
            raise ZeroDivisionError

    world = StoredWorld(sink=RecordingSink(fail_at_the_second))
    world.add(0)
    world.add(1)
    async with world.stored_fetcher() as fetcher:
        with pytest.raises(ZeroDivisionError):
            await fetcher.run()
    assert world.stored[ZERO].processed in {last_of(0), None}
    assert world.stored[ONE].processed is None


async def test_what_was_processed_before_a_cancellation_is_stored():
    world = StoredWorld()
    world.add(0)
    async with world.stored_fetcher() as fetcher:
        task = asyncio.create_task(fetcher.run())
        await world.clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert world.stored[ZERO].processed == last_of(0)


async def test_of_two_readers_of_an_application_the_stale_one_stops():
    world = StoredWorld()
    world.add(0)
    async with world.stored_fetcher() as stale:
        await stale.prepare()
        async with world.reading():
            await world.clock.advance(11)
        task = asyncio.create_task(stale.run())
        await world.clock.advance(11)
        assert task.done()
        with pytest.raises(ReaderReplacedError, match="has taken over") as raised:
            await task
        assert isinstance(raised.value.__cause__, StaleCheckpointError)


async def test_the_application_may_record_what_has_been_processed():
    world = StoredWorld()
    world.add(0)
    first = SequenceNumber(records_of(0)[0].sequence_number)
    async with world.stored_fetcher(records=False) as fetcher:
        task = asyncio.create_task(fetcher.run())
        await world.clock.advance(30)
        assert world.stored[ZERO].processed is None
        progress = ShardProgress(position=StartingPosition.after(first))
        assert fetcher.checkpointer is not None
        fetcher.checkpointer.record(world.shard(0).key, progress, records=1)
        fetcher.stop()
        await world.clock.settle()
        await task
    assert world.stored[ZERO].processed == first


async def test_streams_of_the_application_that_are_not_configured_are_left_alone():
    world = StoredWorld()
    world.add(0)
    async with world.reading():
        await world.clock.advance(1)
    other = StoredWorld(memory=world.memory, stream=FakeStream(arn=f"{STREAM_ARN}-2"))
    other.stream.add(evolve(sample_shard(0), stream_arn=other.stream.arn))
    other.shards[ZERO] = StoredShard(records_of(0))
    async with other.reading():
        await other.clock.advance(1)
    assert len(world.memory.applications["billing"]) == 4


async def test_progress_and_checkpoints_are_of_the_same_form():
    world = StoredWorld()
    world.add(0)
    async with world.reading() as fetcher:
        await world.clock.advance(1)
    async with world.stored_fetcher() as following:
        await following.prepare()
        (before,) = fetcher.progress.values()
        (after,) = following.progress.values()
        assert isinstance(after, StreamProgress)
        assert after.identity == before.identity
        assert after.shards[ZERO].position == before.shards[ZERO].position
        assert after.shards[ZERO].position.type is PositionType.AFTER_SEQUENCE_NUMBER


async def test_a_child_that_is_not_listed_yet_has_a_checkpoint_before_it_is_read():
    class Sink(RecordingSink):
        async def deliver(self, delivery: Delivery) -> None:
            assert delivery.shard.shard_id in world.stored
            await super().deliver(delivery)

    world = StoredWorld(sink=Sink())
    world.add(0)
    world.shards[ONE] = StoredShard(records_of(1))
    async with world.reading():
        world.close(0, child_of(0, number=1))
        await world.clock.advance(30)
    assert world.sink.records_of(ONE) == records_of(1)
    assert world.stored[ONE].processed == last_of(1)


async def test_a_restart_with_a_listing_that_is_late_keeps_the_checkpoint_of_a_newer_shard():
    world = StoredWorld()
    world.add(0)
    world.shards[ONE] = StoredShard(records_of(1))
    async with world.reading():
        world.close(0, child_of(0, number=1))
        await world.clock.advance(1)
    async with world.reading():
        await world.clock.advance(30)
        assert world.stored[ONE].processed == last_of(1)
        world.stream.add(sample_shard(1, parent=0))
        world.shards[ONE].extend(records_of(1, 2, first=3))
        await world.clock.advance(10)
    assert world.sink.records_of(ONE) == records_of(1, 5)


async def test_checkpoints_of_a_stream_that_is_created_again_start_over_under_its_identity():
    world = StoredWorld(fails_on_data_loss=False)
    world.add(0)
    async with world.reading():
        await world.clock.advance(1)
        old = world.stream.created_at
        world.stream.created_at = old + timedelta(days=1)
        world.stream.shards = [evolve(sample_shard(0), starting_sequence_number="1")]
        world.shards[ZERO] = StoredShard(records_of(0, 5, first=100))
        await world.clock.advance(20)
    # What came before the next discovery comes again.
    assert world.sink.records[:3] == records_of(0)
    assert world.sink.records[-5:] == records_of(0, 5, first=100)
    found = world.memory.applications["billing"]
    assert {one.checkpoint.stream_created_at for one, _ in found.values()} == {
        world.stream.created_at
    }
    assert world.stored[ZERO].processed == SequenceNumber(
        records_of(0, 5, first=100)[-1].sequence_number
    )
    assert len(world.events_of(DataLossTolerated)) == 1
