"""What is said of calls of the application that do not return, and of what waits behind them."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from kinesis_publishers import KinesisDataFetcher
from kinesis_publishers.engine.slow_calls import SlowCalls, name_of
from kinesis_publishers.events import CallbackDelayed, LagMeasured, ShardEnded
from kinesis_publishers.readers.consumers import CallbackSink
from kinesis_publishers.testing.fakes import StoredShard, batch_of, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.readers.fetcher_support import World, records_of

RECORDS = records_of(0)


def fetcher_of(world: World, on_batch) -> KinesisDataFetcher:
    parts = world.parts()
    return KinesisDataFetcher(parts, CallbackSink(on_batch, parts.slow_calls))


def reports_of(world: World) -> list[tuple[float, bool]]:
    return [(one.seconds, one.has_returned) for one in world.events_of(CallbackDelayed)]


async def test_a_callback_that_hangs_is_reported_ever_less_often_and_when_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world, gate = World(), asyncio.Event()
    world.add(0, behaviour=StoredShard(records_of(0)))

    async def on_batch(shard, batch) -> None:
        await gate.wait()

    async with world.running(fetcher_of(world, on_batch)):
        await world.clock.advance(59)
        assert reports_of(world) == []
        await world.clock.advance(241)
        assert reports_of(world) == [(60, False), (120, False), (240, False)]
        gate.set()
        await world.clock.settle()
    assert reports_of(world)[3:] == [(300, True)]
    (first, *_) = world.events_of(CallbackDelayed)
    assert (first.shard, str(first.record)) == (
        sample_shard(0).key,
        RECORDS[0].sequence_number,
    )
    place = f"(record {RECORDS[0].sequence_number} of orders/shardId-000000000000)"
    assert first.callback.endswith(
        "is_reported_ever_less_often_and_when_it_returns.<locals>.on_batch"
    )
    assert caplog.messages == [
        *(
            f"{first.callback} has not returned for {seconds} s; its shard waits {place}."
            for seconds in (60, 120, 240)
        ),
        f"{first.callback} has returned after 300 s {place}.",
    ]
    # The age of the oldest record that is not processed, until it is and its shard is idle.
    lags = [one.seconds for one in world.events_of(LagMeasured)]
    arrived = RECORDS[0].approximate_arrival_timestamp
    oldest = (world.clock.now() - arrived).total_seconds()
    assert lags == [oldest - 300 + 5 * number for number in range(1, 61)]


async def test_a_callback_that_blocks_the_event_loop_is_reported_when_it_has_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class BlockingClock(ManualClock):
        def block(self, seconds: float) -> None:
            self._elapsed_seconds += seconds

    world = World(clock=BlockingClock())
    world.add(0)

    async def on_batch(shard, batch) -> None:
        await world.clock.sleep(7)
        world.clock.block(100)

    async with world.running(fetcher_of(world, on_batch)):
        await world.clock.advance(10)
    assert reports_of(world) == [(107, True)]
    (message,) = caplog.messages
    assert message.endswith("It has blocked the event loop: let asyncio.to_thread run what blocks.")


async def test_of_calls_for_single_records_the_one_is_reported_that_hangs() -> None:
    clock, events, done = ManualClock(), [], 0
    calls = SlowCalls(60.0, clock, events.append)

    async def pass_time(seconds: int) -> None:
        for _ in range(0, seconds, 5):
            await clock.advance(5)
            calls.look()

    with calls.watching("process", sample_shard(0).key, batch_of(RECORDS), lambda: done):
        await pass_time(55)
        done = 1
        await pass_time(60)
        assert events == []
        await pass_time(10)
        done = 2
        await pass_time(30)
    assert [(str(one.record), one.seconds, one.has_returned) for one in events] == [
        (RECORDS[1].sequence_number, 60, False),
        (RECORDS[1].sequence_number, 70, True),
    ]


@pytest.mark.parametrize(
    ("taken", "reports"),
    [(2000, []), (1001, [(4, True)])],
    ids=["many quick ones", "one"],
)
async def test_records_that_returned_since_the_last_look_are_no_slow_call(
    taken: int, reports: list[tuple[float, bool]]
) -> None:
    clock, events, done = ManualClock(), [], 0
    calls = SlowCalls(3.0, clock, events.append)
    batch = batch_of(RECORDS * 1000)
    with calls.watching("process", sample_shard(0).key, batch, lambda: done):
        await clock.advance(5)
        done = 1000
        calls.look()
        await clock.advance(4)
        done = taken
    assert [(one.seconds, one.has_returned) for one in events] == reports


async def test_0_seconds_report_nothing() -> None:
    clock, events = ManualClock(), []
    calls = SlowCalls(0.0, clock, events.append)
    with calls.watching("process", sample_shard(0).key):
        await clock.advance(1e6)
        calls.look()
    assert events == []


async def test_a_shard_that_has_ended_reports_no_lag() -> None:
    world = World()
    world.add_closed(0)

    async def on_batch(shard, batch) -> None: ...

    async with world.running(fetcher_of(world, on_batch)):
        await world.clock.advance(100)
    assert world.events_of(ShardEnded)
    assert world.events_of(LagMeasured) == []


class Callback:
    async def __call__(self, shard, batch) -> None: ...


@pytest.mark.parametrize(
    "callback",
    [Callback(), partial(Callback.__call__, "secret")],
    ids=["object", "partial"],
)
def test_the_name_of_a_callback_shows_nothing_that_it_holds(callback) -> None:
    name = "Callback" if isinstance(callback, Callback) else "Callback.__call__"
    assert name_of(callback) == f"{__name__}.{name}"
