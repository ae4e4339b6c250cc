"""Watermarks of a fetcher: behind what is processed, of all shards, and never back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_publishers import KinesisDataFetcher, Properties, WatermarkAssigner
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import EventTimeError
from kinesis_publishers.events import WatermarkMeasured
from kinesis_publishers.readers.watermarks import WatermarkSink
from kinesis_publishers.testing.fakes import (
    Answer,
    RecordingSink,
    StoredShard,
    finish,
    sample_records,
    sample_shard,
    shard_name,
)
from tests.examples import examples
from tests.unit.readers.fetcher_support import World, child_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers import Delivery, Record

SECOND = timedelta(seconds=1)
DISORDER = 20
EXACT = {"kinesis.watermark.assigner": f"{__name__}:PayloadTime"}
OWN = {**EXACT, "kinesis.watermark.disordermillis": f"{DISORDER}s"}


class PayloadTime(WatermarkAssigner):
    """Has the event times in the payloads, if they are there."""

    def event_time_of(self, record: Record) -> datetime | None:
        return 1.5 if record.data == b"1.5" else datetime.fromisoformat(record.data.decode())


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class Watched(World):
    """A world whose fetcher tells its watermarks."""

    def watching(self, properties: dict[str, object], on_watermark=None) -> KinesisDataFetcher:
        self.told: list[datetime] = []

        async def note(watermark: datetime) -> None:
            self.told.append(watermark)

        services, parsed = self.parts(), Properties.parse(properties, complete=False)
        sink = WatermarkSink.around(self.sink, parsed, services, None, on_watermark or note)
        return KinesisDataFetcher(services, sink)

    def put(self, number: int, event_second: float) -> Record:
        """Store a record now whose payload says an event time."""
        stored, shard = self.shards[shard_name(number)].records, sample_shard(number)
        (record,) = sample_records(1, first=len(stored), shard=shard, arrival=self.clock.now())
        record = record._replace(
            data=at(event_second).isoformat().encode(),
            arrival_epoch_seconds=self.clock.now().timestamp(),
        )
        stored.append(record)
        return record

    def empty(self, number: int, **lineage: int) -> None:
        self.add(number, behaviour=StoredShard(page_ends=range(7, 70, 7)), **lineage)


_STEPS = st.lists(
    st.tuples(
        st.floats(0.05, 3),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, DISORDER)), max_size=12),
        st.sampled_from(["", "", "", "split", "merge"]),
    ),
    min_size=2,
    max_size=6,
)


@pytest.mark.parametrize(("is_arrival", "disorder"), [(True, 0), (True, 5), (False, DISORDER)])
@example([(1, [(0, 0)], "")] * 4, 2.0, True)
@given(steps=_STEPS, seconds=st.sampled_from([0.0, 0.3, 2.0]), parents_first=st.booleans())
@settings(max_examples=examples(6), deadline=None)
async def test_no_watermark_passes_a_record_that_waits_and_the_last_one_is_the_end(
    is_arrival: bool, disorder: int, steps: list, seconds: float, parents_first: bool
) -> None:
    put: dict[str, datetime] = {}

    async def takes_time(delivery: Delivery) -> None:
        ids = [record.id for record in delivery.batch]
        await world.clock.sleep(seconds)
        for one in ids:
            del put[one]

    async def check(watermark: datetime) -> None:
        assert not told or watermark > told[-1]
        assert watermark <= min(put.values(), default=watermark)
        told.append(watermark)

    def store(number: int, early: int = 0) -> None:
        now = world.clock.monotonic()
        put[world.put(number, now - early).id] = at(now if is_arrival else now - early)

    told: list[datetime] = []
    world = Watched(sink=RecordingSink(takes_time), parents_first=parents_first)
    tips, count = [0, 1], 2
    for number in tips:
        world.empty(number)
    options = {**({} if is_arrival else EXACT), "kinesis.watermark.disordermillis": f"{disorder}s"}
    async with world.running(world.watching(options, check)):
        for pause, records, change in steps:
            for number, early in records:
                store(tips[number % len(tips)], early)
            if change and (change == "split" or len(tips) > 1):
                parents = tips[: 1 if change == "split" else 2]
                children = range(count, count + (2 if change == "split" else 1))
                tips, count = [*tips[len(parents) :], *children], children.stop
                lineage = dict(zip(("parent", "adjacent_parent"), parents, strict=False))
                for child in children:
                    world.empty(child, **lineage)
                for parent in parents:
                    world.close(parent, *(child_of(*parents, number=one) for one in children))
            await world.clock.advance(pause)
        now = world.clock.monotonic()
        for number in tips:
            store(number)
        await world.clock.advance(20)
        # By arrival, shards at their tips advance with the time.
        last = world.clock.monotonic() if is_arrival else now
    assert (
        timedelta(0) <= at(last - disorder) - told[-1] <= (SECOND if is_arrival else timedelta(0))
    )


@given(
    shards=st.lists(
        st.tuples(
            st.lists(st.integers(0, 40), max_size=30),
            st.integers(1, 6),
            st.sampled_from([0.0, 0.3, 1.5]),
        ),
        min_size=2,
        max_size=4,
    ),
    lookahead=st.sampled_from([1, 30]),
    room=st.integers(1, 20),
)
@settings(max_examples=examples(12), deadline=None)
async def test_no_shard_is_read_on_that_is_ahead_and_all_is_read_whatever_the_pool(
    shards: list, lookahead: int, room: int
) -> None:
    taken, processed = {}, {}

    async def check(delivery: Delivery) -> None:
        key, events = delivery.shard.shard_id, times(delivery.batch)
        behind = [processed.get(one) for one, left in waiting.items() if left and one != key]
        if key in taken and behind:
            assert None not in behind
            assert taken[key] - min(behind) <= lookahead * SECOND
        taken[key] = max(taken.get(key, at(0)), *events)
        await world.clock.sleep(seconds[key])
        processed[key] = taken[key]
        waiting[key] -= len(events)

    def times(records: Iterable[Record]) -> list[datetime]:
        return [datetime.fromisoformat(record.data.decode()) for record in records]

    pool = PendingPool(max_records=room, max_bytes=1_000_000)
    world = Watched(sink=RecordingSink(check), pool=pool)
    waiting, seconds = {}, {}
    for number, (gaps, page, takes) in enumerate(shards):
        world.add(number, behaviour=StoredShard(page_ends=range(page, 60, page)))
        for second in accumulate(gaps):
            world.put(number, second)
        seconds[shard_name(number)], waiting[shard_name(number)] = takes, len(gaps)
    properties = {
        **EXACT,
        "flink.watermark.lookahead.millis": f"{lookahead}s",
        "kinesis.watermark.sync.queue.capacity": 1,
    }
    async with world.running(world.watching(properties)):
        for _ in range(60):
            if any(waiting.values()):
                await world.clock.advance(5)
    assert not any(waiting.values())


class Silent(StoredShard):
    """Does not answer until it is told to."""

    async def read(self, index: int, limit: int) -> Answer:
        await self.gate.wait()
        return await super().read(index, limit)


class Unmeasured(StoredShard):
    """Does not say how far it is behind."""

    async def read(self, index: int, limit: int) -> Answer:
        return evolve(await super().read(index, limit), millis_behind_latest=None)


@pytest.mark.parametrize(
    ("interval", "kind"), [("30s", StoredShard), ("30s", Unmeasured), ("-1", StoredShard)]
)
async def test_a_shard_is_idle_that_is_at_its_tip_without_records_for_the_interval(
    interval: str, kind: type[StoredShard]
) -> None:
    silent = Silent()
    silent.gate = asyncio.Event()
    world = Watched()
    world.add(0, behaviour=kind())
    world.add(1, behaviour=silent)
    for number, second in ((0, 10), (1, 20)):
        world.put(number, second)
    async with world.running(world.watching(EXACT | {"flink.shard.idle.interval": interval})):
        await world.clock.advance(60)
        assert world.told == []
        silent.gate.set()
        await world.clock.advance(1)
        assert world.told == [at(20 if (interval, kind) == ("30s", StoredShard) else 10)]
        silent.gate.clear()
        await world.clock.advance(60)
        lag = world.events_of(WatermarkMeasured)[-1]
        measured_at = lag.watermark + lag.seconds * SECOND
        assert timedelta(0) <= world.clock.now() - measured_at <= 5 * SECOND
        # What has not answered for long is not at its tip.
        world.put(0, 50)
        await world.clock.advance(1)
        assert world.told[-1] == at(20)


async def test_a_shard_that_has_ended_holds_on_until_its_children_begin_where_it_was() -> None:
    world = Watched()
    for number, second in ((0, 10), (1, 100)):
        world.empty(number)
        world.put(number, second)
    async with world.running(world.watching(EXACT)):
        await world.clock.advance(1)
        world.close(0)
        await world.clock.advance(5)
        world.empty(2, parent=0)
        world.close(1, child_of(1, number=3))
        world.empty(3, parent=1)
        await world.clock.advance(6)
        assert world.told == [at(10)]
        world.put(2, 40)
        await world.clock.advance(1)
        assert world.told == [at(10), at(40)]
        world.close(2, child_of(2, number=4))
        world.empty(4, parent=2)
        world.put(4, 60)
        await world.clock.advance(1)
        assert world.told[-1] == at(60)


@pytest.mark.parametrize("records", [0, 1])
async def test_a_shard_that_has_ended_holds_on_while_its_child_waits_for_another_parent(
    records: int,
) -> None:
    world, child = Watched(), child_of(0, 1, number=2)
    world.empty(0)
    world.empty(1)
    for second in [10] * records:
        world.put(0, second)
    world.put(1, 100)
    async with world.running(world.watching(EXACT)):
        world.close(0, child)
        world.empty(2, parent=0, adjacent_parent=1)
        await world.clock.advance(60)
        assert world.told == [at(10)] * records
        world.close(1, child)
        world.put(2, 40)
        await world.clock.advance(1)
        assert world.told == [*[at(10)] * records, at(40)]


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (
            b"2026-01-01T00:00:00",
            r"PayloadTime returned .*orders/shardId-0+/.*: return a datetime with",
        ),
        (b"1.5", r"PayloadTime returned 1\.5 for record orders/shardId-0+/"),
        (b"poison", r"PayloadTime raised ValueError\(.*'poison'.*\) for record orders/shardId-0+/"),
    ],
)
async def test_a_wrong_event_time_ends_reading_before_the_record_is_processed(
    payload: bytes, problem: str
) -> None:
    world = Watched()
    world.empty(0)
    world.put(0, 1)
    stored = world.shards[shard_name(0)].records
    stored[0] = stored[0]._replace(data=payload)
    with pytest.raises(EventTimeError, match=problem):
        await finish(world.watching(OWN).run(), world.clock)
    assert world.sink.records == []


async def test_the_last_watermark_counts_the_delivery_that_a_stop_waits_for() -> None:
    """It ends before the next advance is due."""
    done: list[Delivery] = []

    async def process(delivery: Delivery) -> None:
        if done:
            fetcher.stop()
        await world.clock.sleep(0.1 if done else 5)
        done.append(delivery)

    world = Watched(sink=RecordingSink(process))
    world.empty(0)
    for second in range(14):
        world.put(0, second)
    fetcher = world.watching(EXACT)
    await finish(fetcher.run(), world.clock)
    assert world.told == [at(6), at(13)]


async def test_nobody_pays_for_watermarks_who_does_not_ask() -> None:
    world = World()
    parts, properties = world.parts(), Properties.parse({}, complete=False)
    assert WatermarkSink.around(world.sink, properties, parts, None, None) is world.sink
