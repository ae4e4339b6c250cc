"""Aggregates on their way through the consumer of a range, whose shard is looked up first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.errors import AggregationError, ShardNotFoundError
from kinesis_publishers.events import ignore_event
from kinesis_publishers.testing.fakes import (
    STREAM_ARN,
    FakeControlPlane,
    FakeStream,
    ScriptedPublisherFactory,
    ScriptedRun,
    batch_of,
    sample_shard,
)
from tests.unit.aggregation.aggregate_samples import (
    AGGREGATES,
    CONTRADICTION,
    INSIDE,
    IS_LOWER,
    with_data,
    wrapped,
)
from tests.unit.engine.consumer_support import place, run_of
from tests.unit.engine.range_support import RangeWorld, range_of

if TYPE_CHECKING:
    from kinesis_publishers import Shard


def range_world(listed: Shard | None = None) -> RangeWorld:
    """Return a world whose shard holds the aggregates, and is listed as ``listed``."""
    runs = [ScriptedRun(batches=[batch_of(AGGREGATES)])]
    world = RangeWorld(factory=ScriptedPublisherFactory(runs))
    world.reader = evolve(
        world.reader, control_plane=FakeControlPlane(FakeStream([listed or sample_shard()]))
    )
    return world


async def test_a_range_is_deaggregated_like_a_shard():
    world = range_world()
    await world.read(range_of(0, 1))
    assert world.sink.records == INSIDE[4:8]
    assert [one.stream_arn for one in world.reader.control_plane.list_calls] == [STREAM_ARN]


async def test_the_shards_are_listed_once_for_ranges_that_meet_aggregates_at_the_same_time():
    listings: list[str] = []

    async def list_shards(stream_arn: str) -> tuple[Shard, ...]:
        listings.append(stream_arn)
        await asyncio.sleep(0)
        return (sample_shard(0), sample_shard(1))

    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, list_shards)
    batches = [batch_of(AGGREGATES, shard=sample_shard(number)) for number in (0, 1, 0, 1)]
    found = await asyncio.gather(*(aggregates.expand(one, None) for one in batches))
    assert [len(one) for one in found] == [12] * 4
    assert listings == [sample_shard().stream_arn]


async def test_the_shards_of_a_stream_that_was_created_again_are_listed_again():
    old = evolve(sample_shard(0, parent=7), starting_hash_key="0", ending_hash_key="0")
    listings = [(old,), (sample_shard(0),)]

    async def list_shards(stream_arn: str) -> tuple[Shard, ...]:
        return listings.pop(0)

    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, list_shards)
    batch = batch_of(AGGREGATES)
    for seconds, delivered in ((0, 0), (60, 0), (61, 12), (121, 12)):
        later = evolve(batch, requested_at=batch.requested_at + timedelta(seconds=seconds))
        assert len(await aggregates.expand(later, None)) == delivered


async def test_the_shards_are_not_listed_for_a_range_without_aggregates():
    world = RangeWorld(factory=ScriptedPublisherFactory([run_of((1, 3))]))
    await world.read(range_of(0, 2))
    assert world.reader.control_plane.list_calls == []


async def test_a_range_leaves_out_what_the_shard_leaves_out():
    lower = evolve(sample_shard(parent=7), ending_hash_key=str(2**127 - 1))
    world = range_world(lower)
    await world.read(range_of(0, 2, at=True))
    expected = [one for one, is_lower in zip(INSIDE, IS_LOWER, strict=True) if is_lower]
    assert world.sink.records == expected


async def test_a_range_of_a_shard_that_is_no_longer_listed_is_an_error():
    world = range_world(sample_shard(7))
    with pytest.raises(ShardNotFoundError, match="no longer listed"):
        await world.read(range_of(0, 2, at=True))


async def test_with_fail_a_range_is_read_up_to_an_invalid_aggregate():
    broken = with_data(AGGREGATES[2], wrapped(CONTRADICTION))
    runs = [ScriptedRun(batches=[batch_of([*AGGREGATES[:2], broken])])]
    world = RangeWorld(factory=ScriptedPublisherFactory(runs))
    world.reader = evolve(world.reader, fails_on_invalid=True)
    with pytest.raises(AggregationError, match=f"record {place(2)}:"):
        await world.read(range_of(0, 2, at=True))
    assert world.sink.records == INSIDE[:8]
