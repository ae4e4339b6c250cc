"""Backpressure: without room a subscription is closed, and continues later."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import RunResult
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import StreamNotFoundError
from kinesis_publishers.events import SubscriptionEnded
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeDataPlane,
    RecordingConsumer,
    RecordingSink,
    ShardReader,
    bounded_shard,
    event_of,
    events,
    finish,
    pushes_without_demand,
    sample_records,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.fanout_support import (
    CONSUMER_ARN,
    FanOut,
    KnownConsumer,
    fan_out_factory,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.testing.fakes.subscriptions import FakeSubscription

    from kinesis_publishers import RecordBatch, SequenceNumber

LAST = event_of(sample_records(1), continuation=None, child_shards=(SUCCESSOR,))


class NoRoomAtFirst(RecordingConsumer):
    """Has no room until :meth:`make_room`."""

    def __init__(self) -> None:
        super().__init__()
        self._room = asyncio.Event()
        self.waiting = 0

    def make_room(self) -> None:
        self._room.set()

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await super().wait_for_space(records, payload_bytes)
        self.waiting += 1
        try:
            await self._room.wait()
        finally:
            self.waiting -= 1


async def test_room_is_asked_for_before_an_event_is_received():
    fan_out, consumer = FanOut.of(bounded_shard(3, 3)), RecordingConsumer()
    await fan_out.run(consumer)
    assert consumer.history == ["space", "batch"] * 3
    assert consumer.space_requests == [(1, 10)] * 3


async def test_an_event_is_expected_to_hold_as_many_records_as_the_last_one():
    fan_out, consumer = FanOut.of(bounded_shard(10, 4)), RecordingConsumer()
    await fan_out.run(consumer)
    assert [records for records, _ in consumer.space_requests] == [1, 2, 3, 2]


async def test_a_subscription_without_room_is_closed_after_the_configured_time():
    fan_out, consumer = FanOut.of(bounded_shard(3, 3)), NoRoomAtFirst()
    await fan_out.run(consumer, within=31.0)
    assert fan_out.clock.monotonic() >= 30.0
    assert [(one.is_closed, one.taken) for one in fan_out.plane.subscriptions] == [(True, 0)]
    (ended,) = fan_out.events_of(SubscriptionEnded)
    assert ended.reason == "the application has left no room for 30 s"
    assert consumer.batches == []


async def test_it_is_not_opened_again_before_there_is_room_and_nothing_is_lost():
    fan_out, consumer = FanOut.of(bounded_shard(3, 3)), NoRoomAtFirst()
    await fan_out.run(consumer)
    task = asyncio.create_task(fan_out.publisher.run(consumer))
    await fan_out.clock.advance(1000.0)
    assert consumer.waiting == 1
    assert len(fan_out.plane.subscriptions) == 1
    consumer.make_room()
    await task
    assert [r.data for r in consumer.records] == [r.data for r in sample_records(3)]


async def test_room_that_was_waited_for_is_used_and_not_asked_for_again():
    """Behind the others it could be refused again, and so on for ever."""
    fan_out, consumer = FanOut.of(bounded_shard(2, 2)), NoRoomAtFirst()
    await fan_out.run(consumer)
    consumer.make_room()
    await fan_out.run(consumer)
    assert consumer.history == ["space", "space", "batch", "space", "batch"]
    assert consumer.space_requests == [(1, 10)] * 3


async def test_once_records_have_come_room_is_not_asked_for_ahead_of_a_subscription():
    fan_out = FanOut.of(bounded_shard(2, 2, per_subscription=1))
    opened: list[int] = []

    class Counting(NoRoomAtFirst):
        async def wait_for_space(self, records: int, payload_bytes: int) -> None:
            opened.append(len(fan_out.plane.subscriptions))
            await super().wait_for_space(records, payload_bytes)

    consumer = Counting()
    await fan_out.run(consumer)
    consumer.make_room()
    await fan_out.run_to_end(consumer)
    # Refused in the first subscription, regained before the second, asked for in the third.
    assert opened == [1, 1, 3]


async def test_room_is_waited_for_again_if_the_subscription_could_not_be_opened():
    plane = bounded_shard(1, 1)
    fan_out, consumer = FanOut.of(plane, subscribe_timeout_seconds=5.0), NoRoomAtFirst()
    await fan_out.run(consumer)
    consumer.make_room()
    behaviour, answer = plane.behaviour_of("shardId-000000000000"), asyncio.Event()

    async def refuse_first(*_: object) -> None:
        await answer.wait()

    behaviour.accept = refuse_first
    await fan_out.run(consumer)
    answer.set()
    await fan_out.run(consumer)
    assert consumer.history == ["space", "space", "space", "batch"]


async def test_a_consumer_is_registered_again_without_holding_room():
    """That takes minutes, and room that is held meanwhile is missing to the other streams."""
    clock, pool = ManualClock(), PendingPool(max_records=1000, max_bytes=1000)
    held: list[int] = []

    class Registrar(KnownConsumer):
        async def renew(self, stream_arn: str, consumer_arn: str) -> str:
            held.append(pool.payload_bytes)
            return await super().renew(stream_arn, consumer_arn)

    plane = events(LAST, LAST)
    factory = fan_out_factory(plane, clock, Registrar(arn=f"{CONSUMER_ARN}0"))
    reader = ShardReader(factory=factory, clock=clock, pool=pool)
    everything = await pool.acquire(1, 1000)
    task = asyncio.create_task(reader.consumer().run())
    await clock.advance(40.0)
    assert pool.waiter_count == 1
    refusals = [StreamNotFoundError("not found", code="ResourceNotFoundException")]

    async def refuse_once(*_: object) -> None:
        if refusals:
            raise refusals.pop()

    plane.behaviour_of("shardId-000000000000").accept = refuse_once
    everything.release()
    await finish(task, clock)
    assert held == [0]
    assert len(reader.sink.records) == 1


async def test_a_timeout_of_the_consumer_itself_is_not_taken_for_a_lack_of_room():
    error = TimeoutError("of the application")

    class Failing(RecordingConsumer):
        async def wait_for_space(self, records: int, payload_bytes: int) -> None:
            raise error

    with pytest.raises(TimeoutError) as caught:
        await FanOut.of(bounded_shard(1, 1)).run(Failing())
    assert caught.value is error


class BlocksInside(RecordingConsumer):
    """Does not return from a delivery before :meth:`go_on`, or raises what it is told to."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(self._wait)
        self._error = error
        self._gate = asyncio.Event()
        self.was_cancelled = False

    def go_on(self) -> None:
        self._gate.set()

    async def _wait(self, batch: RecordBatch) -> SequenceNumber | None:
        try:
            await self._gate.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self._error is not None:
            raise self._error
        return batch.last_sequence_number


async def test_a_subscription_is_closed_while_the_application_processes_for_too_long():
    fan_out, consumer = FanOut.of(bounded_shard(2, 2)), BlocksInside()
    task = asyncio.create_task(fan_out.publisher.run(consumer))
    await fan_out.clock.advance(29.9)
    assert not fan_out.plane.subscriptions[0].is_closed
    await fan_out.clock.advance(100.0)
    assert fan_out.plane.subscriptions[0].is_closed
    (ended,) = fan_out.events_of(SubscriptionEnded)
    assert ended.reason == "the application has processed one delivery for more than 30 s"
    assert ended.seconds == pytest.approx(30.0)
    assert (task.done(), consumer.was_cancelled) == (False, False)
    consumer.go_on()
    assert await task is RunResult.INCOMPLETE
    await fan_out.run_to_end(consumer)
    assert [r.data for r in consumer.records] == [r.data for r in sample_records(2)]
    assert [str(one) for one in fan_out.positions] == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER 991"]


async def test_deliveries_that_take_long_only_together_leave_the_subscription_open():
    fan_out = FanOut.of(bounded_shard(5, 5))

    async def take_a_while(batch: RecordBatch) -> SequenceNumber | None:
        await fan_out.clock.sleep(20.0)
        return batch.last_sequence_number

    assert await fan_out.run(RecordingConsumer(take_a_while)) is RunResult.COMPLETE
    assert len(fan_out.plane.subscriptions) == 1


async def test_the_last_event_ends_the_shard_however_long_it_is_processed():
    fan_out, consumer = FanOut.of(events(LAST)), BlocksInside()
    task = asyncio.create_task(fan_out.publisher.run(consumer))
    await fan_out.clock.advance(100.0)
    consumer.go_on()
    assert await task is RunResult.COMPLETE


@pytest.mark.parametrize(
    "error",
    [
        ValueError("of the application"),
        ExceptionGroup("of it", [ValueError("one")]),
        asyncio.CancelledError("of a task that it waited for"),
    ],
)
async def test_what_the_application_raises_after_the_closing_comes_out_unchanged(
    error: BaseException,
):
    fan_out, consumer = FanOut.of(bounded_shard(2, 2)), BlocksInside(error)
    task = asyncio.create_task(fan_out.publisher.run(consumer))
    await fan_out.clock.advance(100.0)
    consumer.go_on()
    with pytest.raises(type(error)) as caught:
        await task
    assert caught.value is error


async def test_a_delivery_is_still_cancelled_from_outside_after_the_closing():
    fan_out, consumer = FanOut.of(bounded_shard(2, 2)), BlocksInside()
    task = asyncio.create_task(fan_out.publisher.run(consumer))
    await fan_out.clock.advance(100.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert consumer.was_cancelled


async def test_a_closing_that_fails_does_not_disturb_the_delivery():
    error = ConnectionResetError("while closing")

    class FailsToClose(FakeDataPlane):
        @asynccontextmanager
        async def subscribe_to_shard(self, *call: Any) -> AsyncIterator[FakeSubscription]:
            async with super().subscribe_to_shard(*call) as subscription:
                yield subscription
            raise error

    plane = FailsToClose(bounded_shard(2, 2).behaviour_of("shardId-000000000000"))
    fan_out, consumer = FanOut.of(plane), BlocksInside()
    task = asyncio.create_task(fan_out.publisher.run(consumer))
    await fan_out.clock.advance(100.0)
    consumer.go_on()
    assert await task is RunResult.INCOMPLETE
    assert not consumer.was_cancelled
    assert fan_out.publisher.failure is error


async def test_memory_is_bounded_while_the_application_is_blocked():
    clock, pool = ManualClock(), PendingPool(max_records=1000, max_bytes=10_000)
    plane, sink = pushes_without_demand(size=1000), RecordingSink(release=False)
    reader = ShardReader(factory=fan_out_factory(plane, clock), clock=clock, sink=sink, pool=pool)
    shards = [sample_shard(number) for number in range(4)]
    tasks = [asyncio.create_task(reader.consumer(shard=shard).run()) for shard in shards]
    await clock.advance(300.0)
    assert pool.payload_bytes == 10_000
    assert len(sink.deliveries) == 10
    assert all(subscription.is_closed for subscription in plane.subscriptions)
    assert len(plane.subscriptions) == 4, "a subscription was opened although there was no room"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert pool.waiter_count == 0


async def test_all_shards_go_on_when_the_application_does_and_each_record_comes_once():
    clock, pool = ManualClock(), PendingPool(max_records=1000, max_bytes=2_000)
    gate = asyncio.Event()

    async def blocked_at_first(_delivery: object) -> None:
        await gate.wait()

    plane, sink = bounded_shard(sample_records(20, size=500), 20), RecordingSink(blocked_at_first)
    reader = ShardReader(factory=fan_out_factory(plane, clock), clock=clock, sink=sink, pool=pool)
    consumers = [reader.consumer(shard=sample_shard(number)) for number in range(8)]
    tasks = [asyncio.create_task(consumer.run()) for consumer in consumers]
    await clock.advance(120.0)
    assert pool.payload_bytes <= 2_000
    gate.set()
    for _ in range(60):
        await clock.advance(10.0)
    assert all(task.done() for task in tasks)
    for number in range(8):
        ids = [r.sequence_number for r in sink.records_of(sample_shard(number).shard_id)]
        assert ids == [r.sequence_number for r in sample_records(20)]
    assert (pool.records, pool.payload_bytes, pool.waiter_count) == (0, 0, 0)


async def test_an_event_that_is_larger_than_the_pool_goes_through_alone():
    clock, pool = ManualClock(), PendingPool(max_records=1, max_bytes=100)
    plane = bounded_shard(sample_records(6, size=1000), 3)
    reader = ShardReader(factory=fan_out_factory(plane, clock), clock=clock, pool=pool)
    await reader.read()
    assert len(reader.sink.records) == 6
    assert pool.payload_bytes == 0


async def test_a_factory_prepares_and_closes_its_registrar():
    registrar = KnownConsumer()
    factory = fan_out_factory(bounded_shard(1, 1), ManualClock(), registrar)
    await factory.prepare(["arn"])
    await factory.close()
    assert (registrar.prepared, registrar.is_closed) == (["arn"], True)
