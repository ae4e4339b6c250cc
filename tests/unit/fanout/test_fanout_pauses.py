"""A subscription outlives the run whose consumer wants no more, until the next run or its close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from attrs import define, field

from kinesis_publishers import RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.events import SubscriptionEnded, SubscriptionStarted
from kinesis_publishers.testing.fakes import (
    FakeDataPlane,
    RecordingConsumer,
    StoredShard,
    event_of,
    sample_records,
)
from tests.unit.fanout.fanout_support import FanOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import RecordBatch
    from kinesis_publishers.model import SubscriptionEvent

RECORDS = sample_records(9)


class Wants(RecordingConsumer):
    """Wants so many records."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    @property
    def records_wanted(self) -> int:
        return max(0, self._count - len(self.records))


@define(eq=False)
class PushedAfter(StoredShard):
    """Pushes its first record, and empty events of the tip, each after so many seconds."""

    pauses: list[float] = field(factory=list)
    fan_out: FanOut | None = None

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        yield event_of(RECORDS[:1], continuation="990")
        for seconds in self.pauses:
            assert self.fan_out is not None
            await self.fan_out.clock.sleep(seconds)
            yield event_of(continuation="990", millis_behind_latest=0)


def stored() -> FanOut:
    return FanOut.of(FakeDataPlane(StoredShard(RECORDS, page_ends=[3, 6])))


async def test_the_next_run_continues_the_subscription_where_it_stands():
    fan_out, first, second = stored(), Wants(2), Wants(4)
    assert await fan_out.run(first) is RunResult.INCOMPLETE
    assert (fan_out.publisher.is_open, first.records) == (True, RECORDS[:3])
    assert await fan_out.run(second) is RunResult.INCOMPLETE
    assert second.records == RECORDS[3:]
    assert len(fan_out.plane.subscribe_calls) == 1
    assert len(fan_out.events_of(SubscriptionStarted)) == 1
    assert fan_out.events_of(SubscriptionEnded) == []


async def test_one_that_is_closed_is_continued_by_another_subscription():
    fan_out = stored()
    await fan_out.run(Wants(1))
    for _ in range(2):
        await fan_out.publisher.close()
    assert not fan_out.publisher.is_open
    assert fan_out.plane.subscriptions[0].is_closed
    assert len(fan_out.events_of(SubscriptionEnded)) == 1
    consumer = RecordingConsumer()
    await fan_out.run(consumer)
    assert consumer.records == RECORDS[3:]
    last = SequenceNumber(RECORDS[2].sequence_number)
    assert fan_out.positions[1] == StartingPosition.after(last)


async def test_nothing_is_read_and_nothing_runs_between_two_runs():
    fan_out = stored()
    await fan_out.run(Wants(1))
    await fan_out.clock.advance(400)
    assert fan_out.plane.subscriptions[0].taken == 1
    assert not fan_out.clock.is_awaited
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Cancels(Wants):
    """Is cancelled while it takes the last record that it wants."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await super().__call__(batch)


async def test_a_run_that_is_cancelled_with_its_last_record_leaves_nothing_open():
    fan_out = stored()
    with pytest.raises(asyncio.CancelledError):
        await fan_out.publisher.run(Cancels(1))
    assert not fan_out.publisher.is_open
    assert fan_out.plane.subscriptions[0].is_closed


async def test_what_may_have_waited_since_the_last_run_does_not_say_where_the_tip_is():
    # How long an event was waited for tells nothing: the process may have stood still.
    shard = PushedAfter(pauses=[0.0, 0.9, 60.0])
    shard.fan_out = fan_out = FanOut.of(FakeDataPlane(shard))
    await fan_out.run(Wants(1))
    consumer = RecordingConsumer()
    await fan_out.run(consumer)
    assert [batch.millis_behind_latest for batch in consumer.batches] == [None, None, None]


async def test_what_comes_in_the_run_that_subscribed_says_where_the_tip_is():
    shard = PushedAfter(pauses=[0.0])
    shard.fan_out = fan_out = FanOut.of(FakeDataPlane(shard))
    consumer = RecordingConsumer()
    await fan_out.run(consumer)
    assert consumer.batches[1].millis_behind_latest == 0
