"""Any cut into ranges and any reader give the same rows; in simulated time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition, UserRecord
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.readers.ranges.seen_records import RangeEnd
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.examples import examples
from tests.integration.readers.range_reading import CollectingSink
from tests.integration.readers.range_world import RangeWorld
from tests.integration.readers.simulated_world import STREAM

if TYPE_CHECKING:
    from kinesis_publishers import ShardRange
    from kinesis_publishers.readers import KinesisRangeReader
    from tests.integration.readers.range_reading import StoredStream


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
