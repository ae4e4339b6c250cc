"""Children that the last answer of a shard names, and listings that are late."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber, Shard, ShardProgress, StartingPosition
from kinesis_publishers.events import ShardsDiscovered
from kinesis_publishers.testing.fakes import StoredShard, sample_shard, shard_name
from tests.examples import examples
from tests.unit.engine.reshard_histories import reshard_histories
from tests.unit.readers.fetcher_support import World, child_of, progress_of, records_of

TRIM_HORIZON = StartingPosition.trim_horizon()
ZERO, ONE, TWO, THREE = map(shard_name, range(4))
AT_THE_HORIZON = ShardProgress(position=TRIM_HORIZON)
AFTER_FIRST = ShardProgress(
    position=StartingPosition.after(SequenceNumber(records_of(1)[0].sequence_number))
)


async def test_children_that_an_answer_names_do_not_wait_for_a_listing_that_is_late():
    world = World()
    world.add(0)
    world.shards |= {ONE: StoredShard(records_of(1)), TWO: StoredShard(records_of(2))}
    async with world.running():
        world.close(0, child_of(0, number=1), child_of(0, number=2))
        await world.clock.advance(0.3)
        assert world.started() == [(ZERO, TRIM_HORIZON), (ONE, TRIM_HORIZON), (TWO, TRIM_HORIZON)]
        await world.clock.advance(30)
        world.stream.add(sample_shard(1, parent=0), sample_shard(2, parent=0))
        await world.clock.advance(30)
    assert world.sink.records == [*records_of(0), *records_of(1), *records_of(2)]
    found = [one.shard_ids for one in world.events_of(ShardsDiscovered)]
    assert found == [(ZERO,), (ONE, TWO)]


async def test_a_merge_that_is_not_listed_yet_waits_for_its_second_parent_and_is_no_loss():
    world = World()
    world.add(0)
    world.add(1)
    world.shards[TWO] = StoredShard(records_of(2))
    merged = child_of(0, 1, number=2)
    async with world.running():
        world.close(0, merged)
        await world.clock.advance(30)
        assert TWO not in dict(world.started())
        world.close(1, merged)
        await world.clock.advance(0.3)
        assert TWO in dict(world.started())
    assert world.sink.records_of(TWO) == records_of(2)


async def test_a_restart_with_a_listing_that_is_late_waits_for_a_shard_that_is_newer():
    world = World()
    world.add_closed(0)
    resume = progress_of(world.stream, s0=AT_THE_HORIZON.ended(), s1=AFTER_FIRST)
    async with world.running(world.fetcher(resume)) as fetcher:
        await world.clock.advance(30)
        assert not fetcher.is_finished
        world.add(1, parent=0)
        await world.clock.advance(10)
    assert world.sink.records == records_of(1)[1:]


async def test_a_merge_waits_for_a_second_parent_that_is_not_known_yet():
    world = World()
    world.add(0)
    world.add(1)
    merged = child_of(2, 3, number=4)
    later = {number: StoredShard(records_of(number)) for number in (2, 3, 4)}
    later[2].close(merged)
    later[3].close(merged)
    world.shards |= {shard_name(number): shard for number, shard in later.items()}
    async with world.running():
        world.close(0, child_of(0, number=2))
        await world.clock.advance(30)
        assert [shard_id for shard_id, _ in world.started()] == [ZERO, ONE, TWO]
        world.close(1, child_of(1, number=3))
        await world.clock.advance(1)
    assert [shard_id for shard_id, _ in world.started()][3:] == [THREE, shard_name(4)]


def number_of(shard: Shard) -> int:
    return int(shard.shard_id.rpartition("-")[2])


async def read_with_a_late_listing(shards: list[Shard], listed: int) -> World:
    """Read a history of which only the first shards are ever listed."""
    world = World()
    for shard in shards:
        stored = world.shards[shard.shard_id] = StoredShard(records_of(number_of(shard)))
        children = [one for one in shards if shard.key in one.parent_keys]
        if children:
            stored.close(
                *(
                    child_of(
                        *(int(key.shard_id.rpartition("-")[2]) for key in one.parent_keys),
                        number=number_of(one),
                    )
                    for one in children
                )
            )
    world.stream.add(*sorted(shards, key=number_of)[:listed])
    async with world.running():
        await world.clock.advance(11)
    return world


@given(reshard_histories(), st.integers(3, 8))
@settings(max_examples=examples(10))
def test_a_listing_that_stays_late_costs_no_shard_and_no_order(shards: list[Shard], listed: int):
    world = asyncio.run(read_with_a_late_listing(shards, listed))
    ends = {}
    for index, record in enumerate(world.sink.records):
        ends.setdefault(record.shard_id, []).append(index)
    assert {id_: len(places) for id_, places in ends.items()} == {one.shard_id: 3 for one in shards}
    for shard in shards:
        for parent in shard.parent_keys:
            assert ends[parent.shard_id][-1] < ends[shard.shard_id][0]
