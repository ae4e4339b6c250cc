"""One answer of polling is one delivery: positions, iterators, pace, limits."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime

import pytest

from kinesis_publishers import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    StartingPosition,
)
from kinesis_publishers.errors import IteratorExpiredError
from kinesis_publishers.events import IteratorReplaced, RecordsFetched
from kinesis_publishers.testing.fakes import (
    FailingCalls,
    FakeDataPlane,
    RecordingConsumer,
    StoredShard,
    empty_shard,
    expired_iterator_after,
    finish,
    records_in_calls,
    sample_records,
    sample_shard,
    throttled,
)
from tests.unit.publishers.polling_support import Polling

ARRIVAL = datetime(2026, 1, 1, tzinfo=UTC)
TRIM_HORIZON = StartingPosition.trim_horizon()
RECORDS = sample_records(10)


def place(index: int, sub: int | None = None) -> SequenceNumber:
    return SequenceNumber(RECORDS[index].sequence_number, sub)


async def test_one_run_is_one_get_records_and_the_iterator_is_kept():
    polling, consumer = Polling.of(records_in_calls(RECORDS, 3)), RecordingConsumer()
    results = await polling.run(consumer, times=3)
    assert results == [RunResult.INCOMPLETE, RunResult.INCOMPLETE, RunResult.COMPLETE]
    assert len(polling.plane.iterator_calls) == 1
    assert len(polling.plane.records_calls) == 3
    assert [len(batch) for batch in consumer.batches] == [3, 3, 4]


async def test_the_lag_of_an_answer_is_passed_on():
    polling, consumer = Polling.of(records_in_calls(RECORDS, 2, 7000)), RecordingConsumer()
    await polling.run(consumer, times=2)
    assert [batch.millis_behind_latest for batch in consumer.batches] == [7000, 0]


async def test_the_instant_of_an_answer_is_that_of_the_question():
    class SlowShard(StoredShard):
        async def read(self, index: int, limit: int):
            await polling.clock.sleep(3)
            return await super().read(index, limit)

    polling, consumer = Polling.of(SlowShard()), RecordingConsumer()
    await polling.run(consumer)
    assert consumer.batches[0].requested_at == ARRIVAL


async def test_empty_answers_do_not_move_an_instant():
    """A position by time stays one until there is a sequence number."""
    shard, start = StoredShard(), StartingPosition.at_timestamp(ARRIVAL)
    plane = FakeDataPlane(FailingCalls(shard, on_read=(*[None] * 5, expired())))
    polling, consumer = Polling.of(plane, start=start), RecordingConsumer()
    await polling.run(consumer, times=5)
    shard.extend(RECORDS[:2])
    await polling.run(consumer)
    assert [call.position for call in polling.plane.iterator_calls] == [start, start]
    assert consumer.records == RECORDS[:2]


async def test_an_expired_iterator_is_replaced_after_the_last_processed_record():
    polling, consumer = Polling.of(expired_iterator_after(1, records=RECORDS)), RecordingConsumer()
    await polling.run(consumer, times=3)
    assert consumer.records == RECORDS
    after = StartingPosition.after(place(2))
    assert [call.position for call in polling.plane.iterator_calls] == [TRIM_HORIZON, after]
    assert polling.events_of(IteratorReplaced) == [
        IteratorReplaced(shard=sample_shard().key, position=after)
    ]


@pytest.mark.parametrize(
    ("processed", "position"),
    [
        (place(0), StartingPosition.after(place(0))),
        # Inside of an aggregate: at the record itself.
        (place(1, sub=3), StartingPosition.at(place(1, sub=3))),
    ],
)
async def test_an_expired_iterator_follows_what_was_processed_and_not_what_was_delivered(
    processed: SequenceNumber, position: StartingPosition
):
    async def process(batch: RecordBatch) -> SequenceNumber | None:
        return processed

    polling = Polling.of(expired_iterator_after(1, records=RECORDS))
    await polling.run(RecordingConsumer(process), times=2)
    assert polling.plane.iterator_calls[1].position == position


async def test_calls_are_one_period_apart_whether_there_are_records_or_not():
    polling = Polling.of(FakeDataPlane(StoredShard(list(RECORDS))))
    starts = call_times(polling)
    await polling.run(RecordingConsumer(), times=6)
    assert starts == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.15, [0, 0.2, 0.4]), (1, [0, 1, 2])],
    ids=["it counts towards the period", "a slower one is not slowed further"],
)
async def test_the_time_that_the_consumer_takes_is_not_added_to_the_period(
    seconds: float, expected: list[float]
):
    async def takes_a_while(batch: RecordBatch) -> SequenceNumber | None:
        await polling.clock.sleep(seconds)
        return None

    polling = Polling.of(empty_shard(9))
    starts = call_times(polling)
    await polling.run(RecordingConsumer(takes_a_while), times=3)
    assert starts == pytest.approx(expected)


async def test_refused_calls_are_a_period_apart_as_well():
    polling = Polling.of(throttled(30))
    starts = call_times(polling)
    await polling.run(RecordingConsumer())
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(gaps) == 30
    assert min(gaps) >= 0.2 - 1e-9


async def test_room_is_asked_for_before_the_records():
    polling = Polling.of(empty_shard(9))

    class WatchfulConsumer(RecordingConsumer):
        async def wait_for_space(self, records: int, payload_bytes: int) -> None:
            await super().wait_for_space(records, payload_bytes)
            assert len(polling.plane.records_calls) == len(self.batches)

    consumer = WatchfulConsumer()
    await polling.run(consumer, times=3)
    assert consumer.history == ["space", "batch"] * 3
    assert consumer.space_requests[0] == (10_000, 10 * 1024 * 1024)
    assert consumer.space_requests[1] < consumer.space_requests[0]


async def test_nothing_is_asked_for_while_there_is_no_room():
    room = asyncio.Event()

    class FullConsumer(RecordingConsumer):
        async def wait_for_space(self, records: int, payload_bytes: int) -> None:
            await room.wait()

    polling = Polling.of(empty_shard(9))
    running = asyncio.create_task(polling.publisher.run(FullConsumer()))
    await polling.clock.advance(60)
    assert polling.plane.records_calls == []
    room.set()
    assert await finish(running, polling.clock) is RunResult.INCOMPLETE


async def test_room_is_not_held_during_the_pause_between_calls():
    polling, consumer = Polling.of(empty_shard(9)), RecordingConsumer()
    await polling.run(consumer)
    running = asyncio.create_task(polling.publisher.run(consumer))
    await polling.clock.advance(0.1)
    assert consumer.history == ["space", "batch"]
    await finish(running, polling.clock)
    assert consumer.history == ["space", "batch"] * 2


async def test_the_configured_limit_is_asked_for():
    polling = Polling.of(empty_shard(9), max_records=123)
    await polling.run(RecordingConsumer(), times=2)
    assert [call.limit for call in polling.plane.records_calls] == [123, 123]


async def test_adaptive_reads_follow_the_average_size_of_a_record():
    large = sample_records(400, size=65_536)
    polling = Polling.of(StoredShard(large), adaptive_reads=True, max_records=50)
    await polling.run(RecordingConsumer(), times=4)
    # 2 MiB/s for 0.2 s hold 6 records of 64 KiB; the first pause is known after two calls.
    assert [call.limit for call in polling.plane.records_calls] == [50, 50, 6, 6]


async def test_every_answer_is_reported():
    polling = Polling.of(records_in_calls(RECORDS, 2, 5))
    await polling.run(RecordingConsumer(), times=2)
    first, second = polling.events_of(RecordsFetched)
    assert (first.records, first.payload_bytes, first.millis_behind_latest) == (5, 50, 5)
    assert (first.limit, first.loop_seconds) == (10_000, None)
    assert second.loop_seconds == pytest.approx(0.2)


async def test_an_error_of_the_consumer_comes_through_and_moves_nothing():
    async def fails(batch: RecordBatch) -> SequenceNumber | None:
        raise LookupError("the application")

    polling = Polling.of(records_in_calls(RECORDS, 2))
    with pytest.raises(LookupError, match="the application"):
        await polling.publisher.run(RecordingConsumer(fails))
    consumer = RecordingConsumer()
    await polling.run(consumer)
    assert consumer.records == RECORDS[:5]


def expired() -> Exception:
    return IteratorExpiredError("expired", operation="GetRecords", code="ExpiredIteratorException")


def call_times(polling: Polling) -> list[float]:
    """Return a list to which the time of each GetRecords is added."""
    times: list[float] = []
    behaviour = polling.plane.behaviour_of(sample_shard().shard_id)
    read = behaviour.read

    async def timed(index: int, limit: int):
        times.append(polling.clock.monotonic())
        return await read(index, limit)

    behaviour.read = timed
    return times
