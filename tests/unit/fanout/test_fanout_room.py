"""Backpressure: without room a subscription is closed, and goes on later."""

from __future__ import annotations

import asyncio

import pytest
from fanout_support import CONFIG, FanOut, KnownConsumer, fan_out_factory

from kinesis_publishers import PublisherContext
from kinesis_publishers.errors import StreamNotFoundError
from kinesis_publishers.events import SubscriptionEnded
from kinesis_publishers.pending_pool import PendingPool
from kinesis_publishers.publishers.fanout import FanOutRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeControlPlane,
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
    factory = fan_out_factory(plane, clock, Registrar())
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
    registrar, clock = KnownConsumer(), ManualClock()
    context = PublisherContext(
        data_plane=bounded_shard(1, 1),
        control_plane=FakeControlPlane(),
        clock=clock,
        events=lambda _: None,
    )
    factory = FanOutRecordPublisherFactory(CONFIG, registrar, context)
    await factory.prepare(["arn"])
    await factory.close()
    assert (registrar.prepared, registrar.is_closed) == (["arn"], True)
