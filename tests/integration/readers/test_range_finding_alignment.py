"""Shards that cannot be read, that come back, and that have too few records, in one query."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kinesis_publishers.events import ShardLeftBehind
from kinesis_publishers.readers import ReadLimit
from kinesis_publishers.readers.ranges import rules
from kinesis_publishers.testing.local_kinesis import Fault
from tests.integration.readers.range_query import Query

# More than the looks of one round read of a shard on their way to its end.
MANY = 9000
LEAST = 30_000


@pytest.mark.parametrize("limit", [ReadLimit(), ReadLimit(records=MANY)])
async def test_a_shard_that_cannot_be_read_is_waited_for_and_then_left_behind(
    limit: ReadLimit,
) -> None:
    query = Query(patience_seconds=30.0)
    query.put(30)
    await query.begin()
    await query.read_everything()
    throttled, read = sorted(query.stored())
    fault = Fault("GetRecords", "throttle", shard_id=throttled, lasting_seconds=90.0)
    with query.service.lock:
        query.service.state.faults.add(fault)
    found: dict[str, list[float]] = {throttled: [], read: []}
    for _ in range(150):
        query.put(2)
        await query.clock.advance(1.0)
        for key in await query.read_some(limit):
            found[key.shard_id].append(query.clock.monotonic())
    pauses = [after - before for before, after in pairwise(found[read])]
    assert 28 <= max(pauses) <= 40
    assert found[throttled][0] >= 90
    (left,) = [one for one in query.events if isinstance(one, ShardLeftBehind)]
    assert left.shard.shard_id == throttled
    assert query.finder.rounds.lost == set()
    # One second behind the last look.
    assert all(len(query.stored()[key]) - len(read) <= 4 for key, read in query.read.items())


async def test_a_shard_that_comes_back_is_read_in_portions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kinesis_publishers.readers.ranges")
    monkeypatch.setattr(rules, "_RANGE_BYTES", 5_000)
    query = Query(patience_seconds=30.0)
    query.put(30)
    await query.begin()
    await query.read_everything()
    throttled, _ = sorted(query.stored())
    fault = Fault("GetRecords", "throttle", shard_id=throttled, lasting_seconds=600.0)
    with query.service.lock:
        query.service.state.faults.add(fault)
    largest = 0
    for second in range(760):
        if second < 600:
            query.put(4)
        elif second == 600:
            await query.restart()
        await query.clock.advance(1.0)
        before = len(query.read[throttled])
        await query.read_some(ReadLimit())
        largest = max(largest, len(query.read[throttled]) - before)
    assert query.read == query.stored()
    # Ten minutes have more than a thousand.
    assert largest <= 300
    (told,) = [one for one in caplog.messages if "begin" in one]
    assert "up to 60" in told
    assert f"{throttled} is the furthest" in told


async def put_for_an_hour(query: Query, records: int) -> None:
    for _ in range(600):
        query.put(records // 600)
        await query.clock.advance(6.0)


@pytest.mark.parametrize("patience_seconds", [None, 30.0])
@pytest.mark.parametrize("limit", [None, 100_000])
async def test_as_many_records_are_waited_for_as_are_asked_for(
    limit: int | None, patience_seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "_RANGE_BYTES", 5_000)
    query = Query(patience_seconds=patience_seconds)
    await put_for_an_hour(query, LEAST // 3)
    await query.begin()
    rounds = ReadLimit(min_records=LEAST, records=limit)
    for _ in range(20):
        assert not await query.read_some(rounds)
        await query.clock.advance(1.0)
    assert query.finder.aligned_until is None
    await put_for_an_hour(query, LEAST)
    for _ in range(20):
        await query.clock.advance(1.0)
        if await query.read_some(rounds):
            break
    # Without a limit nothing is counted: rates tell about how many wait.
    assert sum(map(len, query.read.values())) >= (LEAST if limit else LEAST // 2)


@pytest.mark.parametrize("most", [100, 100_000])
async def test_a_counted_round_ends_where_a_parent_ends(most: int) -> None:
    """The children have what came after that, and are read in a later round."""
    query = Query(patience_seconds=30.0)
    query.put(30)
    parents_end_at = query.clock.now()
    await query.clock.advance(1.0)
    query.split(0)
    await put_for_an_hour(query, 1000)
    await query.begin()
    reached = []
    while len(query.stored()) > len(query.read) or not reached:
        await query.clock.advance(1.0)
        if await query.read_some(ReadLimit(records=most)):
            reached.append(query.finder.aligned_until)
    assert reached[0] == parents_end_at
    assert reached == sorted(reached)
