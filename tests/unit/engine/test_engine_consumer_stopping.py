"""Stopping the loop over one shard while its publisher delivers again and again in one run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import Delivery, RunResult, ShardStatus
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.testing.fakes import (
    FakeStream,
    RecordingSink,
    ScriptedPublisherFactory,
    ScriptedRun,
    ShardReader,
    batch_of,
    sample_records,
)
from tests.unit.engine.consumer_support import RECORDS, after, place, reader_of, run_of

if TYPE_CHECKING:
    from kinesis_publishers.model import StreamSummary


NOW = datetime(2026, 1, 1, tzinfo=UTC)


class RunningPublisher(ScriptedPublisherFactory):
    """Makes publishers whose run is what a test gives."""

    def __init__(self, run) -> None:
        super().__init__()
        self._run = run

    async def create(self, starting_position, shard):
        publisher = await super().create(starting_position, shard)
        publisher.run = self._run
        return publisher


async def test_stopping_in_a_delivery_ends_the_run_of_the_publisher_after_it():
    async def stops(delivery: Delivery) -> None:
        consumer.stop()

    reader = reader_of(run_of((0, 4), (4, 7), (7, 10)), sink=RecordingSink(stops))
    consumer = reader.consumer()
    await consumer.run()
    assert reader.sink.records == RECORDS[:4]
    assert consumer.progress.processed == place(3)
    assert not consumer.progress.is_ended
    assert reader.pool.records == 0


async def test_stopping_when_an_answer_is_observed_ends_the_run_too():
    class StopsAtTheTip(RecordingSink):
        def observe(self, status: ShardStatus) -> None:
            super().observe(status)
            consumer.stop()

    reader = reader_of(run_of((0, 0), (0, 4)), sink=StopsAtTheTip())
    consumer = reader.consumer(after(1))
    await consumer.run()
    assert reader.sink.deliveries == []
    assert consumer.progress.position == after(1).position


async def test_stopping_before_a_publisher_asks_for_room_ends_its_run():
    async def run(consumer):
        consumer.stop()
        await consumer.wait_for_space(1, 1)
        pytest.fail("the run continues")

    reader = ShardReader(factory=RunningPublisher(run))
    await reader.consumer().run()
    assert reader.pool.records == 0


async def test_stopping_while_a_publisher_waits_for_room_ends_its_run_when_there_is_some():
    reader = reader_of(run_of((0, 4)), pool=PendingPool(max_records=4, max_bytes=1000))
    held = await reader.pool.acquire(4, 4)
    consumer = reader.consumer()
    running = asyncio.create_task(consumer.run())
    await reader.clock.settle()
    assert reader.pool.waiter_count == 1
    consumer.stop()
    held.release()
    await running
    assert reader.sink.deliveries == []
    assert reader.pool.records == 0


async def test_a_publisher_may_deliver_from_a_task_group_of_its_own():
    async def run(consumer):
        async def deliver() -> None:
            await consumer(batch_of(RECORDS[:3]))

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            group.create_task(asyncio.Event().wait())
        return RunResult.INCOMPLETE

    async def stops(delivery: Delivery) -> None:
        consumer.stop()

    reader = ShardReader(factory=RunningPublisher(run), sink=RecordingSink(stops))
    consumer = reader.consumer()
    await consumer.run()
    assert consumer.progress.processed == place(2)


async def test_a_publisher_that_asks_for_room_in_its_cleanup_is_not_kept_waiting():
    async def run(consumer):
        consumer.stop()
        try:
            await consumer.wait_for_space(1, 1)
        except asyncio.CancelledError:
            await consumer.wait_for_space(1, 1)
        pytest.fail("the run continues")

    reader = ShardReader(factory=RunningPublisher(run))
    await asyncio.wait_for(reader.consumer().run(), timeout=10)
    assert reader.pool.records == 0


async def test_a_failure_of_a_publisher_that_was_stopped_comes_through():
    async def run(consumer):
        consumer.stop()
        raise LookupError("the publisher")

    with pytest.raises(LookupError, match="the publisher"):
        await ShardReader(factory=RunningPublisher(run)).consumer().run()


@pytest.mark.parametrize("kind", [LookupError, TimeoutError])
async def test_a_failure_in_the_cleanup_of_a_publisher_that_was_stopped_comes_through(kind):
    async def run(consumer):
        consumer.stop()
        try:
            await consumer.wait_for_space(1, 1)
        finally:
            raise kind("the connection")

    with pytest.raises(kind, match="the connection"):
        await ShardReader(factory=RunningPublisher(run)).consumer().run()


async def test_room_that_a_run_asked_for_and_did_not_use_is_given_back():
    held = []

    async def run(consumer):
        held.append(reader.pool.records)
        if len(held) == 3:
            return RunResult.COMPLETE
        await consumer.wait_for_space(5, 50)
        return RunResult.INCOMPLETE

    reader = ShardReader(factory=RunningPublisher(run))
    await reader.consumer().run()
    assert held == [0, 0, 0]


async def test_a_question_for_the_retention_is_no_delivery():
    """It has retries; stopping must not wait for them."""
    asked, answers = [], asyncio.Event()

    async def answer(stream_arn: str) -> StreamSummary:
        asked.append(stream_arn)
        await answers.wait()
        return FakeStream().summary

    records = sample_records(6, first=4, arrival=NOW + timedelta(days=1))
    late = batch_of(records, requested_at=NOW + timedelta(days=2))
    reader = reader_of(ScriptedRun(batches=[late]))
    # The clock stands still: nothing is in doubt before these records come.
    consumer = reader.consumer(after(3, as_of=NOW))
    guard = evolve(consumer.context.data_loss, describe=answer)
    context = evolve(consumer.context, data_loss=guard)
    consumer = ShardConsumer(consumer.shard, consumer.progress, context)
    running = asyncio.create_task(consumer.run())
    await reader.clock.settle()
    assert len(asked) == 1
    assert not consumer.status.is_delivering
    assert reader.pool.records == 6
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reader.pool.records == 0
    assert reader.sink.deliveries == []


async def test_the_status_says_until_when_everything_has_been_read():
    later, latest = NOW + timedelta(seconds=1), NOW + timedelta(seconds=2)
    answers = [
        batch_of(RECORDS[:2], requested_at=NOW, millis_behind_latest=5),
        batch_of(RECORDS[2:4], requested_at=later, millis_behind_latest=0),
        batch_of(RECORDS[4:6], requested_at=latest, millis_behind_latest=None),
        batch_of([], requested_at=latest, millis_behind_latest=0),
        # Records that arrived in the meantime do not undo what was read.
        batch_of(RECORDS[6:7], requested_at=latest, millis_behind_latest=60_000),
    ]
    reader = reader_of(ScriptedRun(batches=answers))
    await reader.read()
    seen = [one.read_until for one in reader.sink.statuses]
    behind = NOW - timedelta(seconds=5, milliseconds=5)
    assert seen == [behind, later, later, latest, latest, latest]
