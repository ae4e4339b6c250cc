"""The prefetch planner over simulated shards: they stay together in time, and never stop."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from attrs import define, evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import Properties
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import ThroughputExceededError
from kinesis_publishers.events import ShardLeftBehind
from kinesis_publishers.model import PositionType, Record, StartingPosition
from kinesis_publishers.testing.fakes import Answer, FakeControlPlane, ShardBehaviour, shard_name
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.micro_batches import Query
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.prefetch import PrefetchSession
from tests.examples import examples
from tests.unit.readers.fetcher_support import World, child_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers import Shard
    from kinesis_publishers.model import ChildShard
    from kinesis_publishers_spark.chunks import Chunk

# By then everything has arrived, and a while later everything is to be handed out.
END_SECONDS, DEADLINE_SECONDS = 60.0, 600.0
PATIENCE_SECONDS = 15.0
# What arrives in a shard that was at its tip may be fetched so much later than others.
TIP_SECONDS = 7.0
# By how much the arrival times of three records in turn are wrong.
DISORDER = (0.0, -0.9, 0.4)


class Plan(NamedTuple):
    """What is in a shard: the seconds between two records, and what hinders reading it."""

    begins: float
    gaps: list[float]
    page: int
    refused: tuple[float, float] = (0, 0)
    children: tuple[tuple[list[float], int], ...] = ()
    # Until then its answers are empty, nearer to the first record each time.
    searched: float = 0.0
    tells_lag: bool = True
    answers_after: float = 0.15


@define(eq=False)
class TimedShard(ShardBehaviour):
    """A shard whose records can be read from their arrival on, unless it refuses."""

    stream: Simulation
    plan: Plan
    records: list[Record]
    # When each of them can be read.
    instants: list[float]
    closes_at: float
    child_shards: tuple[ChildShard, ...] = ()

    async def locate(self, position: StartingPosition) -> int:
        if position.sequence_number is None:
            return 0
        is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
        numbers = [int(one.sequence_number) for one in self.records]
        return bisect_left(numbers, int(position.sequence_number.sequence_number) + is_after)

    async def read(self, index: int, limit: int) -> Answer:
        clock = self.stream.world.clock
        await clock.sleep(self.plan.answers_after)
        self.stream.split()
        now, seconds = clock.now().timestamp(), clock.monotonic()
        if self.plan.refused[0] <= seconds < self.plan.refused[1]:
            raise ThroughputExceededError("later", operation="GetRecords", code="Throughput")
        if seconds < self.plan.searched:
            return Answer(next_index=index, millis_behind_latest=int(1e6 - 1000 * seconds))
        there = bisect_right(self.instants, now)
        found = self.records[index : min(there, index + min(limit, self.plan.page))]
        following = index + len(found)
        lag = 0 if following == there else max(1, int((now - self.instants[following - 1]) * 1000))
        # An answer of its own tells the end of a shard that was listed as closed.
        has_ended = lag == 0 and seconds >= self.closes_at and (not found or self.closes_at > 0)
        return Answer(
            records=found,
            next_index=None if has_ended else following,
            millis_behind_latest=lag if self.plan.tells_lag else None,
            child_shards=self.child_shards if has_ended else (),
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

    def __init__(
        self,
        plans: Iterable[Plan],
        pool: tuple[int, int] = (10**6, 10**9),
        *,
        catches_up: bool = False,
        disorder: tuple[float, ...] = DISORDER,
        listing_seconds: float = 0.4,
        **options: str,
    ) -> None:
        self.world = World(pool=PendingPool(max_records=pool[0], max_bytes=pool[1]))
        self.world.control_plane = self.listing = SlowListing(self.world)
        self.listing_seconds, self.disorder = listing_seconds, disorder
        self.is_aligned = options.get("kinesis.spark.alignment") != "none"
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
            **options,
        }
        clock = ServiceClock.around(self.world.clock)
        self.catches_up = catches_up
        self.query = Query(
            properties=Properties.parse(properties), parallelism=2, clock=clock, guard=None
        )
        self.session = PrefetchSession(self.query, Offset(), clock.now() if catches_up else None)
        self.world.sink = self.session.fetched
        # For how long a record could be read and was not handed out.
        self.longest = 0.0
        self.handed: defaultdict[str, list[str]] = defaultdict(list)

    def _add(self, plan: Plan, **lineage: int) -> None:
        start, number = self.world.clock.now().timestamp(), len(self.shards)
        instants = [start + one for one in accumulate(plan.gaps, initial=plan.begins)]
        ends = min(instants.pop(), start + END_SECONDS)
        instants = [min(at, ends) for at in instants]
        # The first record of a child may say that it arrived before the last one of its parent.
        wrong = self.disorder[number % 2 :] + self.disorder
        records = [
            Record(b"x" * 10, "key", str(1000 * number + n), at + wrong[n % 3], None, "", "")
            for n, at in enumerate(instants)
        ]
        closes_at = ends - start if plan.children else float("inf")
        shard = TimedShard(self, plan, records, instants, closes_at)
        self.shards[shard_name(number)] = shard
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
            shard = self.shards[shard_name(number)]
            for gaps, page in shard.plan.children:
                shard.child_shards += (child_of(number, number=len(self.shards)),)
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
        now = self.world.clock.now().timestamp()
        for chunk in chunks:
            name = chunk.shard.shard_id
            readable_at = self.shards[name].instants[len(self.handed[name])]
            self.longest = max(self.longest, now - max(readable_at, _START))
            self.handed[chunk.shard.shard_id] += chunk.rows.column("sequenceNumber").to_pylist()
        for name, numbers in self.handed.items():
            expected = [one.sequence_number for one in self.shards[name].records]
            assert numbers == expected[: len(numbers)]

    def check(self) -> None:
        """Check that nothing that is unread arrived long before what was handed out."""
        if not self.is_aligned:
            assert not self.session.fetched.waiting.chunks
            return
        until = self.query.aligned_until.timestamp()
        at_tip = self.world.clock.now().timestamp() - TIP_SECONDS
        blameless = self.unread() if not self.left_behind else []
        for name, record in blameless:
            arrived, most = record.arrival_epoch_seconds, max(DISORDER) - min(DISORDER)
            assert arrived > min(until, at_tip) - most - 0.001, f"{name} {record.sequence_number}"

    async def run(
        self,
        spark_seconds: Iterable[float] = (),
        limit: BatchLimit = BatchLimit(),  # noqa: B008 - it is frozen
        *,
        asks_every: float = 0.3,
    ) -> None:
        """Read to the end; Spark works so long on the first micro-batches."""
        clock, session, works = self.world.clock, self.session, iter(spark_seconds)
        fetcher = self.world.fetcher()
        await fetcher.prepare()
        self.listing.seconds = self.listing_seconds
        offset = Offset.of(fetcher.progress)
        async with session.fetched.attached(fetcher), self.world.running(fetcher):
            while True:
                assert clock.monotonic() < DEADLINE_SECONDS, self.unread()
                end, chunks = offset, []
                if self.catches_up or not session.has_too_little(limit):
                    planned = asyncio.create_task(session.take(offset, limit))
                    while not planned.done():
                        await clock.advance(0.05)
                    end, chunks = await planned
                self.take(chunks)
                if chunks:
                    self.check()
                    # Who is behind finds room, but a page of each shard is all that comes of it,
                    # and a small one.
                    pages = sum(one.plan.page for one in self.shards.values())
                    beyond = min(pages, max(self.most_records, 100 * len(self.shards)))
                    assert session.fetched.waiting.records <= self.most_records + beyond
                    assert limit.records is None or sum(map(len, chunks)) <= limit.records
                    limit = evolve(limit, min_records=0)
                is_over = end == offset
                offset = end
                await clock.advance(next(works, 0.0) if chunks else asks_every)
                if (is_over and self.catches_up) or not (self.unread() or self.splits):
                    break
        there = _START if self.catches_up else float("inf")
        for name, shard in self.shards.items():
            assert len(self.handed[name]) >= bisect_left(shard.instants, there), name


_START = World().clock.now().timestamp()
GAPS = st.lists(st.sampled_from([0.0, 0.01, 1.0, 5.0, 60.0]), min_size=1, max_size=25)
PAGES = st.integers(1, 12)
CHILDREN = st.lists(st.tuples(GAPS, PAGES), max_size=2).map(tuple)
REFUSED = st.sampled_from([(0, 0), (0, 0), (0, 2), (1, 8), (3, 40)])
BEGINS, SEARCHED = st.sampled_from([-600.0, -300.0, -2.0, -0.1]), st.sampled_from([0.0, 0.0, 20.0])
PLANS = st.tuples(BEGINS, GAPS, PAGES, REFUSED, CHILDREN, SEARCHED).map(lambda one: Plan(*one))


@settings(max_examples=examples(40), deadline=None)
@given(
    plans=st.lists(PLANS, min_size=1, max_size=4),
    pool=st.sampled_from([(1, 10**6), (10, 10**6), (40, 10**6), (10**6, 50), (10**6, 10**9)]),
    spark_seconds=st.lists(st.sampled_from([0.0, 0.2, 3.0, 50.0]), min_size=1, max_size=9),
    limit=st.sampled_from([BatchLimit(), BatchLimit(records=1), BatchLimit(records=7)]),
    catches_up=st.booleans(),
    listing_seconds=st.sampled_from([0.4, 4.0]),
)
async def test_no_record_waits_that_arrived_before_what_is_handed_out_and_none_for_ever(
    plans: list[Plan],
    pool: tuple[int, int],
    spark_seconds: list[float],
    limit: BatchLimit,
    catches_up: bool,
    listing_seconds: float,
) -> None:
    simulation = Simulation(plans, pool, catches_up=catches_up, listing_seconds=listing_seconds)
    await simulation.run(spark_seconds, limit)
    # Only who refuses is to blame.
    refusing = {n for n, one in simulation.shards.items() if one.plan.refused == (3, 40)}
    assert simulation.left_behind <= refusing


@pytest.mark.parametrize(
    ("limit", "asks_every"),
    [(BatchLimit(), 0.3), (BatchLimit(), 60.0), (BatchLimit(min_records=19), 0.3)],
)
async def test_the_others_go_on_without_a_shard_that_refuses_for_too_long(
    limit: BatchLimit, asks_every: float
) -> None:
    gaps = [1.0] * 10
    plans = [Plan(-600.0, gaps, 2), Plan(-300.0, gaps, 2), Plan(-600.0, gaps, 2, (0.2, 90.0))]
    simulation = Simulation(plans)
    await simulation.run([], limit, asks_every=asks_every)
    (event,) = simulation.world.events_of(ShardLeftBehind)
    # What was left out came late, and is counted: all but the first page.
    late = dict(simulation.query.late)
    assert str(event).startswith("Shard orders/shardId-000000000002 cannot be read, 6")
    assert late == {event.shard: 8}


async def test_a_shard_that_never_says_that_it_is_at_its_tip_is_waited_for_once() -> None:
    plans = [Plan(-2.0, [gap] * 15, 9, tells_lag=False) for gap in (4.0, 30.0)]
    simulation = Simulation(plans)
    await simulation.run()
    assert len(simulation.world.events_of(ShardLeftBehind)) == 2


async def test_a_shard_at_its_tip_that_stops_answering_holds_the_others_back() -> None:
    plans = [Plan(-2.0, [1.0] * 40, 9), Plan(-2.0, [1.0] * 40, 9, refused=(3.0, 17.0))]
    simulation = Simulation(plans)
    await simulation.run()
    assert not simulation.left_behind


async def test_a_shard_at_its_tip_holds_nobody_back_from_one_poll_to_the_next() -> None:
    # The first answer of the empty one comes before the first record of the other.
    plans = [Plan(10.0, [1.0] * 30, 9), Plan(-2.0, [], 9, answers_after=9.0)]
    simulation = Simulation(plans, **{"kinesis.shard.getrecords.intervalmillis": "9000"})
    await simulation.run()
    assert simulation.longest < 2


async def test_pages_are_small_beyond_the_pool() -> None:
    plans = [Plan(-600.0 - n, [0.01] * 600, 600) for n in range(10)]
    await Simulation(plans, (400, 10**9)).run([5.0] * 3)


async def test_without_alignment_nothing_waits_whatever_the_arrival_times() -> None:
    plans = [Plan(-600.0, [1.0] * 5, 2), Plan(-300.0, [1.0] * 5, 9, (0.0, 30.0))]
    for catches_up in (False, True):
        none = {"kinesis.spark.alignment": "none"}
        await Simulation(plans, catches_up=catches_up, disorder=(9e4, 0.0, 9e5), **none).run()
