"""Whatever happens to a reader of ranges, and however they are cut, each has its own rows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition, UserRecord
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.readers.ranges.seen_records import RangeEnd
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault
from tests.examples import examples
from tests.integration.readers.range_reading import CollectingSink
from tests.integration.readers.range_world import RangeWorld
from tests.integration.readers.simulated_world import STREAM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers import ShardRange
    from kinesis_publishers.readers.ranges.reader import KinesisRangeReader
    from tests.integration.readers.range_reading import StoredStream

MINUTE = 60.0
LARGE = 1024 * 1024 * 1024

FAULTS = [
    Fault("GetRecords", "throttle", times=2),
    Fault("GetRecords", "internal_failure"),
    Fault("GetRecords", "reset"),
    Fault("GetRecords", "error", code="ExpiredIteratorException"),
    Fault("GetShardIterator", "throttle"),
    Fault("SubscribeToShard", "error", code="ResourceInUseException"),
    Fault("SubscribeToShard", "reset_mid_event"),
    Fault("SubscribeToShard", "end", after_events=1),
    Fault("SubscribeToShard", "bad_crc", after_events=1),
]


@define(eq=False)
class History:
    """Two processes that read the micro-batches of one query, now this one and now the other."""

    world: RangeWorld
    expected_bytes: int
    readers: list[KinesisRangeReader] = field(init=False)
    read_up_to: dict[str, int] = field(factory=lambda: defaultdict(int))
    ended: set[str] = field(factory=set)
    last: tuple[list[ShardRange], dict[str, list[tuple[str, bytes]]]] = ([], {})

    def __attrs_post_init__(self) -> None:
        world = self.world
        self.readers = [world.reader(world.polling), world.reader(world.fan_out)]

    def plan(self, size: int) -> None:
        """Plan the next micro-batch: so many records of each shard, and every known end."""
        stored, ranges, rows = self.world.stored, [], {}
        open_ids = {one.shard_id for one in self.world.stream.open_shards}
        for shard_id, held in stored.records.items():
            begin, count = self.read_up_to[shard_id], len(held)
            end = min(count, begin + size)
            has_ended = end == count and shard_id not in open_ids
            is_news = has_ended and shard_id not in self.ended
            if begin == end and not is_news:
                continue
            if is_news:
                self.ended.add(shard_id)
            ranges.append(stored.range_of(shard_id, begin, None if is_news else end - 1))
            rows[shard_id] = [(one.sequence_number, one.data) for one in held[begin:end]]
            self.read_up_to[shard_id] = end
        self.last = ranges, {shard_id: some for shard_id, some in rows.items() if some}

    def reading(self, reader: int, sink: CollectingSink) -> Awaitable[None]:
        return self.readers[reader].read(self.last[0], sink, expected_bytes=self.expected_bytes)

    async def read(self, reader: int, copies: int = 1) -> None:
        """Run the task of the micro-batch so many times at once; each must have its rows."""
        sinks = [CollectingSink() for _ in range(copies)]
        tasks = [self.reading(reader, sink) for sink in sinks]
        await self.world.within_time(asyncio.gather(*tasks))
        for sink in sinks:
            assert sink.rows == self.last[1]
        await self.world.check_pool()

    async def end_early(self, reader: int, seconds: float) -> None:
        """End the task in the middle; what it has read must be the beginning of its rows."""
        sink = CollectingSink()
        task = asyncio.ensure_future(self.reading(reader, sink))
        await self.world.clock.advance(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for shard_id, rows in sink.rows.items():
            assert rows == self.last[1][shard_id][: len(rows)]
        await self.world.check_pool()


Step = tuple["Callable[..., Awaitable[None]]", tuple[object, ...]]


async def put(history: History, count: int) -> None:
    history.world.put(count)


async def reshard(history: History, shard_count: int) -> None:
    history.world.reshard(shard_count)


async def wait(history: History, minutes: float) -> None:
    await history.world.clock.advance(minutes * MINUTE)


async def fail(history: History, fault: Fault) -> None:
    history.world.service.state.faults.add(fault)


async def next_batch(history: History, reader: int, size: int) -> None:
    history.plan(size)
    await history.read(reader)


async def ended_early(history: History, reader: int, size: int, seconds: float) -> None:
    """Begin the next micro-batch in one process; the task is run again in another one."""
    history.plan(size)
    await history.end_early(reader, seconds)
    await history.read(reader)


def steps() -> st.SearchStrategy[Step]:
    readers, sizes = st.integers(0, 1), st.sampled_from([1, 5, 20, 200])

    def of(function: Callable[..., Awaitable[None]], *drawn: st.SearchStrategy[object]):
        return st.tuples(st.just(function), st.tuples(*drawn))

    return st.one_of(
        of(next_batch, readers, sizes),
        of(next_batch, readers, sizes),
        of(History.read, readers, st.integers(1, 2)),
        of(ended_early, readers, sizes, st.sampled_from([0.0, 0.1, 0.5, 3.0])),
        of(put, st.integers(1, 40)),
        of(fail, st.sampled_from(FAULTS)),
        of(wait, st.sampled_from([0.3, 3.0, 4.9, 11.0])),
        of(reshard, st.integers(1, 3)),
    )


@pytest.mark.deep
@settings(max_examples=examples(25, deep=True))
@given(
    history=st.lists(steps(), max_size=14),
    page=st.sampled_from([1, 7, 10_000]),
    event_bytes=st.sampled_from([100, 1000, 1024 * 1024]),
    expected_bytes=st.sampled_from([1, LARGE]),
    is_late=st.booleans(),
)
def test_every_range_that_is_read_has_its_own_rows(
    history: list[Step], page: int, event_bytes: int, expected_bytes: int, is_late: bool
):
    async def check() -> None:
        world = RangeWorld(Behaviour(late_shard_end=is_late), count=30, page=page)
        world.service.state.limits = evolve(world.service.state.limits, event_max_bytes=event_bytes)
        query = History(world, expected_bytes)
        for step, arguments in history:
            await step(query, *arguments)
        # Everything that is left, in one go.
        await next_batch(query, 0, 100_000)

    asyncio.run(check())


def range_end(stored: StoredStream, shard_id: str, cuts: list[int]) -> RangeEnd:
    """Return the end of a shard's whole range, with cuts behind the given records."""
    ends = [
        RangeEnd(progress=ShardProgress(position=StartingPosition.after(end)))
        for cut in [*sorted(cuts), -1]
        for end in [SequenceNumber(stored.records[shard_id][cut].sequence_number)]
    ]
    return evolve(ends[-1], cuts=tuple(ends[:-1]))


@pytest.mark.deep
@settings(max_examples=examples(30, deep=True))
@given(data=st.data(), sizes=st.lists(st.integers(0, 4), min_size=2, max_size=60))
def test_the_pieces_of_a_range_have_its_rows_each_once_in_whatever_order_they_are_read(
    data: st.DataObject, sizes: list[int]
):
    """Aggregates included: of so many records each, where the size is not 0."""

    async def rows_of(world: RangeWorld, one: ShardRange, kept: KinesisRangeReader) -> list:
        sink = CollectingSink()
        reader = kept if data.draw(st.booleans()) else world.reader(world.polling)
        await world.read(reader, sink, [one])
        return sink.rows[one.shard.shard_id]

    async def check() -> None:
        world = RangeWorld(Behaviour(), count=0, page=data.draw(st.sampled_from([1, 7, 10_000])))
        payloads = [packed(*range(size)) if size else b"plain" for size in sizes]
        world.service.state.write(STREAM, [("hot", payload) for payload in payloads])
        (whole,) = world.stored.whole()
        # It may begin inside of an aggregate, where a checkpoint says so.
        begin = SequenceNumber(world.stored.records[whole.shard.shard_id][0].sequence_number, 1)
        if data.draw(st.booleans()):
            whole = evolve(whole, start=StartingPosition.at(begin))
        cuts = data.draw(st.sets(st.integers(0, len(sizes) - 2), max_size=4))
        end = range_end(world.stored, whole.shard.shard_id, list(cuts))
        pieces = [piece for piece, _ in end.divided(whole)]
        assert len(pieces) == len(cuts) + 1
        kept = world.reader(world.polling)
        expected = await rows_of(world, whole, world.reader(world.polling))
        order = data.draw(st.permutations(range(len(pieces))))
        read = {index: await rows_of(world, pieces[index], kept) for index in order}
        assert [row for index in range(len(pieces)) for row in read[index]] == expected

    asyncio.run(check())


def packed(*numbers: int) -> bytes:
    """Return an aggregate of a record for each number, and of one more."""
    inside = [UserRecord(partition_key="hot", data=b"%d" % one) for one in (*numbers, 99)]
    found = pack_user_records(inside)
    return found.data
