"""Shards whose end does not come, or contradicts itself: who is asked, and what reads the rest."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field

from kinesis_publishers import PublisherContext, RunResult, StartingPosition
from kinesis_publishers.errors import ConnectionFailedError, RetriesExhaustedError
from kinesis_publishers.events import SubscriptionEnded
from kinesis_publishers.publishers.fanout import FanOutRecordPublisherFactory
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeControlPlane,
    FakeDataPlane,
    RecordingConsumer,
    StoredShard,
    event_of,
    finish,
    sample_records,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.fanout_support import CONFIG, POLICY, POLLING, KnownConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import Event
    from kinesis_publishers.abc import RecordPublisher
    from kinesis_publishers.model import Shard, SubscriptionEvent

RECORDS = sample_records(6)
CONTRADICTORY = event_of(RECORDS[:2], child_shards=(SUCCESSOR,))
WITHOUT_CHILDREN = event_of(RECORDS[:2], continuation=None)


class OddShard(StoredShard):
    """A closed shard that is polled as any other, and whose subscriptions never end it.

    Each pushes ``pushed``. Then it sends "heartbeats" every five seconds until it has lasted five
    minutes, "ends" at once, or is "silent" until the reader gives up.
    """

    def __init__(self, clock: ManualClock, then: str, *pushed: SubscriptionEvent) -> None:
        super().__init__(RECORDS, is_closed=True, child_shards=(SUCCESSOR,))
        self._clock = clock
        self._then = then
        self._pushed = pushed
        self.refused_until = 0.0

    async def accept(self, *_: object) -> None:
        if self._clock.monotonic() < self.refused_until:
            raise ConnectionFailedError("refused")

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        for event in self._pushed:
            yield event
        if self._then == "silent":
            await self._clock.sleep(35.0)
            raise ConnectionFailedError("silence", code="SubscriptionSilent")
        if self._then == "heartbeats":
            for _ in range(60):
                await self._clock.sleep(5.0)
                yield event_of(continuation=RECORDS[1].sequence_number)


@define(eq=False)
class World:
    """A stream, what reads it, and what was reported."""

    clock: ManualClock = field(factory=ManualClock)
    control_plane: FakeControlPlane = field(factory=FakeControlPlane)
    events: list[Event] = field(factory=list)
    is_polled: bool = True
    is_closed: bool = True
    shard: OddShard | None = None

    def factory(self, *pushed: SubscriptionEvent, then: str = "heartbeats"):
        self.shard = OddShard(self.clock, then, *pushed)
        context = PublisherContext(
            data_plane=FakeDataPlane(self.shard),
            control_plane=self.control_plane,
            clock=self.clock,
            events=self.events.append,
        )
        polling = PollingRecordPublisherFactory(POLLING, context)

        async def poll_rest(position: StartingPosition, shard: Shard) -> RecordPublisher | None:
            return await polling.create(position, shard) if self.is_closed else None

        if self.is_polled:
            context = evolve(context, poll_rest=poll_rest)
        return FanOutRecordPublisherFactory(CONFIG, KnownConsumer(), context)

    async def publisher(self, *pushed: SubscriptionEvent, **options: str) -> RecordPublisher:
        factory = self.factory(*pushed, **options)
        return await factory.create(StartingPosition.trim_horizon(), sample_shard())

    async def read(self, publisher: RecordPublisher, *, within: float) -> RecordingConsumer:
        consumer = RecordingConsumer()

        await finish(_run_to_end(publisher, consumer), self.clock, within=within)
        return consumer

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, SubscriptionEnded)]


@pytest.fixture
def world() -> World:
    return World()


def numbers(consumer: RecordingConsumer) -> list[str]:
    return [record.sequence_number for record in consumer.records]


ALL = [record.sequence_number for record in RECORDS]


@pytest.mark.parametrize("event", [CONTRADICTORY, WITHOUT_CHILDREN])
async def test_the_rest_behind_a_doubtful_end_of_a_closed_shard_is_polled_and_said_aloud(
    world: World, event: SubscriptionEvent, caplog: pytest.LogCaptureFixture
):
    consumer = await world.read(await world.publisher(event), within=10.0)
    assert numbers(consumer) == ALL
    assert world.reasons == ["the shard is closed and its end does not come: its rest is polled"]
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "orders/shardId-000000000000: ListShards shows the shard as closed" in warning.message
    assert "The rest is read with GetRecords, from AFTER_SEQUENCE_NUMBER 992 on" in warning.message


async def test_an_open_shard_that_names_children_is_refused_aloud_and_not_for_ever(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.is_closed = False
    with pytest.raises(RetriesExhaustedError, match=f"continuation {ALL[1]} and the child shards"):
        await world.read(await world.publisher(CONTRADICTORY), within=100.0)
    assert len(world.reasons) == POLICY.max_retries + 1
    assert SUCCESSOR.shard_id in caplog.records[0].message
    assert "orders/shardId-000000000000" in caplog.records[0].message


async def test_a_shard_that_is_shown_as_closed_after_its_doubtful_end_is_polled_and_said_aloud(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.is_closed = False
    publisher = await world.publisher(CONTRADICTORY)
    await publisher.run(RecordingConsumer())
    world.is_closed = True
    await world.read(publisher, within=20.0)
    refused, polled = caplog.messages
    assert "both the continuation 992 and the child shards shardId-000000000001." in refused
    assert "ListShards shows the shard as closed" in polled


async def test_a_continuation_that_comes_with_children_is_not_gone_on_from(world: World):
    strange = event_of(RECORDS[:2], continuation="5000", child_shards=(SUCCESSOR,))
    assert numbers(await world.read(await world.publisher(strange), within=10.0)) == ALL


@pytest.mark.parametrize(
    ("event", "said"),
    [(CONTRADICTORY, "both"), (WITHOUT_CHILDREN, "neither a continuation nor child shards")],
)
async def test_where_nothing_is_polled_a_doubtful_end_counts_as_a_failure(
    event: SubscriptionEvent, said: str
):
    world = World(is_polled=False)
    with pytest.raises(RetriesExhaustedError, match=said):
        await world.read(await world.publisher(event), within=100.0)


@pytest.mark.parametrize("then", ["heartbeats", "ends", "silent"])
async def test_the_rest_of_a_closed_shard_that_brings_nothing_for_a_minute_is_polled(
    world: World, then: str, caplog: pytest.LogCaptureFixture
):
    publisher = await world.publisher(then=then)
    consumer = await world.read(publisher, within=80.0)
    assert world.clock.monotonic() >= 60.0
    assert set(ALL[2:]) <= set(numbers(consumer))
    assert "ListShards shows the shard as closed" in caplog.text


async def test_an_idle_open_shard_stays_subscribed_to_and_costs_no_call(world: World):
    world.is_closed = False
    publisher = await world.publisher()
    with pytest.raises(AssertionError, match="not finished after 1000 s"):
        await world.read(publisher, within=1000.0)
    assert set(world.reasons[:-1]) == {"the service ended it"}
    assert world.control_plane.calls == []


async def test_an_outage_is_not_taken_for_a_shard_without_an_end(world: World):
    publisher, consumer = await world.publisher(then="ends"), RecordingConsumer()
    assert world.shard is not None
    reading = asyncio.create_task(_run_to_end(publisher, consumer))
    await world.clock.advance(1.0)
    world.shard.refused_until = 300.0
    await world.clock.advance(350.0)
    assert not reading.done()
    await world.clock.advance(30.0)
    await reading
    assert numbers(consumer) == ALL


async def test_a_wait_for_room_is_not_taken_for_a_shard_without_an_end(
    world: World, caplog: pytest.LogCaptureFixture
):
    class NoRoomAtFirst(RecordingConsumer):
        async def wait_for_space(self, records: int, payload_bytes: int) -> None:
            await world.clock.sleep(max(0.0, 200.0 - world.clock.monotonic()))

    publisher = await world.publisher()
    reading = asyncio.create_task(_run_to_end(publisher, NoRoomAtFirst()))
    await world.clock.advance(240.0)
    assert caplog.messages == []
    await world.clock.advance(40.0)
    assert "ListShards shows the shard as closed" in caplog.text
    await reading


async def _run_to_end(publisher: RecordPublisher, consumer: RecordingConsumer) -> None:
    while await publisher.run(consumer) is RunResult.INCOMPLETE:
        pass


async def test_a_shard_that_is_shown_as_closed_later_is_polled_then(world: World):
    world.is_closed = False
    publisher, consumer = await world.publisher(), RecordingConsumer()
    run = asyncio.create_task(publisher.run(consumer))
    await world.clock.advance(200.0)
    assert not run.done()
    world.is_closed = True
    await world.clock.advance(5.0)
    assert await run is RunResult.INCOMPLETE
    assert await publisher.run(consumer) is RunResult.COMPLETE
