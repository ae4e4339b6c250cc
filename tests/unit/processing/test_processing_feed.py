"""The feed opens, reads and closes in one task, however it ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers.abc import SharedReading
from kinesis_publishers.errors import DataLossError
from kinesis_publishers.processing.deliveries import HookCall
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FailingFetcher:
    """Fails when it has read for a second, or is stopped."""

    checkpointer = None
    sharing = SharedReading()
    slow_calls = None

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def run(self) -> None:
        try:
            await self._clock.sleep(1)
        finally:
            raise DataLossError("records are missing") from KeyError("the reason")


class Opening:
    """Opens a fetcher when it is allowed to."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.is_allowed = asyncio.Event()

    @asynccontextmanager
    async def __call__(self, _: object) -> AsyncIterator[Any]:
        await self.is_allowed.wait()
        yield FailingFetcher(self._clock)


async def test_after_an_opening_that_was_cancelled_the_next_one_is_waited_for() -> None:
    clock = ManualClock()
    opening = Opening(clock)
    feed = DeliveryFeed(opening, clock)
    entering = asyncio.create_task(feed.__aenter__())
    await clock.settle()
    entering.cancel()
    await asyncio.wait([entering])
    again = asyncio.create_task(feed.__aenter__())
    await clock.settle()
    assert not again.done()
    opening.is_allowed.set()
    await again
    await feed.__aexit__(None, None, None)


async def test_a_failure_that_is_raised_at_the_end_keeps_its_cause() -> None:
    clock = ManualClock()
    opening = Opening(clock)
    opening.is_allowed.set()
    with pytest.raises(DataLossError) as raised:
        async with DeliveryFeed(opening, clock):
            await clock.advance(1)
    assert isinstance(raised.value.__cause__, KeyError)


async def test_a_fetcher_that_fails_while_it_is_stopped_does_not_keep_the_feed_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    opening = Opening(clock)
    opening.is_allowed.set()
    async with DeliveryFeed(opening, clock):
        await clock.settle()
    (message,) = caplog.messages
    assert message == (
        "While reading was stopped: also failed: DataLossError('records are missing')"
    )


async def test_a_reader_whose_task_was_cancelled_from_outside_does_not_wait_for_ever() -> None:
    clock = ManualClock()
    opening = Opening(clock)
    entering = asyncio.create_task(DeliveryFeed(opening, clock).__aenter__())
    await clock.settle()
    (reading,) = [one for one in asyncio.all_tasks() if one.get_name() == "read streams"]
    reading.cancel()
    with pytest.raises(RuntimeError, match="cancelled from outside"):
        await entering


def watermark(instant: datetime) -> HookCall:
    return HookCall("on_watermark", instant, 0)


async def test_of_the_watermarks_that_wait_only_the_latest_is_handed_out() -> None:
    clock = ManualClock()
    feed = DeliveryFeed(Opening(clock), clock)
    first, second, third = (clock.now() + timedelta(seconds=one) for one in range(3))
    for instant in (first, second):
        await feed.deliveries.hand_out_watermark(instant)
    handed = await feed.next()
    await feed.deliveries.hand_out_watermark(third)
    feed.deliveries.put_back(handed)
    assert await feed.next() == watermark(third)
    feed.deliveries.put_back(watermark(third))
    assert (handed, await feed.next()) == (watermark(second), watermark(third))
    following = asyncio.create_task(feed.next())
    await clock.settle()
    assert not following.done()
    feed.stop()
    assert await following is None
