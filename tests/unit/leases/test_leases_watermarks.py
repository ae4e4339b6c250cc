"""The watermark of many workers: none passes what another one has not processed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_publishers import KinesisDataFetcher, Properties
from kinesis_publishers.config import WatermarkConfig
from kinesis_publishers.engine.alignment import Front, common_instant, latest_known
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.leases.rules import View, open_fronts, with_front
from kinesis_publishers.model import Checkpoint, CheckpointVersion, Lease, StoredCheckpoint
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.readers.watermarks import WatermarkSink
from kinesis_publishers.testing.fakes import RecordingSink, finish, sample_shard, shard_name
from tests.examples import examples
from tests.unit.checkpoints.checkpoint_support import BEGINNING
from tests.unit.leases.lease_support import FAILOVER, CountingStore, Group, config
from tests.unit.leases.test_leases_reading import CONFIG
from tests.unit.readers.fetcher_support import child_of
from tests.unit.readers.test_readers_watermarks import DISORDER, EXACT, Watched, at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from kinesis_publishers import Delivery, ShardKey


def with_options(**options: str) -> Properties:
    given = {getattr(WatermarkConfig, name): text for name, text in options.items()}
    return PROPERTIES.with_values(given)


SYNC = {"kinesis.watermark.sync.interval": "1s"}
BY_ARRIVAL = Properties.parse(SYNC, complete=False)
PROPERTIES = Properties.parse(EXACT | SYNC, complete=False)


@define(kw_only=True)
class Workers(Watched):
    """Workers of one application, each of which checks what it is told against all records."""

    group: Group = field(init=False)
    waiting: dict[str, datetime] = field(factory=dict)
    told: dict[str, list[datetime]] = field(factory=dict)
    properties: Properties = PROPERTIES
    seconds: float = 0.0

    @group.default
    def _of_one_clock(self) -> Group:
        return Group(self.clock)

    def store(self, number: int, second: float) -> None:
        self.waiting[self.put(number, second).id] = at(second)

    def holder(self, key: ShardKey) -> str | None:
        lease = self.group.rows[key][0].checkpoint.lease
        return lease and lease.holder

    @asynccontextmanager
    async def worker(self, name: str) -> AsyncIterator[asyncio.Task[None]]:
        told = self.told.setdefault(name, [])

        async def process(delivery: Delivery) -> None:
            await self.clock.sleep(80 if name == "slow" else self.seconds)
            for record in delivery.batch:
                self.waiting.pop(record.id, None)

        async def check(watermark: datetime) -> None:
            assert not told or watermark > told[-1]
            assert watermark <= min(self.waiting.values(), default=watermark)
            told.append(watermark)

        services = self.parts()
        async with CountingStore(self.clock, self.group.memory) as store:
            leases = Leases(store, config(name), self.clock, self.events.append)
            checkpointer = Checkpointer(leases, CONFIG, self.clock)
            inner = checkpointer.sink(RecordingSink(process))
            sink = WatermarkSink.around(inner, self.properties, services, leases.shards, check)
            fetcher = KinesisDataFetcher(
                services, sink, checkpointer=checkpointer, assigner=leases.shards
            )
            task = asyncio.create_task(fetcher.run())
            try:
                await self.clock.advance(15)
                yield task
                if not task.done():
                    fetcher.stop()
                    await finish(task, self.clock)
                    await finish(checkpointer.release(), self.clock)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


_STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, DISORDER)), max_size=6),
        st.sampled_from([0.1, 3, 20]),
        st.sampled_from(["", "split", "merge", "join", "leave", "die"]),
    ),
    min_size=3,
    max_size=6,
)


# Of the parents of a merged child one has ended on another worker, and one goes on.
@example(
    [
        ([(2, 16)], 3, "join"),
        ([(3, 9), (3, 1), (0, 17), (2, 15)], 0.1, "split"),
        ([(0, 5), (2, 14)], 3, "join"),
        ([(3, 11), (2, 0), (2, 18), (3, 0), (1, 8), (1, 4)], 20, "merge"),
    ],
    2.0,
    "1s",
)
# A shard is handed over while it is processed.
@example([([(0, 3), (1, 9), (0, 6)], 0.1, "join"), ([], 20, "die")], 2.0, "1s")
@given(steps=_STEPS, seconds=st.sampled_from([0.0, 2.0]), sync=st.sampled_from(["1s", "1h"]))
@settings(max_examples=examples(8), deadline=None)
async def test_the_watermark_of_all_workers_is_the_least_of_the_shards_and_passes_no_record(
    steps: list, seconds: float, sync: str
) -> None:
    """However records come, shards divide and join, and workers join, leave and die."""
    options = with_options(disorder_seconds=f"{DISORDER}s", sync_interval_seconds=sync)
    world = Workers(seconds=seconds, properties=options)
    # The watermark of each open shard once all of its records have been processed.
    levels: dict[int, datetime | None] = {}
    workers: dict[str, tuple[AsyncExitStack, asyncio.Task[None]]] = {}
    names, numbers = map(str, count()), count()

    def begin(level: datetime | None, **lineage: int) -> int:
        world.empty(number := next(numbers), **lineage)
        levels[number] = level
        return number

    async def join() -> None:
        stack = AsyncExitStack()
        workers[name] = stack, await stack.enter_async_context(world.worker(name := next(names)))

    begin(None)
    begin(None)
    await join()
    for records, pause, change in steps:
        for index, early in records:
            number = sorted(levels)[index % len(levels)]
            event = world.clock.monotonic() - early
            world.store(number, event)
            levels[number] = latest_known(levels[number], at(event - DISORDER))
        await world.clock.advance(pause)
        if change in ("split", "merge"):
            parents = sorted(levels)[: 1 if change == "split" else 2]
            level = common_instant([Front(levels.pop(one)) for one in parents])
            lineage = dict(zip(("parent", "adjacent_parent"), parents, strict=False))
            children = [begin(level, **lineage) for _ in range(3 - len(parents))]
            for parent in parents:
                world.close(parent, *(child_of(*parents, number=one) for one in children))
        elif change == "join" or (change and len(workers) == 1):
            await join()
        elif change:
            stack, task = workers.pop(min(workers))
            if change == "die":
                task.cancel()
                await asyncio.wait([task])
            await stack.aclose()
        if pause > 10:
            await world.clock.advance(40)
            least = None if None in levels.values() else min(levels.values())
            assert {world.told[one][-1] if world.told[one] else None for one in workers} == {least}
    for stack, _ in workers.values():
        await stack.aclose()


async def test_a_shard_waits_for_those_of_other_workers_unless_they_are_at_their_tips() -> None:
    world = Workers(properties=with_options(lookahead_seconds="5s"))
    for number in range(4):
        world.empty(number)
        world.store(number, 10)
    async with world.worker("one"), world.worker("slow"):
        await world.clock.advance(100)
        numbers = {world.holder(sample_shard(one).key): one for one in range(4)}
        world.store(numbers["slow"], 11)
        for second in range(100, 200, 10):
            await world.clock.advance(5)
            world.store(numbers["one"], second)
        assert len(world.waiting) > 8
        await world.clock.advance(100)
        assert world.waiting == {}


async def test_a_worker_follows_the_child_of_its_shard_on_another_worker() -> None:
    """The row of the child has the place of its parents: no listing is waited for."""
    world = Workers(properties=with_options(lookahead_seconds="20s"), listing_seconds=60.0)
    for number in range(2):
        world.empty(number)
        world.store(number, 1)
    async with world.worker("one"), world.worker("two"):
        await world.clock.advance(60)
        assert {world.holder(sample_shard(number).key) for number in range(2)} == {"one", "two"}
        world.empty(2, parent=0, adjacent_parent=1)
        for parent in range(2):
            world.close(parent, child_of(0, 1, number=2))
        lags = []
        for second in range(2, 40):
            world.store(2, second)
            await world.clock.advance(1)
            lags += [at(second) - told[-1] for told in world.told.values()]
        # A row is written, and seen, a few seconds later.
        assert max(lags) < timedelta(seconds=12)
    assert world.waiting == {}


async def test_a_release_leaves_the_watermark_to_the_next_worker() -> None:
    """Also what no renewal has written yet: an idle shard advances with the time."""
    world = Workers(properties=BY_ARRIVAL)
    world.empty(0)
    async with world.worker("one"):
        await world.clock.advance(61)
        before = world.group.lease(sample_shard(0)).watermark
        last = world.told["one"][-1]
        assert before is not None
        assert last - before > timedelta(seconds=1)
    after = world.group.lease(sample_shard(0)).watermark
    assert after is not None
    assert last - after <= timedelta(seconds=1)


@pytest.mark.parametrize("is_arrival", [True, False])
async def test_an_idle_shard_holds_back_no_worker(is_arrival: bool) -> None:
    options = with_options(idle_interval_seconds="40s")
    world = Workers(properties=BY_ARRIVAL if is_arrival else options)
    for number in range(4):
        world.empty(number)
        world.put(number, 50 if number else 14)
    async with world.worker("one"), world.worker("two"):
        for second in range(15, 21):
            world.put(0, second)
            await world.clock.advance(10)
        for seconds, watermark in ((1, at(20)), (100, at(50))):
            await world.clock.advance(seconds)
            last = [world.told[one][-1] for one in ("one", "two")]
            if is_arrival:
                assert world.clock.now() - min(last) < timedelta(seconds=10)
            else:
                assert last == [watermark] * 2


def test_the_rows_say_where_shards_are_that_others_read_or_nobody_does() -> None:
    def row(number: int, watermark: datetime | None, *parents: int, **more: bool) -> Checkpoint:
        names = tuple(map(shard_name, parents))
        lease = Lease(owner="other", parents=names, watermark=watermark, **more)
        key, progress = sample_shard(number).key, evolve(BEGINNING, is_ended=number < 2)
        return Checkpoint(shard=key, stream_created_at=at(0), progress=progress, lease=lease)

    version = CheckpointVersion(number=1, writer="other")
    found = [
        row(0, at(5)),
        row(1, at(7)),
        row(2, None, 0, 1),
        row(3, None, 2),
        row(4, at(9), 8, is_idle=True, is_at_tip=True),
        row(5, at(9), is_idle=True),
        row(6, at(3)),
    ]
    rows = {one.shard: StoredCheckpoint(checkpoint=one, version=version) for one in found}
    own, dead = sample_shard(6).key, sample_shard(5).key
    view = View(
        worker="this",
        rows={key: row for key, row in rows.items() if not row.checkpoint.progress.is_ended},
        ages={key: FAILOVER if key == dead else 0.0 for key in rows},
        own={own},
        failover_seconds=FAILOVER,
    )
    fronts = open_fronts(rows, view, {own})
    idle = Front(at(9), is_idle=True, is_at_tip=True)
    assert fronts == [Front(at(5)), idle, Front(at(9))]
    # Versions without the two flags can read a row that has none.
    assert with_front(Lease(), Front(at(5))) == Lease(watermark=at(5))


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        (
            {"checkpoint.store": "dynamodb", "checkpoint.application": "a"},
            "the watermark of its own shards alone",
        ),
        ({"watermark.lookahead.millis": "59s", "watermark.sync.interval": "30s"}, "Below 60 s"),
        ({"watermark.lookahead.millis": "9s", "watermark.sync.interval": "1s"}, "Below 10 s"),
        ({"watermark.lookahead.millis": "10s", "watermark.sync.interval": "5s"}, None),
    ],
)
def test_what_keeps_workers_from_sharing_watermarks_is_said_at_the_start(
    given: dict[str, str], warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = Workers()
    leases = Leases(CountingStore(world.clock, world.group.memory), config(), world.clock)
    properties = EXACT | {f"kinesis.{key}": value for key, value in given.items()}
    parsed = Properties.parse(properties, complete=False)
    WatermarkSink.around(world.sink, parsed, world.parts(), leases.shards, None)
    assert [one.levelname for one in caplog.records] == ["WARNING"] * (warning is not None)
    assert (warning or "") in caplog.text
