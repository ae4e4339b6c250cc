"""A fetcher at work: failures, stopping, slow consumers."""

from __future__ import annotations

import pytest

from kinesis_publishers import (
    Delivery,
    Properties,
    SequenceNumber,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.config import DiscoveryConfig, PollingConfig
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    InternalServiceError,
    RetriesExhaustedError,
)
from kinesis_publishers.readers.consumers import CallbackSink
from kinesis_publishers.testing.fakes import (
    Answer,
    FailingCalls,
    FakeStream,
    RecordingSink,
    StoredShard,
    finish,
    sample_shard,
    shard_name,
)
from tests.unit.readers import fetcher_support
from tests.unit.readers.fetcher_support import (
    Blocks,
    World,
    failure,
    other_tasks,
    progress_of,
    records_of,
)

ZERO, ONE = shard_name(0), shard_name(1)


async def test_the_first_failure_of_a_shard_stops_the_others_and_surfaces_bare():
    world = World()
    error = failure(AccessDeniedError)
    world.add(0, behaviour=FailingCalls(StoredShard(records_of(0)), on_read=(None, error)))
    world.add(1)
    fetcher = world.fetcher()
    with pytest.raises(AccessDeniedError) as caught:
        await finish(fetcher.run(), world.clock)
    assert caught.value is error
    assert other_tasks() == set()
    assert world.pool.records == 0
    # What was processed before it is known.
    progress = fetcher.progress[world.stream.arn].shards[ZERO]
    assert progress.processed == SequenceNumber(records_of(0)[-1].sequence_number)


async def test_a_failure_of_the_listing_stops_every_shard():
    world = World()
    world.add(0)
    world.control_plane.errors = [None, None, *[failure(InternalServiceError, "ListShards")] * 9]
    with pytest.raises(RetriesExhaustedError, match="ListShards failed 4 times"):
        await finish(world.fetcher().run(), world.clock)
    assert other_tasks() == set()


class Outage(StoredShard):
    """Fails for so long, and with it the listing of the stream."""

    def __init__(self, world: World, seconds: float) -> None:
        super().__init__(records_of(0))
        self._world = world
        self._until = world.clock.monotonic() + seconds

    async def read(self, index: int, limit: int) -> Answer:
        is_over = self._world.clock.monotonic() >= self._until
        listing = failure(ConnectionFailedError, "ListShards")
        self._world.control_plane.errors = [] if is_over else [listing] * 9
        if not is_over:
            raise failure(ConnectionFailedError)
        return await super().read(index, limit)


async def test_five_minutes_without_the_service_end_nothing_by_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    properties = Properties.parse({}, complete=False)
    discovery = DiscoveryConfig.from_properties(properties)
    monkeypatch.setattr(fetcher_support, "POLLING", PollingConfig.from_properties(properties))
    monkeypatch.setattr(fetcher_support, "POLICY", discovery.list_shards_retry)
    world = World()
    world.add(0, behaviour=Outage(world, 295))
    async with world.running():
        await world.clock.advance(310)
    assert world.sink.records == records_of(0)
    said = [message for message in caplog.messages if message.startswith("GetRecords")]
    assert len(said) == 6
    assert said[-1] == "GetRecords works again."


async def test_an_error_of_the_application_surfaces_bare():
    error = LookupError("the application")

    async def fails(delivery: Delivery) -> None:
        raise error

    world = World(sink=RecordingSink(fails))
    world.add(0)
    world.add(1)
    with pytest.raises(LookupError) as caught:
        await world.fetcher().run()
    assert caught.value is error
    assert world.pool.records == 0


async def test_one_slow_shard_does_not_stop_the_others():
    blocks = Blocks(ZERO)
    world = World(sink=RecordingSink(blocks))
    world.add(0)
    fast = world.add(1)
    async with world.running():
        for first in (3, 6, 9):
            fast.extend(records_of(1, 3, first=first))
            await world.clock.advance(0.3)
        assert world.sink.records_of(ONE) == records_of(1, 12)
        blocks.gate.set()


async def test_a_full_pool_holds_every_shard_until_there_is_room():
    world = World(
        sink=RecordingSink(release=False), pool=PendingPool(max_records=4, max_bytes=10**9)
    )
    world.add(0)
    world.add(1)
    async with world.running():
        await world.clock.advance(30)
        assert len(world.sink.deliveries) == 1
        world.sink.deliveries[0].release()
        await world.clock.advance(1)
        assert len(world.sink.deliveries) == 2


async def test_progress_and_statuses_tell_how_far_each_shard_has_been_read():
    world = World()
    world.add(0)
    world.add(1)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        (stream,) = fetcher.progress.values()
        assert stream.identity == world.stream.identity
        assert {id_: str(one.position) for id_, one in stream.shards.items()} == {
            ZERO: "AFTER_SEQUENCE_NUMBER 993",
            ONE: "AFTER_SEQUENCE_NUMBER 993",
        }
        assert [one.millis_behind_latest for one in fetcher.statuses] == [0, 0]
        world.close(0)
        await world.clock.advance(1)
        assert [one.shard.shard_id for one in fetcher.statuses] == [ONE]
        assert fetcher.progress[world.stream.arn].shards[ZERO].is_ended


async def test_two_streams_are_read_side_by_side():
    other = FakeStream([sample_shard(7, stream_arn="arn:aws:kinesis:eu-west-1:1:stream/payments")])
    other.arn = other.shards[0].stream_arn
    stream = FakeStream()
    world = World(stream=stream, streams=[stream, other])
    world.add(0)
    world.shards[shard_name(7)] = StoredShard(records_of(7))
    async with world.running() as fetcher:
        await world.clock.advance(1)
        assert set(fetcher.progress) == {stream.arn, other.arn}
    assert {one.batch.shard.stream_name for one in world.sink.deliveries} == {"orders", "payments"}


async def test_a_callback_gets_shard_and_batch_and_its_return_is_the_delivery():
    world, received = World(), []
    world.add(0)

    async def on_batch(shard, batch) -> None:
        assert world.pool.records == len(batch)
        received.append((shard.shard_id, [record.data for record in batch]))

    world.sink = CallbackSink(on_batch, world.parts().slow_calls)
    async with world.running():
        await world.clock.advance(1)
    assert received == [(ZERO, [one.data for one in records_of(0)])]
    assert world.pool.records == 0


async def test_a_callback_that_fails_gives_the_pool_back():
    world = World()
    world.add(0)

    async def on_batch(shard, batch) -> None:
        raise LookupError

    world.sink = CallbackSink(on_batch, world.parts().slow_calls)
    with pytest.raises(LookupError):
        await world.fetcher().run()
    assert world.pool.records == 0


async def test_progress_of_a_stream_survives_a_fetcher_that_read_nothing():
    world = World()
    world.add(0)
    start = ShardProgress(position=StartingPosition.after(SequenceNumber("992")))
    fetcher = world.fetcher(progress_of(world.stream, s0=start))
    await fetcher.prepare()
    assert fetcher.progress[world.stream.arn].shards == {ZERO: start}


@pytest.mark.parametrize(
    ("initial", "records", "is_said"),
    [
        (StartingPosition.latest(), 0, True),
        (StartingPosition.latest(), 3, False),
        (StartingPosition.trim_horizon(), 0, False),
    ],
)
async def test_that_nothing_comes_from_latest_is_said_once(
    initial: StartingPosition,
    records: int,
    is_said: bool,
    caplog: pytest.LogCaptureFixture,
):
    world = World(initial_position=initial)
    world.add(0, behaviour=StoredShard(records_of(0, records)))
    async with world.running():
        await world.clock.advance(29)
        assert "No record has come" not in caplog.text
        await world.clock.advance(600)
    said = [one.message for one in caplog.records if "No record has come" in one.message]
    assert len(said) == is_said
    assert all("begin at TRIM_HORIZON (kinesis.stream.initpos, start=)" in one for one in said)
