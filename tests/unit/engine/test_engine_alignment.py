"""The rules by which shards stay together in time."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.engine.alignment import (
    Front,
    Lane,
    Patience,
    ReadLimit,
    Weight,
    admit,
    common_instant,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
FOREVER = math.inf


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("fronts", "expected"),
    [
        ([], None),
        ([Front(at(3)), Front(at(1))], at(1)),
        ([Front(at(3)), Front(at(1), is_idle=True)], at(3)),
        ([Front(at(3), is_idle=True), Front(at(5), is_idle=True)], at(5)),
        ([Front(at(3)), Front(None)], None),
        ([Front(at(3)), Front(None, is_idle=True)], at(3)),
    ],
)
def test_the_common_instant_is_that_of_the_last_shard_that_has_more(
    fronts: list[Front], expected: datetime | None
):
    assert common_instant(fronts) == expected


def test_who_stands_while_it_is_read_is_given_up_until_it_moves():
    patience: Patience[str] = Patience(seconds=30.0)
    fronts = {"a": Front(at(1)), "b": Front(at(9)), "c": Front(None, is_idle=True)}
    moved = {**fronts, "a": Front(at(2))}

    def lost_by(seconds: int, fronts: dict[str, Front], *excused: str) -> set[str]:
        """Ask every second; return the answer to the last question."""
        answers = [patience.lost(fronts, next(clock), excused=excused) for _ in range(seconds)]
        return answers[-1]

    clock = count(0.0)
    assert lost_by(30, fronts, "b") == set()
    assert lost_by(1, fronts, "b") == {"a"}
    assert lost_by(30, moved, "b") == set()
    assert lost_by(1, moved, "b", "a") == set()
    assert lost_by(30, moved, "b") == set(), "it had a reason"
    assert lost_by(1, moved, "b") == {"a"}
    assert lost_by(99, {"a": Front(at(3))}) == set(), "nothing waits for it"


def test_the_time_in_which_nothing_is_read_is_nobodys_fault():
    patience: Patience[str] = Patience(seconds=30.0)
    fronts = {"a": Front(at(1)), "b": Front(at(9), is_idle=True)}
    assert [patience.lost(fronts, now) for now in (0.0, 600.0, 1200.0)] == [set()] * 3


RECORDS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 30), st.integers(0, 3)), max_size=12
)
LANES = st.lists(
    RECORDS.map(
        lambda found: Lane([one[0] for one in found], [Weight(one[1], one[2]) for one in found])
    ),
    max_size=4,
)
LIMITS = st.builds(
    ReadLimit,
    records=st.none() | st.integers(1, 15),
    payload_bytes=st.none() | st.integers(1, 120),
)


@given(LANES, LIMITS, st.integers(0, 20) | st.just(FOREVER))
def test_what_is_handed_out_arrived_before_all_that_waits(
    lanes: list[Lane], limit: ReadLimit, until: float
):
    counts = admit(lanes, limit, until)
    timed = [list(lane.timed(index)) for index, lane in enumerate(lanes)]
    taken = [one for lane, count in zip(timed, counts, strict=True) for one in lane[:count]]
    left = [one for lane, count in zip(timed, counts, strict=True) for one in lane[count:]]
    assert all(arrival <= until for arrival, _, _ in taken)
    assert max((one[0] for one in taken), default=-1) <= min((one[0] for one in left), default=99)
    records = sum(weight.records for _, _, weight in taken)
    payload_bytes = sum(weight.payload_bytes for _, _, weight in taken)
    is_alone = len(taken) == 1
    assert is_alone or limit.records is None or records <= limit.records
    assert is_alone or limit.payload_bytes is None or payload_bytes <= limit.payload_bytes
    if (next_one := min(left, key=lambda one: one[:2], default=None)) is not None and next_one[
        0
    ] <= until:
        # Whatever comes next would exceed a limit: to the record.
        weight = next_one[2]
        assert taken
        assert records + weight.records > (limit.records or math.inf) or (
            payload_bytes + weight.payload_bytes > (limit.payload_bytes or math.inf)
        )
