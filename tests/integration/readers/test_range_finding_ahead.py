"""Looks at what the next round has: that round finds the same with fewer calls."""

from __future__ import annotations

import pytest

from kinesis_publishers.readers import Portion, ReadLimit
from kinesis_publishers.readers.ranges import rules
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.integration.readers.range_histories import Look, LookForAll, Looking

# Of two shards, with 100 bytes a record.
PORTION = Portion(payload_bytes=8_000)
NO_LIMIT = ReadLimit()
BOTH_LIMITS = pytest.mark.parametrize("limit", [NO_LIMIT, ReadLimit(records=60)])


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few records be worth a range."""
    monkeypatch.setattr(rules, "_RANGE_BYTES", 1_000)


async def backlog(seconds: int = 120, *, patience_seconds: float | None = 600.0) -> Looking:
    """Return a query that is so far behind, with 8 records a second, after its first round."""
    world = Looking(Behaviour(), None, patience_seconds)
    for _ in range(seconds):
        world.put(8)
        await world.clock.advance(1.0)
    await world.within_time(world.finder.prepare())
    assert await world.round(lambda: world.finder.find(NO_LIMIT, PORTION), limit=NO_LIMIT)
    return world


async def look_ahead(world: Looking, limit: ReadLimit) -> None:
    """Look as often as it needs."""
    for _ in range(60):
        await world.clock.advance(0.1)
        if await world.within_time(world.finder.look_ahead(limit, PORTION)):
            return
    raise AssertionError("the look ahead does not end")


@BOTH_LIMITS
@pytest.mark.parametrize("seconds", [0.0, 3.0])
async def test_a_round_that_was_looked_for_ahead_makes_no_call(
    limit: ReadLimit, seconds: float
) -> None:
    world = await backlog()
    await look_ahead(world, limit)
    await world.clock.advance(seconds)
    before = world.data_plane.counts.copy()
    assert await world.round(lambda: world.finder.find(limit, PORTION), limit=limit) > 30
    assert world.data_plane.counts == before


async def test_a_look_ahead_finds_what_the_round_itself_would_have_found() -> None:
    ahead, alone = await backlog(), await backlog()
    await look_ahead(ahead, NO_LIMIT)
    while alone.clock.monotonic() < ahead.clock.monotonic():
        await alone.clock.advance(0.1)
    for world in (ahead, alone):
        found = await world.round(lambda w=world: w.finder.find(NO_LIMIT, PORTION), limit=NO_LIMIT)
        assert found > 30
    assert ahead.handed_out == alone.handed_out


async def test_the_end_of_a_backlog_that_takes_several_looks_is_found_ahead() -> None:
    world = await backlog(20)
    await world.clock.advance(3_600.0)
    await look_ahead(world, NO_LIMIT)
    await world.clock.advance(3.0)
    before = world.data_plane.counts.copy()
    assert await world.round(lambda: world.finder.find(NO_LIMIT, PORTION), limit=NO_LIMIT)
    assert world.data_plane.counts == before


@pytest.mark.parametrize("asked", [ReadLimit(records=7), ReadLimit(payload_bytes=900), NO_LIMIT])
@BOTH_LIMITS
async def test_another_limit_than_that_of_the_look_ahead_holds(
    limit: ReadLimit, asked: ReadLimit
) -> None:
    world = await backlog()
    await look_ahead(world, limit)
    await world.clock.advance(1.0)
    assert await world.round(lambda: world.finder.find(asked, PORTION), limit=asked)
    await LookForAll()(world)


@pytest.mark.parametrize(("seconds", "is_asked"), [(0.0, False), (1.0, True)])
async def test_a_portion_that_has_grown_is_looked_for_again_if_that_is_allowed(
    seconds: float, is_asked: bool
) -> None:
    world = await backlog()
    await look_ahead(world, NO_LIMIT)
    await world.clock.advance(seconds)
    before = world.data_plane.counts.copy()
    larger = Portion(payload_bytes=4 * PORTION.payload_bytes)
    found = await world.round(lambda: world.finder.find(NO_LIMIT, larger), limit=NO_LIMIT)
    assert (found > 2 * PORTION.payload_bytes / 100) == is_asked
    assert (world.data_plane.counts != before) == is_asked
    assert found


async def test_near_the_tip_nothing_is_looked_for_ahead() -> None:
    world = Looking(Behaviour(), None, 600.0)
    await world.within_time(world.finder.prepare())
    world.put(8)
    await world.clock.advance(0.1)
    await Look(NO_LIMIT)(world)
    world.put(8)
    await world.clock.advance(2.0)
    before = world.data_plane.counts.copy()
    assert await world.finder.look_ahead(NO_LIMIT, PORTION)
    assert world.data_plane.counts == before


async def test_a_reshard_after_a_look_ahead_loses_and_repeats_nothing() -> None:
    world = await backlog(20)
    await look_ahead(world, NO_LIMIT)
    world.reshard(4)
    world.put(400)
    await world.clock.advance(60.0)
    for _ in range(20):
        await Look(NO_LIMIT)(world)
        await world.clock.advance(1.0)
    await LookForAll()(world)
    assert {one: world.handed_out[one] for one in world.numbers()} == world.numbers()
