"""The prefetch planner over simulated shards: they stay together in time, and never stop."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import Properties
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import ThroughputExceededError
from kinesis_publishers.events import ShardLeftBehind
from kinesis_publishers.model import PositionType, Record, StartingPosition
from kinesis_publishers.testing.fakes import Answer, FakeControlPlane, ShardBehaviour, shard_name
from kinesis_publishers_spark.chunks import BatchLimit
from kinesis_publishers_spark.micro_batches import Query
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.prefetch import PrefetchSession
from tests.examples import examples
from tests.unit.core.fetcher_support import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers import Shard
    from kinesis_publishers_spark.chunks import Chunk

# By then everything has arrived, and a while later everything is to be handed out.
END_SECONDS, DEADLINE_SECONDS = 60.0, 600.0
PATIENCE_SECONDS = 15.0
# What arrives in a shard that was at its tip may be fetched so much later than others.
TIP_SECONDS = 7.0


class Plan(NamedTuple):
    """What is in a shard: the seconds between two records, and what hinders reading it."""

    begins: float
    gaps: list[float]
    page: int
    refused: tuple[float, float] = (0, 0)
    children: tuple[tuple[list[float], int], ...] = ()


@define(eq=False)
class TimedShard(ShardBehaviour):
    """A shard whose records can be read from their arrival on, unless it refuses."""

    stream: Simulation
    plan: Plan
    records: list[Record]
    closes_at: float

    async def locate(self, position: StartingPosition) -> int:
        if position.sequence_number is None:
            return 0
        is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
        numbers = [int(one.sequence_number) for one in self.records]
        return bisect_left(numbers, int(position.sequence_number.sequence_number) + is_after)

    async def read(self, index: int, limit: int) -> Answer:
        clock = self.stream.world.clock
        await clock.sleep(0.15)
        self.stream.split()
        now, seconds = clock.now().timestamp(), clock.monotonic()
        if self.plan.refused[0] <= seconds < self.plan.refused[1]:
            raise ThroughputExceededError("later", operation="GetRecords", code="Throughput")
        there = [one for one in self.records if one.arrival_epoch_seconds <= now]
        found = there[index : index + min(limit, self.plan.page)]
        following = index + len(found)
        is_at_tip = following == len(there)
        lag = now - found[-1].arrival_epoch_seconds if found else 0.0
        return Answer(
            records=found,
            next_index=None if is_at_tip and seconds >= self.closes_at else following,
            millis_behind_latest=0 if is_at_tip else max(1, int(lag * 1000)),
        )


class SlowListing(FakeControlPlane):
    """Takes a moment to list shards, as the service does."""

    def __init__(self, world: World) -> None:
        super().__init__(*world.streams)
        self._clock = world.clock
        self.seconds = 0.0

    async def list_shards(self, *arguments: Any, **more: Any) -> list[Shard]:
        await self._clock.sleep(self.seconds)
        return await super().list_shards(*arguments, **more)


class Simulation:
    """A stream, the session that reads it, and what Spark has got of each shard."""

    def __init__(self, plans: Iterable[Plan], pool: tuple[int, int], *, catches_up: bool) -> None:
        self.world = World(pool=PendingPool(max_records=pool[0], max_bytes=pool[1]))
        self.world.control_plane = self.listing = SlowListing(self.world)
        self.most_records = pool[0]
        self.shards: dict[str, TimedShard] = {}
        # When which shards are split.
        self.splits: list[tuple[float, int]] = []
        for plan in plans:
            self._add(plan)
        properties = {
            "kinesis.pending.maxrecords": pool[0],
            "kinesis.pending.maxbytes": pool[1],
            "kinesis.spark.alignment.patience": f"{PATIENCE_SECONDS:.0f}s",
            "kinesis.streams": "orders",
            "aws.region": "eu-west-1",
        }
        clock = ServiceClock.around(self.world.clock)
        self.catches_up = catches_up
        self.query = Query(
            properties=Properties.parse(properties), parallelism=2, clock=clock, guard=None
        )
        self.session = PrefetchSession(self.query, Offset(), clock.now() if catches_up else None)
        self.world.sink = self.session
        self.handed: defaultdict[str, list[str]] = defaultdict(list)

    def _add(self, plan: Plan, **lineage: int) -> None:
        start, number = self.world.clock.now().timestamp(), len(self.shards)
        instants = [start + one for one in accumulate(plan.gaps, initial=plan.begins)]
        ends = min(instants.pop(), start + END_SECONDS)
        records = [
            Record(b"x" * 10, "key", str(1000 * number + index), min(at, ends), None, "", "")
            for index, at in enumerate(instants)
        ]
        closes_at = ends - start if plan.children else float("inf")
        self.shards[shard_name(number)] = shard = TimedShard(self, plan, records, closes_at)
        self.world.add(number, behaviour=shard, **lineage)
        if plan.children:
            self.splits.append((closes_at, number))
            self.split()

    def split(self) -> None:
        """Split the shards whose time has come; their records go on in their children."""
        seconds = self.world.clock.monotonic()
        for closes_at, number in [one for one in self.splits if one[0] <= seconds]:
            self.splits.remove((closes_at, number))
            self.world.stream.close(shard_name(number))
            for gaps, page in self.shards[shard_name(number)].plan.children:
                self._add(Plan(closes_at - seconds, gaps, page), parent=number)

    @property
    def left_behind(self) -> set[str]:
        return {one.shard.shard_id for one in self.world.events_of(ShardLeftBehind)}

    def unread(self) -> list[tuple[str, Record]]:
        return [
            (name, record)
            for name, shard in self.shards.items()
            for record in shard.records[len(self.handed[name]) :]
        ]

    def take(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self.handed[chunk.shard.shard_id] += chunk.rows.column("sequenceNumber").to_pylist()
        for name, numbers in self.handed.items():
            expected = [one.sequence_number for one in self.shards[name].records]
            assert numbers == expected[: len(numbers)]

    def check(self) -> None:
        """Check that nothing that is unread arrived long before what was handed out."""
        until = self.query.aligned_until.timestamp()
        at_tip = self.world.clock.now().timestamp() - TIP_SECONDS
        blameless = self.unread() if not self.left_behind else []
        for name, record in blameless:
            arrived = record.arrival_epoch_seconds
            assert arrived > min(until, at_tip) - 0.001, f"{name} {record.sequence_number}"

    async def run(self, spark_seconds: list[float], limit: BatchLimit) -> None:
        """Read to the end; Spark works so long on the first micro-batches."""
        clock, session, works = self.world.clock, self.session, iter(spark_seconds)
        fetcher = self.world.fetcher()
        await fetcher.prepare()
        self.listing.seconds = 0.4
        offset = Offset.of(fetcher.progress)
        async with session.attached(fetcher), self.world.running(fetcher):
            while True:
                assert clock.monotonic() < DEADLINE_SECONDS, self.unread()
                planned = asyncio.create_task(session.take(offset, limit))
                while not planned.done():
                    await clock.advance(0.05)
                end, chunks = await planned
                self.take(chunks)
                if chunks:
                    self.check()
                    # Who is behind finds room, but a page of each shard is all that comes of it.
                    pages = sum(one.plan.page for one in self.shards.values())
                    assert session.waiting.records <= self.most_records + pages
                    assert limit.records is None or sum(map(len, chunks)) <= limit.records
                is_over = end == offset
                offset = end
                await clock.advance(next(works, 0.0) if chunks else 0.3)
                if (is_over and self.catches_up) or not (self.unread() or self.splits):
                    break
        left = [one for _, one in self.unread()]
        now = _START if self.catches_up else float("inf")
        assert not [one for one in left if one.arrival_epoch_seconds < now]


_START = World().clock.now().timestamp()
GAPS = st.lists(st.sampled_from([0.0, 0.01, 1.0, 5.0, 60.0]), min_size=1, max_size=25)
PAGES = st.integers(1, 12)
CHILDREN = st.lists(st.tuples(GAPS, PAGES), max_size=2).map(tuple)
REFUSED = st.sampled_from([(0, 0), (0, 0), (0, 2), (1, 8), (3, 40)])
PLANS = st.builds(Plan, st.sampled_from([-600.0, -300.0, -2.0]), GAPS, PAGES, REFUSED, CHILDREN)


@settings(max_examples=examples(40), deadline=None)
@given(
    plans=st.lists(PLANS, min_size=1, max_size=4),
    pool=st.sampled_from([(1, 10**6), (10, 10**6), (40, 10**6), (10**6, 50), (10**6, 10**9)]),
    spark_seconds=st.lists(st.sampled_from([0.0, 0.2, 3.0, 50.0]), min_size=1, max_size=9),
    limit=st.sampled_from([BatchLimit(), BatchLimit(records=1), BatchLimit(records=7)]),
    catches_up=st.booleans(),
)
async def test_no_record_waits_that_arrived_before_what_is_handed_out_and_none_for_ever(
    plans: list[Plan],
    pool: tuple[int, int],
    spark_seconds: list[float],
    limit: BatchLimit,
    catches_up: bool,
) -> None:
    simulation = Simulation(plans, pool, catches_up=catches_up)
    await simulation.run(spark_seconds, limit)
    # Only who refuses is to blame.
    refusing = {n for n, one in simulation.shards.items() if one.plan.refused == (3, 40)}
    assert simulation.left_behind <= refusing


async def test_the_others_go_on_without_a_shard_that_refuses_for_too_long() -> None:
    gaps = [1.0] * 10
    plans = [Plan(-600.0, gaps, 2), Plan(-300.0, gaps, 2), Plan(-600.0, gaps, 2, (0.2, 90.0))]
    simulation = Simulation(plans, (10**6, 10**9), catches_up=False)
    await simulation.run([], BatchLimit())
    (event,) = simulation.world.events_of(ShardLeftBehind)
    # What was left out came late, and is counted: all but the first page.
    late = dict(simulation.query.late)
    assert str(event).startswith("orders/shardId-000000000002 cannot be read, 6")
    assert late == {event.shard: 8}
