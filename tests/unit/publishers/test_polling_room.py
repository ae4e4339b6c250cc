"""What waits holds no room: a shard that has to wait must not stop the others."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_publishers import RunResult, StartingPosition
from kinesis_publishers.config import PendingConfig
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import (
    ConnectionFailedError,
    InternalServiceError,
    InvalidArgumentError,
    IteratorExpiredError,
    MalformedResponseError,
    RetriesExhaustedError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.events import IteratorReplaced
from kinesis_publishers.testing.fakes import (
    FailingCalls,
    FakeDataPlane,
    RecordingConsumer,
    ShardReader,
    StoredShard,
    ThrottledCalls,
    finish,
    sample_records,
    sample_shard,
    shard_name,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.polling_support import POLICY, Polling, failure, polling_factory

RECORDS = sample_records(3)
BEGINNING = StartingPosition.at_timestamp(ManualClock().now())


def failing(
    *, on_locate: tuple[Exception, ...] = (), on_read: tuple[Exception, ...] = ()
) -> Polling:
    shard = FailingCalls(StoredShard(RECORDS), on_locate=on_locate, on_read=on_read)
    return Polling.of(shard, start=BEGINNING)


class Waiting(RecordingConsumer):
    """Lets the publisher wait for room, so many seconds each time."""

    def __init__(self, polling: Polling, seconds: float) -> None:
        super().__init__()
        self.polling = polling
        self.seconds = seconds

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await super().wait_for_space(records, payload_bytes)
        await self.polling.clock.sleep(self.seconds)


@pytest.mark.parametrize(
    ("operation", "kind", "times"),
    [
        ("on_read", ThroughputExceededError, 20),
        ("on_read", InternalServiceError, 3),
        ("on_read", ConnectionFailedError, 3),
        ("on_read", MalformedResponseError, 3),
        ("on_read", IteratorExpiredError, 20),
        ("on_locate", ThroughputExceededError, 20),
        ("on_locate", InternalServiceError, 3),
        ("on_locate", InvalidArgumentError, 3),
    ],
)
async def test_no_room_is_held_while_anything_is_waited_for(
    operation: str, kind: type[ServiceError], times: int
):
    polling = failing(**{operation: (failure(kind),) * times})
    sleeps_at_space: list[int] = []

    class WatchfulConsumer(RecordingConsumer):
        async def wait_for_space(self, records: int, payload_bytes: int) -> None:
            sleeps_at_space.append(len(polling.clock.sleeps))

    consumer, runs = WatchfulConsumer(), 0
    while not consumer.batches:
        sleeps_at_space.clear()
        assert await polling.run_once(consumer) is RunResult.INCOMPLETE
        assert sleeps_at_space in ([], [len(polling.clock.sleeps)])
        # An iterator is asked for without any room.
        assert consumer.batches or bool(sleeps_at_space) == (operation == "on_read")
        runs += 1
    assert runs == times + 1
    assert consumer.records == RECORDS


async def test_each_operation_has_retries_of_its_own_and_gets_them_back_when_it_succeeds():
    trouble = (failure(InternalServiceError),) * POLICY.max_retries
    shard = FailingCalls(
        StoredShard(RECORDS),
        on_locate=(*trouble, None, *trouble),
        on_read=(*trouble, None, *trouble, failure(IteratorExpiredError)),
    )
    polling, consumer = Polling.of(shard), RecordingConsumer()
    await polling.run(consumer, times=2)
    assert len(polling.plane.iterator_calls) == 8
    assert consumer.records == RECORDS


async def test_a_get_shard_iterator_that_keeps_failing_exhausts_the_retries():
    polling = failing(on_locate=(failure(InternalServiceError, "GetShardIterator"),) * 9)
    with pytest.raises(RetriesExhaustedError, match="GetShardIterator failed 4 times"):
        await polling.run(RecordingConsumer())


async def test_an_instant_that_is_refused_is_asked_for_once_a_second():
    polling = failing(on_locate=(failure(InvalidArgumentError, "GetShardIterator"),) * 3)
    await polling.run(RecordingConsumer())
    assert polling.clock.sleeps == [1, 1, 1]


@pytest.mark.parametrize(("seconds", "calls"), [(299, 1), (301, 4)])
async def test_an_iterator_that_expires_while_room_is_waited_for_costs_no_turn(
    seconds: float, calls: int
):
    polling = Polling.of(StoredShard(RECORDS))
    consumer = Waiting(polling, seconds)
    await finish(three_runs(polling, consumer), polling.clock, within=1000)
    assert consumer.history == ["space", "batch"] * 3
    # The first run asks for one and replaces it; the others replace what the answer came with.
    assert len(polling.plane.iterator_calls) == calls
    assert len(polling.events_of(IteratorReplaced)) == calls - 1


async def test_room_is_not_kept_when_an_expired_iterator_cannot_be_replaced():
    shard = FailingCalls(StoredShard(RECORDS), on_locate=(None, failure(InternalServiceError)))
    polling = Polling.of(shard)
    consumer = Waiting(polling, 301)
    result = await finish(polling.publisher.run(consumer), polling.clock, within=400)
    assert (result, consumer.batches) == (RunResult.INCOMPLETE, [])
    assert polling.clock.sleeps == [301]


async def test_throttled_shards_do_not_stop_the_others():
    """Five shards whose first pages fill the default pool are throttled for ever."""
    throttled, readable = range(5), range(5, 12)
    records = {number: sample_records(3, shard=sample_shard(number)) for number in readable}
    shards = {shard_name(number): ThrottledCalls(StoredShard(), times=9999) for number in throttled}
    shards |= {shard_name(number): StoredShard(records[number]) for number in readable}
    clock = ManualClock()
    reader = ShardReader(
        factory=polling_factory(FakeDataPlane(shards), clock),
        clock=clock,
        pool=PendingPool(
            max_records=PendingConfig.max_records.default, max_bytes=PendingConfig.max_bytes.default
        ),
    )
    tasks = [
        asyncio.create_task(reader.consumer(shard=sample_shard(number)).run())
        for number in range(12)
    ]
    try:
        await clock.advance(3)
        for number in readable:
            assert reader.sink.records_of(shard_name(number)) == records[number]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0)


async def three_runs(polling: Polling, consumer: RecordingConsumer) -> None:
    for _ in range(3):
        await polling.publisher.run(consumer)
