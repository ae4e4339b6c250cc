"""The watermark of many workers: none passes what another one has not processed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field

from kinesis_publishers import KinesisDataFetcher, Properties
from kinesis_publishers.checkpoints.checkpointer import Checkpointer
from kinesis_publishers.config import WatermarkConfig
from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.leases.rules import View, open_fronts
from kinesis_publishers.model import Checkpoint, CheckpointVersion, Lease, StoredCheckpoint
from kinesis_publishers.readers.watermarks import WatermarkSink
from kinesis_publishers.testing.fakes import RecordingSink, sample_shard, shard_name
from tests.unit.checkpoints.checkpoint_support import BEGINNING
from tests.unit.core.fetcher_support import child_of
from tests.unit.core.test_core_watermarks import EXACT, Watched, at
from tests.unit.leases.lease_support import FAILOVER, CountingStore, Group, config
from tests.unit.leases.test_leases_reading import CONFIG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from kinesis_publishers import Delivery, ShardKey


def with_options(**options: str) -> Properties:
    given = {getattr(WatermarkConfig, name): text for name, text in options.items()}
    return PROPERTIES.with_values(given)


PROPERTIES = Properties.parse(EXACT | {"kinesis.watermark.sync.interval": "1s"}, complete=False)


@define(kw_only=True)
class Workers(Watched):
    """Workers of one application, each of which checks what it is told against all records."""

    group: Group = field(init=False)
    waiting: dict[str, datetime] = field(factory=dict)
    told: dict[str, list[datetime]] = field(factory=dict)
    properties: Properties = PROPERTIES
    gate: asyncio.Event = field(factory=asyncio.Event)

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
            if name == "slow":
                await self.gate.wait()
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
            sink = WatermarkSink.around(inner, self.properties, services, leases, check)
            fetcher = KinesisDataFetcher(services, sink, checkpointer=checkpointer, assigner=leases)
            task = asyncio.create_task(fetcher.run())
            try:
                await self.clock.advance(15)
                yield task
                if not task.done():
                    fetcher.stop()
                    await task
                    await checkpointer.release()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def test_no_worker_passes_what_another_one_reads_hands_over_or_leaves_when_it_dies() -> None:
    world = Workers()
    for number in range(4):
        world.empty(number)
        world.store(number, 10 + number)
    async with world.worker("one"):
        assert world.told["one"][-1] == at(10)
        world.gate.set()
        async with world.worker("slow") as slow:
            for number in range(4):
                world.store(number, 20 + number)
            await world.clock.advance(15)
            assert world.told["one"][-1] == world.told["slow"][-1] == at(20)
            world.gate.clear()
            for number in range(4):
                world.store(number, 40 + number)
            await world.clock.advance(30)
            held = {one.shard_id for one in world.group.rows if world.holder(one) == "slow"}
            assert len(held) == 2
            assert world.told["one"][-1] < at(40)
            # A shard of the other one continues in a child, which it does not process either.
            number = int(min(held)[-1])
            world.close(number, child_of(number, number=4))
            world.empty(4, parent=number)
            world.store(4, 60)
            slow.cancel()
            await asyncio.wait([slow])
            await world.clock.advance(5)
            assert world.told["one"][-1] < at(40)
            await world.clock.advance(60)
            assert world.waiting == {}
            assert at(40) <= world.told["one"][-1] <= at(43)


async def test_a_shard_at_its_tip_lets_those_of_other_workers_go_on() -> None:
    world = Workers(properties=with_options(lookahead_seconds="5s"))
    world.gate.set()
    for number in range(4):
        world.empty(number)
        world.store(number, 10)
    async with world.worker("one"), world.worker("slow"):
        (first, *_) = [int(one.shard_id[-1]) for one in world.group.rows if world.holder(one)]
        for second in range(100, 200, 10):
            world.store(first, second)
            await world.clock.advance(5)
        await world.clock.advance(60)
        assert world.waiting == {}


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_row_says_where_its_shard_has_ended_or_was_left(is_killed: bool) -> None:
    # Nothing is published in time.
    world = Workers(properties=with_options(sync_interval_seconds="1h"))
    for number in range(3):
        world.empty(number)
        world.store(number, 10)
    async with world.worker("one") as one:
        world.close(0, child_of(0, number=3))
        world.empty(3, parent=0)
        for number, second in ((1, 50), (2, 60)):
            world.store(number, second)
        await world.clock.advance(10)
        if is_killed:
            one.cancel()
            await asyncio.wait([one])
    async with world.worker("two"):
        world.store(3, 70)
        await world.clock.advance(20)
        assert world.told["two"][-1] == at(50)


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
        row(4, at(9), is_idle=True, is_at_tip=True),
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
    WatermarkSink.around(world.sink, parsed, world.parts(), leases, None)
    assert [one.levelname for one in caplog.records] == ["WARNING"] * (warning is not None)
    assert (warning or "") in caplog.text
