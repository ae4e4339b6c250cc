"""Any cut into ranges and any reader give the same rows; in simulated time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.examples import examples
from tests.integration.framework.range_reading import CollectingSink
from tests.integration.framework.range_world import RangeWorld

if TYPE_CHECKING:
    from kinesis_publishers import ShardRange
    from tests.integration.framework.range_reading import StoredStream


def batches(stored: StoredStream, cuts: dict[str, list[int]]) -> list[list[ShardRange]]:
    """Cut each shard before the given records; the pieces of the same place make a batch."""
    made: dict[int, list[ShardRange]] = {}
    for shard_id, held in stored.records.items():
        ends = sorted({cut % len(held) for cut in cuts[shard_id]} | {len(held) - 1}) if held else []
        for index, (before, end) in enumerate(zip([-1, *ends], ends, strict=False)):
            made.setdefault(index, []).append(stored.range_of(shard_id, before + 1, end))
    return [made[index] for index in sorted(made)]


@settings(max_examples=examples(40))
@given(
    count=st.integers(1, 120),
    page=st.sampled_from([1, 7, 10_000]),
    cuts=st.lists(st.lists(st.integers(0, 120), max_size=4), min_size=2, max_size=2),
    event_bytes=st.sampled_from([100, 1000, 1024 * 1024]),
)
def test_any_cut_into_ranges_and_any_reader_give_the_same_rows(
    count: int, page: int, cuts: list[list[int]], event_bytes: int
):
    async def check() -> None:
        world = RangeWorld(Behaviour(), count=count, page=page)
        world.service.state.limits = evolve(world.service.state.limits, event_max_bytes=event_bytes)
        calls = batches(world.stored, dict(zip(world.stored.records, cuts, strict=True)))
        cached, kept = CollectingSink(), world.reader(world.polling)
        for ranges in calls:
            await world.read(kept, cached, ranges)
        # However many ranges there are, a shard is located once.
        assert world.calls("GetShardIterator") == len(world.stored.rows())
        fresh, pushed, pushed_fresh = CollectingSink(), CollectingSink(), CollectingSink()
        kept = world.reader(world.fan_out)
        for ranges in calls:
            await world.read(world.reader(world.polling), fresh, ranges)
            await world.read(kept, pushed, ranges)
            await world.read(world.reader(world.fan_out), pushed_fresh, ranges)
        expected = world.stored.rows()
        assert cached.rows == fresh.rows == pushed.rows == pushed_fresh.rows == expected
        assert world.calls("SubscribeToShard") > 0

    asyncio.run(check())


async def test_every_record_is_fetched_once_although_ranges_end_within_pages():
    world = RangeWorld(Behaviour(), count=100, page=10_000)
    sink, reader = CollectingSink(), world.reader(world.polling)
    pieces = {shard_id: list(range(100)) for shard_id in world.stored.records}
    for ranges in batches(world.stored, pieces):
        await world.read(reader, sink, ranges)
    assert sink.rows == world.stored.rows()
    assert world.calls("GetRecords") == len(sink.rows)
