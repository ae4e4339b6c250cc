"""Which shards a fetcher reads if not all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import define, field

from kinesis_publishers import (
    Properties,
    Shard,
    ShardAssigner,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.errors import DataLossError, InvalidOptionError
from kinesis_publishers.leases.assigners import NamedShards
from kinesis_publishers.testing.fakes import RecordingSink, sample_shard, shard_name
from tests.unit.readers.fetcher_support import Blocks, World
from tests.unit.readers.test_readers_fetcher_checkpoints import StoredWorld, last_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

ZERO, ONE, TWO = (sample_shard(number).key for number in range(3))


def named(*numbers: int) -> NamedShards:
    shards = ",".join(f"orders:{shard_name(number)}" for number in numbers)
    properties = {"kinesis.streams": "orders", "kinesis.shards": shards}
    return NamedShards.from_properties(Properties.parse(properties))


def read_by(world: World) -> set[str]:
    return {shard_id for shard_id, _ in world.started()}


async def test_named_shards_are_read_even_if_their_parents_are_not():
    world = World(assigner=named(1, 2))
    world.add_closed(0)
    for child in (1, 2, 3):
        world.add(child, parent=0)
    async with world.running():
        await world.clock.advance(30)
    assert read_by(world) == {shard_name(1), shard_name(2)}


async def test_shards_that_are_not_there_are_an_error_that_names_those_that_are():
    world = World(assigner=named(0, 7))
    world.add(0)
    with pytest.raises(InvalidOptionError) as raised:
        await world.fetcher().run()
    assert f"names orders:{shard_name(7)}, which is not there" in str(raised.value)
    assert f"there are orders:{shard_name(0)}" in str(raised.value)


async def test_the_checkpoints_of_other_shards_are_left_alone():
    world = StoredWorld()
    for number in (0, 1):
        world.add(number)
    async with world.reading():
        await world.clock.advance(20)
    before = world.stored
    assert before[shard_name(0)].processed == last_of(0)
    world.assigner = named(1)
    async with world.reading():
        await world.clock.advance(60)
    assert world.stored.keys() == before.keys()
    assert world.stored[shard_name(0)] == before[shard_name(0)]


@pytest.mark.parametrize("kind", [World, StoredWorld])
async def test_a_later_reader_of_all_shards_goes_on_where_named_ones_and_others_are(
    kind: type[World],
):
    """Where the others begin is fixed with LATEST, and given for one of them."""
    own = ShardProgress(position=StartingPosition.trim_horizon())
    latest = StartingPosition.latest()
    world = kind(initial_position=latest, initial_shards={shard_name(2): own}, assigner=named(0))
    for number in range(3):
        world.add(number)
    began_at = world.clock.now()
    if isinstance(world, StoredWorld):
        async with world.reading():
            await world.clock.advance(60)
        resume = None
    else:
        async with world.running() as first:
            await world.clock.advance(60)
        assert first.left_shards == {ONE, TWO}
        resume = first.progress
    world.assigner = ShardAssigner()
    world.data_plane.iterator_calls.clear()
    async with world.reading() if resume is None else world.running(world.fetcher(resume)):
        await world.clock.advance(1)
    begun = dict(world.started())
    assert begun[ONE.shard_id].timestamp == began_at
    assert begun[TWO.shard_id] == own.position


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_shard_that_others_read_may_leave_the_retention(is_running: bool):
    """A reader of all shards has lost records with it; one of some shards is told."""
    world = World(assigner=named(0), fails_on_data_loss=True)
    world.add(0)
    world.add_closed(1)
    world.add(2, parent=1)
    async with world.running() as first:
        await world.clock.advance(1)
        resume = first.progress
        if is_running:
            world.stream.remove(ONE.shard_id)
            await world.clock.advance(60)
            assert first.left_shards == {TWO}
    if is_running:
        resume = first.progress
    else:
        world.stream.remove(ONE.shard_id)
    async with world.running(world.fetcher(resume)):
        await world.clock.advance(1)
    if not is_running:
        world.assigner = ShardAssigner()
        with pytest.raises(DataLossError, match=f"{ONE}"):
            await world.fetcher(resume).prepare()


@define(eq=False)
class Switching(ShardAssigner):
    """Gives what a test says."""

    given: set[ShardKey] = field(factory=set)
    asked_for: set[ShardKey] = field(factory=set)
    released: list[ShardKey] = field(factory=list)
    known: dict[ShardKey, ShardProgress] = field(factory=dict)
    wake: Callable[[], None] = lambda: None

    def on_change(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def mine(self, startable: Sequence[Shard]) -> Collection[ShardKey]:
        return self.given & {shard.key for shard in startable}

    def leaving(self) -> Collection[ShardKey]:
        return self.asked_for

    def known_progress(self) -> Mapping[ShardKey, ShardProgress]:
        return self.known

    async def release(self, shards: Collection[ShardKey]) -> None:
        self.released += shards
        self.asked_for -= {*shards}
        self.given -= {*shards}


async def test_shards_are_read_as_long_as_they_are_this_process_s():
    assigner = Switching({ZERO})
    world = World(assigner=assigner)
    for number in (0, 1):
        world.add(number)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        assert read_by(world) == {ZERO.shard_id}
        assigner.given = {ONE}
        assigner.wake()
        await world.clock.advance(1)
        assert [one.shard.key for one in fetcher.statuses] == [ONE]
        assert read_by(world) == {ZERO.shard_id, ONE.shard_id}


async def test_what_another_process_waits_for_is_finished_first():
    blocks = Blocks()
    assigner = Switching({ZERO})
    world = World(assigner=assigner, sink=RecordingSink(blocks))
    world.add(0)
    async with world.running() as fetcher:
        await world.clock.advance(1)
        assigner.asked_for = {ZERO}
        assigner.wake()
        await world.clock.advance(60)
        assert assigner.released == [], "a delivery is in progress"
        blocks.gate.set()
        await world.clock.settle()
        assert assigner.released == [ZERO]
        assert fetcher.statuses == []


async def test_a_child_starts_when_another_process_has_read_its_parent():
    assigner = Switching({ONE})
    world = World(assigner=assigner)
    world.add_closed(0)
    world.add(1, parent=0)
    async with world.running() as fetcher:
        await world.clock.advance(60)
        assert read_by(world) == set()
        assigner.known = {ZERO: fetcher.progress[ZERO.stream_arn].shards[ZERO.shard_id].ended()}
        assigner.wake()
        await world.clock.advance(1)
        assert read_by(world) == {ONE.shard_id}
