"""Sequence numbers look like those of AWS and order what AWS orders."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.testing.local_kinesis.sequence_numbers import (
    CreationSeconds,
    SequenceSpace,
)

SECONDS = st.integers(0, 2**36 - 1)
INDEXES = st.integers(0, 100_000)
POSITIONS = st.integers(0, 2**62)


@given(INDEXES, SECONDS, POSITIONS, SECONDS)
def test_a_number_has_56_digits(index: int, created: int, position: int, second: int) -> None:
    assert len(str(SequenceSpace(index, created).number(position, second))) == 56


@given(INDEXES, SECONDS, POSITIONS, SECONDS, SECONDS)
def test_numbers_grow_with_the_position_under_any_clock(
    index: int, created: int, position: int, second: int, later: int
) -> None:
    space = SequenceSpace(index, created)
    first, following = space.number(position, second), space.number(position + 1, later)
    assert space.starting() < following
    assert first < following < space.ending(0)


@given(INDEXES, INDEXES, st.integers(0, 2**35), POSITIONS, SECONDS)
def test_a_child_starts_above_every_number_of_its_parent(
    parent: int, child: int, created: int, position: int, second: int
) -> None:
    parent_space = SequenceSpace(parent, created)
    child_space = SequenceSpace(child, created + 1)
    assert child_space.starting() > parent_space.ending(second) > 0
    assert child_space.starting() > parent_space.number(position, second)


@given(INDEXES, INDEXES, SECONDS, POSITIONS, SECONDS)
def test_a_shard_knows_its_own_numbers(
    index: int, other: int, created: int, position: int, second: int
) -> None:
    number = SequenceSpace(index, created).number(position, second)
    assert SequenceSpace(index, created).owns(number)
    assert SequenceSpace(other, created).owns(number) is (index == other)
    assert not SequenceSpace(index, created).owns(number + 1)


def test_creation_seconds_never_repeat() -> None:
    seconds = CreationSeconds()
    given_out = [seconds.next(5_000), seconds.next(5_000), seconds.next(4_000), seconds.next(9_000)]
    assert given_out == [5, 6, 7, 9]
