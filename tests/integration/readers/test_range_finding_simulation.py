"""Rounds of looking in simulated time: the ranges cover every record once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kinesis_publishers.readers import ReadLimit
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault
from tests.examples import examples
from tests.integration.readers.range_histories import (
    PATIENCE_SECONDS,
    Break,
    CatchUp,
    Change,
    Look,
    LookAhead,
    LookForAll,
    Looking,
    Restart,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


FAULTS = st.one_of(
    st.builds(
        lambda operation, kind, times: Fault(operation, kind, times=times),
        st.sampled_from(["GetRecords", "GetShardIterator", "ListShards"]),
        st.sampled_from(["throttle", "internal_failure", "reset", "empty"]),
        st.integers(1, 3),
    ),
    st.builds(
        lambda number: Fault(
            "GetRecords", "throttle", shard_id=f"shardId-{number:012}", lasting_seconds=60.0
        ),
        st.integers(0, 3),
    ),
)
LIMITS = st.one_of(
    st.just(ReadLimit()),
    st.builds(ReadLimit, records=st.integers(5, 60)),
    st.builds(ReadLimit, payload_bytes=st.integers(400, 4000)),
)
HAPPENINGS = st.one_of(
    st.builds(Change, st.just("put"), st.one_of(st.integers(1, 30), st.integers(100, 400))),
    st.just(Look(ReadLimit())),
    st.just(Look(ReadLimit())),
    st.builds(Look, LIMITS),
    st.builds(LookAhead, LIMITS),
    st.builds(Change, st.just("reshard"), st.integers(1, 4)),
    st.builds(Change, st.just("split"), st.integers(0, 3)),
    st.builds(Break, FAULTS),
    st.just(Restart()),
)
PAUSES = st.one_of(st.just(0.0), st.floats(0.01, 2.0), st.floats(10.0, 400.0))
SCRIPTS = st.lists(st.tuples(PAUSES, HAPPENINGS), min_size=5, max_size=30)
PIECES = st.sampled_from([None, 5])
PATIENCES = st.sampled_from([PATIENCE_SECONDS, 5.0, None])
BEHAVIOURS = st.builds(Behaviour, late_shard_end=st.booleans())
# Whichever comes first has more to read.
LAST = LIMITS.flatmap(lambda limit: st.permutations([CatchUp(limit), LookForAll()]))


@pytest.mark.deep
@settings(
    max_examples=examples(10, deep=True),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@example(
    # More records than a page has arrive within the millisecond of the look.
    script=[*[(0.0, Look(ReadLimit()))] * 3, (0.34375, Change("put", 9))],
    behaviour=Behaviour(),
    last=[LookForAll()],
    piece_records=None,
    patience=PATIENCE_SECONDS,
    is_portioned=False,
)
@example(
    # A listing during a look ahead.
    script=[
        (1.0, Look(ReadLimit())),
        (0.0, Change("put", 7)),
        (0.0, Look(ReadLimit())),
        (2.0, Look(ReadLimit())),
        (10.0, LookAhead(ReadLimit())),
    ],
    behaviour=Behaviour(),
    last=[CatchUp(ReadLimit()), LookForAll()],
    piece_records=None,
    patience=600.0,
    is_portioned=True,
)
@given(
    script=SCRIPTS,
    behaviour=BEHAVIOURS,
    last=LAST,
    piece_records=PIECES,
    patience=PATIENCES,
    is_portioned=st.booleans(),
)
def test_one_round_for_the_tip_and_available_now_read_all_that_is_there(
    script: list[tuple[float, Callable[[Looking], Awaitable[None]]]],
    behaviour: Behaviour,
    last: list[Callable[[Looking], Awaitable[None]]],
    piece_records: int | None,
    patience: float | None,
    is_portioned: bool,
) -> None:
    asyncio.run(
        run(
            script,
            behaviour,
            *last,
            piece_records=piece_records,
            patience_seconds=patience,
            is_portioned=is_portioned,
        )
    )


@settings(max_examples=2)
@given(behaviour=BEHAVIOURS)
def test_rounds_of_a_busy_shard_cut_its_ranges(behaviour: Behaviour) -> None:
    steady = [(1.0, Change("put", 8))] * 60
    script = [*steady, (0.0, Look(ReadLimit())), *steady, (0.0, Look(ReadLimit()))]
    world = asyncio.run(run(script, behaviour, LookForAll(), piece_records=5))
    assert world.cut_count >= 6


@pytest.mark.parametrize("limit", [ReadLimit(), ReadLimit(records=20), ReadLimit(records=400)])
@pytest.mark.parametrize("late_end", [False, True])
@pytest.mark.parametrize("count", [3, 30, 300])
@pytest.mark.parametrize("pause", [1.0, 40.0])
def test_what_came_after_the_end_of_a_shard_waits_for_its_children(
    limit: ReadLimit, late_end: bool, count: int, pause: float
) -> None:
    script = [
        *[(1.0, Look(limit))] * 8,
        *[(pause, Change("put", count))] * 3,
        (pause, Change("split", 0)),
        *[(10.0, Change("put", count))] * 2,
        *[(1.0, Look(limit))] * 12,
    ]
    asyncio.run(run(script, Behaviour(late_shard_end=late_end), LookForAll()))
