"""The last record before a place in a shard, over shards in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import StartingPosition
from tests.unit.readers.record_search_support import ShardInMemory, after_noon

if TYPE_CHECKING:
    from collections.abc import Sequence

_AN_HOUR = 3600.0
_arrivals = st.lists(
    st.one_of(
        st.floats(0, _AN_HOUR, allow_nan=False).map(lambda seconds: round(seconds, 3)),
        # Bursts, and many records of one millisecond.
        st.sampled_from([0.0, 1.0, 1.001, 1800.0, 1800.5, 3599.0]),
    ),
    max_size=400,
)
_empties = st.lists(st.integers(0, 3), max_size=30)
_instants = st.one_of(
    st.floats(-10, 2 * _AN_HOUR, allow_nan=False).map(lambda seconds: round(seconds, 3)),
    st.sampled_from([0.0, 1.0, 1.001, 1800.0, 3600.0]),
)


def at(seconds: float) -> StartingPosition:
    return StartingPosition.at_timestamp(after_noon(seconds))


# In order, nearly, or not at all.
_shuffled = st.one_of(
    _arrivals.map(sorted),
    _arrivals.map(lambda arrivals: sorted(arrivals, key=lambda arrival: arrival // 5)),
    _arrivals,
)


@given(_shuffled, _instants, _empties, st.booleans())
async def test_what_ends_at_an_instant_touches_what_begins_there(
    arrivals: list[float], instant: float, empties: list[int], is_closed: bool
) -> None:
    shard = ShardInMemory(arrivals, empties=empties, is_closed=is_closed)
    expected = shard.last_before(at(instant), StartingPosition.trim_horizon())
    assert await shard.search(instant) == expected


@given(_arrivals.filter(bool), _instants, _empties, st.data())
async def test_nothing_is_found_before_the_start(
    arrivals: list[float], instant: float, empties: list[int], data: st.DataObject
) -> None:
    shard = ShardInMemory(sorted(arrivals), empties=empties)
    index = data.draw(st.integers(0, len(arrivals) - 1))
    number = shard.number(index)
    since = data.draw(
        st.sampled_from(
            [
                StartingPosition.at(number),
                StartingPosition.after(number),
                at(shard.arrivals[index]),
                at(shard.arrivals[index] + 0.5),
            ]
        )
    )
    assert await shard.search(instant, since) == shard.last_before(at(instant), since)


@given(_arrivals, st.lists(st.floats(0, 60), min_size=1, max_size=40))
async def test_records_that_arrive_during_the_search_do_not_count(
    arrivals: list[float], later: list[float]
) -> None:
    shard = ShardInMemory(sorted(arrivals), later=[_AN_HOUR + seconds for seconds in sorted(later)])
    expected = shard.last_before(at(_AN_HOUR), StartingPosition.trim_horizon())
    assert await shard.search(_AN_HOUR) == expected


@pytest.mark.parametrize("per_second", [1, 1000])
async def test_a_search_shows_little_of_a_large_shard(per_second: int) -> None:
    count = 100_000
    shard = ShardInMemory([index / per_second for index in range(count)])
    instant = count / per_second / 2
    assert await shard.search(instant) == shard.number(count // 2 - 1)
    assert len(shard.asked) < 10
    assert shard.shown < 2_000


@pytest.mark.parametrize(("days", "looks"), [(1, 35), (365, 45)])
async def test_the_end_of_a_quiet_shard_is_found_in_few_looks(days: int, looks: int) -> None:
    shard = ShardInMemory([index / 100 for index in range(2_000)])
    assert await shard.search(days * 86_400) == shard.number(1_999)
    assert len(shard.asked) < looks
    assert shard.shown < 3_000


@pytest.mark.parametrize(("arrivals", "looks"), [([], 1), ([1.0] * 99, 1), (range(500), 2)])
async def test_what_has_just_fallen_silent_costs_two_looks(
    arrivals: Sequence[float], looks: int
) -> None:
    shard = ShardInMemory(list(arrivals), empties=[3])
    expected = shard.last_before(at(500), StartingPosition.trim_horizon())
    assert await shard.search(500) == expected
    assert len(shard.asked) == looks


async def test_records_that_all_bear_one_time_are_read_in_large_pages() -> None:
    shard = ShardInMemory([1.0] * 30_000 + [2.0])
    assert await shard.search(2) == shard.number(29_999)
    assert len(shard.asked) < 12
