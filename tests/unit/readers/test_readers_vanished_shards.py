"""The service does not find a shard: the stream is gone, or the shard has left the retention."""

from __future__ import annotations

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, Shard, ShardProgress, StartingPosition
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    PositionTrimmedError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from kinesis_publishers.events import DataLossTolerated, ShardEnded
from kinesis_publishers.readers import KinesisRangeFinder, ReadLimit
from kinesis_publishers.testing.fakes import (
    FailingCalls,
    RecordingSink,
    ScriptedPublisherFactory,
    ShardReader,
    StoredShard,
    finish,
    sample_shard,
    shard_name,
)
from tests.unit.engine.consumer_support import RECORDS, after, reader_of, run_of
from tests.unit.readers.fetcher_support import World, failure, progress_of, records_of

ZERO, ONE = shard_name(0), shard_name(1)


def not_found(operation: str = "GetRecords") -> StreamNotFoundError:
    return failure(StreamNotFoundError, operation)


def losses(reader: ShardReader) -> list[str]:
    return [one.message for one in reader.events if isinstance(one, DataLossTolerated)]


def consumer_of(reader: ShardReader, *args: object, listed: bool | Exception, **more: object):
    """Return a consumer for which the service answers whether its shard is listed."""

    async def has_shard(shard: Shard) -> bool:
        assert shard == sample_shard()
        if isinstance(listed, Exception):
            raise listed
        return listed

    consumer = reader.consumer(*args, **more)
    guard = evolve(consumer.context.data_loss, has_shard=has_shard)
    context = evolve(consumer.context, data_loss=guard)
    return ShardConsumer(consumer.shard, consumer.progress, context)


async def test_a_shard_that_is_not_listed_any_more_is_data_loss():
    error = not_found()
    consumer = consumer_of(reader_of(run_of((0, 4), error=error)), listed=False)
    with pytest.raises(PositionTrimmedError, match="AFTER_SEQUENCE_NUMBER 994") as caught:
        await consumer.run()
    assert caught.value.__cause__ is error
    assert str(sample_shard()) in str(caught.value)
    assert "kinesis.failondataloss" in str(caught.value)
    assert not consumer.progress.is_ended


async def test_a_shard_that_is_not_listed_any_more_has_ended_if_loss_is_tolerated():
    reader = reader_of(run_of((0, 4), error=not_found()), fails_on_data_loss=False)
    consumer = consumer_of(reader, listed=False)
    await consumer.run()
    assert reader.sink.records == RECORDS[:4]
    assert consumer.progress == after(3, as_of=consumer.progress.as_of).ended()
    assert reader.events[-1] == ShardEnded(shard=sample_shard().key)
    assert reader.sink.statuses[-1].progress.is_ended
    assert len(losses(reader)) == 1


async def test_what_is_not_found_for_a_moment_is_read_on_after_the_last_record():
    factory = ScriptedPublisherFactory([run_of((0, 4), error=not_found())], [run_of((3, 10))])
    reader = ShardReader(factory=factory)
    consumer = consumer_of(reader, listed=True)
    await finish(consumer.run(), reader.clock)
    assert reader.sink.records == RECORDS
    assert consumer.progress.is_ended


async def test_what_is_listed_and_never_found_is_given_up_in_the_end():
    runs = [[run_of(error=not_found())] for _ in range(500)]
    reader = ShardReader(factory=ScriptedPublisherFactory(*runs))
    with pytest.raises(RetriesExhaustedError, match=r"But stream and shard are listed\.") as caught:
        await finish(consumer_of(reader, listed=True).run(), reader.clock)
    assert 300 <= caught.value.elapsed_seconds < 310


async def test_a_stream_that_is_gone_is_the_error_that_it_was():
    error = not_found()
    reader = reader_of(run_of(error=error), fails_on_data_loss=False)
    with pytest.raises(StreamNotFoundError) as caught:
        await consumer_of(reader, listed=not_found("ListShards")).run()
    assert caught.value is error
    assert losses(reader) == []


async def test_without_its_stream_or_shard_a_consumer_is_not_blamed():
    error = failure(ConsumerNotFoundError, "SubscribeToShard")
    gone = not_found("ListShards")
    with pytest.raises(StreamNotFoundError) as caught:
        await consumer_of(reader_of(run_of(error=error)), listed=gone).run()
    assert caught.value is gone
    with pytest.raises(PositionTrimmedError, match="has left the retention"):
        await consumer_of(reader_of(run_of(error=error)), listed=False).run()
    with pytest.raises(ConsumerNotFoundError):
        await consumer_of(reader_of(run_of(error=error)), listed=True).run()


async def test_without_a_listing_the_error_stands():
    error = not_found()
    with pytest.raises(StreamNotFoundError) as caught:
        await reader_of(run_of(error=error)).read()
    assert caught.value is error


async def test_an_error_of_the_application_is_not_taken_for_a_missing_shard():
    error = not_found("PutRecord")

    async def fails(delivery: object) -> None:
        raise error

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(fails), fails_on_data_loss=False)
    with pytest.raises(StreamNotFoundError) as caught:
        await consumer_of(reader, listed=False).run()
    assert caught.value is error


async def test_a_publisher_that_cannot_be_made_for_want_of_the_shard_is_the_same():
    class FindsNothing(ScriptedPublisherFactory):
        async def create(self, starting_position, shard):
            raise not_found("SubscribeToShard")

    consumer = consumer_of(ShardReader(factory=FindsNothing()), after(1), listed=False)
    with pytest.raises(PositionTrimmedError, match="AFTER_SEQUENCE_NUMBER 992"):
        await consumer.run()


def resume(world: World) -> dict:
    read = ShardProgress(
        position=StartingPosition.after(SequenceNumber(records_of(0)[0].sequence_number))
    )
    return progress_of(world.stream, s0=read)


class VanishesLater(FailingCalls):
    """Leaves the listing of its stream before its first call fails."""

    def __init__(self, world: World) -> None:
        super().__init__(StoredShard(records_of(0)), on_locate=(not_found(),))
        self._world = world

    async def locate(self, position: StartingPosition) -> int:
        self._world.stream.remove(ZERO)
        return await super().locate(position)


async def test_a_fetcher_reports_a_shard_that_left_the_retention_after_it_was_listed():
    world = World()
    world.add(0, behaviour=VanishesLater(world))
    world.add(1, parent=0)
    with pytest.raises(PositionTrimmedError, match=f"orders/{ZERO}: .* has left the retention"):
        await finish(world.fetcher(resume(world)).run(), world.clock)


async def test_a_fetcher_that_tolerates_it_reads_the_children():
    world = World(fails_on_data_loss=False)
    world.add(0, behaviour=VanishesLater(world))
    world.add(1, parent=0)
    async with world.running(world.fetcher(resume(world))):
        await world.clock.advance(1)
    assert world.sink.records == records_of(1)
    assert len(world.events_of(DataLossTolerated)) == 1


async def test_a_fetcher_whose_stream_is_deleted_says_so():
    class DeletesTheStream(VanishesLater):
        async def locate(self, position: StartingPosition) -> int:
            world.control_plane.streams.clear()
            return await super().locate(position)

    world = World(fails_on_data_loss=False)
    world.add(0, behaviour=DeletesTheStream(world))
    with pytest.raises(StreamNotFoundError, match="GetRecords failed"):
        await finish(world.fetcher().run(), world.clock)
    assert world.events_of(DataLossTolerated) == []


@pytest.mark.parametrize("where", ["on_locate", "on_read"])
async def test_a_fetcher_goes_on_when_its_stream_was_not_found_once(where: str):
    world = World()
    world.add(0, behaviour=FailingCalls(StoredShard(records_of(0)), **{where: (not_found(),)}))
    async with world.running():
        await world.clock.advance(5)
    assert world.sink.records == records_of(0)


async def test_a_fetcher_goes_on_when_a_discovery_does_not_find_its_stream_once():
    world = World()
    world.add(0)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        world.control_plane.errors = [not_found("ListShards")] * 2
        world.add(1)
        await world.clock.advance(15)
        assert len(fetcher.statuses) == 2
    assert world.control_plane.errors == []


async def test_a_search_for_ranges_goes_on_when_the_stream_was_not_found_once():
    world = World()
    shard = FailingCalls(
        StoredShard(records_of(0)), on_locate=(not_found(),), on_read=(not_found(),)
    )
    world.add(0, behaviour=shard)
    finder = KinesisRangeFinder(world.parts())
    await finder.prepare()
    found = await finish(finder.find(ReadLimit()), world.clock)
    (end,) = found.values()
    assert end.progress.processed == SequenceNumber(records_of(0)[-1].sequence_number)
