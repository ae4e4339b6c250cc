"""Publishers that read ranges: stopped with the last record, no matter what they do then."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_publishers import Delivery, RecordBatchConsumer, RecordPublisher, RunResult
from kinesis_publishers.errors import PublisherCancelledError, ReplayMismatchError
from kinesis_publishers.testing.fakes import (
    RecordingSink,
    ScriptedPublisherFactory,
    batch_of,
)
from tests.unit.engine.consumer_support import RECORDS
from tests.unit.engine.range_support import RangeWorld, range_of


class GoesOn(RecordPublisher):
    """Delivers, and then waits for more as a subscription does."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self.is_stopped = False

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        try:
            await consumer(batch_of(RECORDS[2:9], millis_behind_latest=5))
            if self._asks:
                await consumer.wait_for_space(1, 1)
            await asyncio.Event().wait()
        finally:
            self.is_stopped = True
        return RunResult.INCOMPLETE


class MakesOne(ScriptedPublisherFactory):
    def __init__(self, publisher: RecordPublisher) -> None:
        super().__init__()
        self._publisher = publisher

    async def create(self, starting_position, shard):
        return self._publisher


@pytest.mark.parametrize("asks", [False, True], ids=["waits for the service", "asks for room"])
async def test_a_publisher_that_goes_on_after_the_range_is_interrupted_at_once(asks: bool):
    publisher = GoesOn(asks=asks)
    world = RangeWorld(factory=MakesOne(publisher))
    await world.read(range_of(1, 6))
    assert publisher.is_stopped
    assert world.sink.records == RECORDS[2:7]


async def test_what_a_publisher_delivers_after_the_range_is_dropped():
    class DoesNotAsk(RecordPublisher):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            await consumer(batch_of(RECORDS[2:7], millis_behind_latest=5))
            await consumer(batch_of(RECORDS[7:], millis_behind_latest=5))
            return RunResult.INCOMPLETE

    world = RangeWorld(factory=MakesOne(DoesNotAsk()))
    await world.read(range_of(1, 4))
    assert world.sink.records == RECORDS[2:5]


async def test_a_mismatch_is_not_lost_in_the_interruption_of_the_publisher():
    class ClosesSlowly(RecordPublisher):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            try:
                await consumer(batch_of([*RECORDS[2:6], *RECORDS[7:9]], millis_behind_latest=5))
            finally:
                # As a connection may be closed: not within one turn of the loop.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return RunResult.INCOMPLETE

    with pytest.raises(ReplayMismatchError, match="record 998 follows"):
        await RangeWorld(factory=MakesOne(ClosesSlowly())).read(range_of(1, 6))


async def test_an_answer_that_is_not_at_the_tip_restarts_the_wait_for_the_end():
    class Alternates(RecordPublisher):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            for lag in (0, 9, 0):
                await consumer(batch_of([], millis_behind_latest=lag))
                await world.clock.sleep(0.8)
            await consumer(batch_of(RECORDS[2:9], millis_behind_latest=5))
            return RunResult.INCOMPLETE

    world = RangeWorld(factory=MakesOne(Alternates()))
    await world.read(range_of(1, 6))
    assert world.sink.records == RECORDS[2:7]


async def test_a_timeout_of_the_publisher_is_its_own():
    class TimesOut(GoesOn):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            raise TimeoutError("of the publisher")

    with pytest.raises(TimeoutError, match="of the publisher"):
        await RangeWorld(factory=MakesOne(TimesOut(asks=False))).read(range_of(1, 6))


async def test_no_room_is_held_while_a_subscription_brings_nothing():
    class BringsNothing(RecordPublisher):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            await consumer.wait_for_space(1, 1)
            await consumer(batch_of([], millis_behind_latest=5))
            await asyncio.Event().wait()
            return RunResult.INCOMPLETE

    world = RangeWorld(factory=MakesOne(BringsNothing()))
    reading = asyncio.create_task(world.consumer(range_of(1, 6)).run())
    await world.clock.settle()
    assert world.held == (0, 0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_cancelling_stops_the_publisher_and_gives_its_room_back():
    publisher = GoesOn(asks=False)
    world = RangeWorld(factory=MakesOne(publisher))
    reading = asyncio.create_task(world.consumer(range_of(1, None)).run())
    await world.clock.settle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert publisher.is_stopped
    assert world.held == (0, 0)


async def test_a_publisher_that_cancels_itself_is_an_error():
    class CancelsItself(RecordPublisher):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            raise asyncio.CancelledError

    with pytest.raises(PublisherCancelledError, match="without a request to stop"):
        await RangeWorld(factory=MakesOne(CancelsItself())).read(range_of(1, 4))


async def test_the_error_of_a_delivery_comes_out_of_a_group_of_the_publisher():
    class DeliversFromAGroup(RecordPublisher):
        async def run(self, consumer: RecordBatchConsumer) -> RunResult:
            async with asyncio.TaskGroup() as group:
                group.create_task(consumer(batch_of(RECORDS[2:4])))
            return RunResult.INCOMPLETE

    async def fails(delivery: Delivery) -> None:
        raise LookupError("the application")

    world = RangeWorld(factory=MakesOne(DeliversFromAGroup()), sink=RecordingSink(fails))
    with pytest.raises(LookupError, match="the application"):
        await world.read(range_of(1, 4))
