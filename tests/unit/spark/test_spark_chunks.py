"""Taking waiting records for a micro-batch: limits to the record, each row once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers import SequenceNumber
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.waiting import take
from tests.examples import examples
from tests.unit.spark.spark_builders import after, arrival, chunk, numbers_in, shard

if TYPE_CHECKING:
    from kinesis_publishers_spark.chunks import Chunk

FAST = settings(max_examples=examples(100))
NO_LIMIT = BatchLimit()


def rows_in(chunks: list[Chunk]) -> list[tuple[str, int]]:
    return numbers_in(one.rows for one in chunks)


def numbers(chunks: list[Chunk]) -> list[int]:
    return [number for _, number in rows_in(chunks)]


def payload_bytes(chunks: list[Chunk]) -> int:
    return sum(one.payload_bytes for one in chunks)


def test_without_a_limit_everything_is_taken() -> None:
    waiting = [chunk(shard(0), [1, 2]), chunk(shard(1), [3])]
    assert take(waiting, NO_LIMIT) == (waiting, [])


def test_nothing_waiting_gives_nothing() -> None:
    assert take([], BatchLimit(records=5, payload_bytes=5)) == ([], [])


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (BatchLimit(records=1), [1]),
        (BatchLimit(records=3), [1, 2, 3]),
        (BatchLimit(records=4), [1, 2, 3, 4]),
        (BatchLimit(records=99), [1, 2, 3, 4, 5]),
        (BatchLimit(payload_bytes=10), [1]),
        (BatchLimit(payload_bytes=29), [1, 2]),
        (BatchLimit(payload_bytes=30), [1, 2, 3]),
        (BatchLimit(payload_bytes=31), [1, 2, 3]),
        (BatchLimit(records=2, payload_bytes=45), [1, 2]),
        (BatchLimit(records=4, payload_bytes=25), [1, 2]),
    ],
)
def test_limits_hold_to_the_record(limit: BatchLimit, expected: list[int]) -> None:
    waiting = [
        chunk(shard(0), [1, 2, 3], [b"x" * 10] * 3),
        chunk(shard(1), [4, 5], [b"x" * 10] * 2),
    ]
    taken, rest = take(waiting, limit)
    assert numbers(taken) == expected
    assert numbers([*taken, *rest]) == [1, 2, 3, 4, 5]


def test_a_first_record_that_exceeds_the_limit_goes_through_alone() -> None:
    waiting = [chunk(shard(0), [1, 2, 3], [b"x" * 100, b"y", b"z"])]
    taken, rest = take(waiting, BatchLimit(payload_bytes=10))
    assert numbers(taken) == [1]
    taken, rest = take(rest, BatchLimit(payload_bytes=10))
    assert (numbers(taken), rest) == ([2, 3], [])


def test_a_later_record_that_exceeds_the_limit_waits_for_its_own_batch() -> None:
    waiting = [chunk(shard(0), [1], [b"x"]), chunk(shard(1), [2], [b"y" * 100])]
    taken, rest = take(waiting, BatchLimit(payload_bytes=10))
    assert (numbers(taken), numbers(rest)) == ([1], [2])


def aggregates(*counts: int) -> Chunk:
    """Return a chunk of records 1, 2, ... of which each has so many rows of one byte."""
    rows = [number for number, count in enumerate(counts, 1) for _ in range(count)]
    return chunk(shard(0), rows, [b"x"] * len(rows))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (BatchLimit(records=1), [1, 1, 1]),
        (BatchLimit(records=3), [1, 1, 1]),
        (BatchLimit(records=4), [1, 1, 1, 2]),
        (BatchLimit(records=7), [1, 1, 1, 2]),
        (BatchLimit(records=8), [1, 1, 1, 2, 3, 3, 3, 3]),
        (BatchLimit(payload_bytes=2), [1, 1, 1]),
        (BatchLimit(payload_bytes=7), [1, 1, 1, 2]),
        (BatchLimit(), [1, 1, 1, 2, 3, 3, 3, 3, 4]),
    ],
)
def test_an_aggregate_is_not_split(limit: BatchLimit, expected: list[int]) -> None:
    taken, rest = take([aggregates(3, 1, 4, 1)], limit)
    assert numbers(taken) == expected
    assert numbers([*taken, *rest]) == [1, 1, 1, 2, 3, 3, 3, 3, 4]
    assert taken[-1].progress == after(expected[-1])
    assert all(one.first == SequenceNumber(str(expected[-1] + 1)) for one in rest)


def test_an_aggregate_waits_for_its_own_batch_behind_another_shard() -> None:
    waiting = [chunk(shard(1), [0], [b"x"]), aggregates(3)]
    taken, rest = take(waiting, BatchLimit(records=2))
    assert (numbers(taken), numbers(rest)) == ([0], [1, 1, 1])


def test_empty_payloads_cost_no_bytes_but_count_as_records() -> None:
    waiting = [chunk(shard(0), [1, 2, 3], [b"", b"", b""])]
    assert numbers(take(waiting, BatchLimit(payload_bytes=1))[0]) == [1, 2, 3]
    assert numbers(take(waiting, BatchLimit(records=2))[0]) == [1, 2]


def test_a_shard_does_not_overtake_another_that_came_first() -> None:
    waiting = [chunk(shard(0), [1], [b"x" * 8]), chunk(shard(0), [2], [b"x" * 8])]
    waiting.append(chunk(shard(1), [3], [b"x"]))
    taken, rest = take(waiting, BatchLimit(payload_bytes=10))
    assert (numbers(taken), numbers(rest)) == ([1], [2, 3])


def test_both_halves_of_a_split_chunk_say_how_far_they_reach() -> None:
    head, tail = chunk(shard(0), [4, 5, 9], [b"a", b"bb", b"ccc"]).split(2)
    assert (numbers([head]), numbers([tail])) == ([4, 5], [9])
    assert head.progress == after(5)
    assert tail.progress == after(9)
    assert (head.first, tail.first) == (SequenceNumber("4"), SequenceNumber("9"))
    assert (head.payload_bytes, tail.payload_bytes) == (3, 3)
    assert head.progress.as_of == arrival(5)


def test_a_chunk_can_be_split_again_and_again() -> None:
    rest, seen = chunk(shard(0), [1, 2, 3, 4], [b"a", b"bb", b"", b"dddd"]), []
    while len(rest) > 1:
        head, rest = rest.split(1)
        seen.append((numbers([head]), head.payload_bytes))
    assert seen == [([1], 1), ([2], 2), ([3], 0)]
    assert (numbers([rest]), rest.payload_bytes) == ([4], 4)


limits = st.builds(
    BatchLimit,
    records=st.one_of(st.none(), st.integers(1, 7)),
    payload_bytes=st.one_of(st.none(), st.integers(1, 40)),
)


@st.composite
def waiting_chunks(draw: st.DrawFn) -> list[Chunk]:
    sizes = draw(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=6))
    number, chunks = 0, []
    for one in sizes:
        key = shard(draw(st.integers(0, 2)))
        chunks.append(chunk(key, range(number, number + len(one)), [b"x" * size for size in one]))
        number += len(one)
    return chunks


@FAST
@given(waiting_chunks(), st.data())
def test_repeated_takes_hand_out_every_row_once_in_order(
    waiting: list[Chunk], data: st.DataObject
) -> None:
    expected, seen, rest = rows_in(waiting), [], waiting
    while rest:
        limit = data.draw(limits)
        taken, rest = take(rest, limit)
        batch = rows_in(taken)
        assert batch, "a batch that takes nothing while records wait would never end"
        assert limit.records is None or len(batch) <= limit.records
        if limit.payload_bytes is not None and len(batch) > 1:
            assert payload_bytes(taken) <= limit.payload_bytes
        seen += batch
    assert seen == expected


@FAST
@given(waiting_chunks(), limits)
def test_a_batch_stops_only_at_a_limit(waiting: list[Chunk], limit: BatchLimit) -> None:
    taken, rest = take(waiting, limit)
    if not rest:
        return
    following = len(rest[0].rows.column("data")[0].as_py())
    is_full = limit.records is not None and len(rows_in(taken)) == limit.records
    is_large = (
        limit.payload_bytes is not None and payload_bytes(taken) + following > limit.payload_bytes
    )
    assert is_full or is_large


@FAST
@given(waiting_chunks(), limits)
def test_the_bytes_of_chunks_stay_true(waiting: list[Chunk], limit: BatchLimit) -> None:
    taken, rest = take(waiting, limit)
    for one in [*taken, *rest]:
        lengths = [len(value.as_py()) for value in one.rows.column("data")]
        assert one.payload_bytes == sum(lengths)
        assert len(one) == len(lengths) > 0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (NO_LIMIT, NO_LIMIT, NO_LIMIT),
        (BatchLimit(records=5), NO_LIMIT, BatchLimit(records=5)),
        (BatchLimit(records=5), BatchLimit(records=3), BatchLimit(records=3)),
        (
            BatchLimit(records=5),
            BatchLimit(payload_bytes=3),
            BatchLimit(records=5, payload_bytes=3),
        ),
    ],
)
def test_two_limits_are_kept_both(one: BatchLimit, other: BatchLimit, expected: BatchLimit) -> None:
    assert one.tightened(other) == expected == other.tightened(one)


def test_a_shard_waits_until_its_ancestors_are_in_an_earlier_batch() -> None:
    parent, child, other = shard(0), shard(1), shard(2)
    waiting = [
        chunk(parent, [1, 2]),
        chunk(other, [1]),
        chunk(child, [3], ancestors=[parent]),
        chunk(other, [4]),
    ]
    first, rest = take(waiting, BatchLimit())
    assert [one.shard for one in first] == [parent, other]
    second, rest = take(rest, BatchLimit())
    assert [one.shard for one in second] == [child, other]
    assert rest == []


@FAST
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=4), limits)
def test_the_ancestors_go_first_however_their_arrival_times_disagree(
    arrivals: list[list[int]], limit: BatchLimit
) -> None:
    family = [shard(number) for number in range(len(arrivals))]
    rest = [chunk(key, arrivals[n], ancestors=family[:n]) for n, key in enumerate(family)]
    rest.append(chunk(shard(9), [4]))
    handed: list[int] = []
    while rest:
        taken, rest = take(rest, limit)
        (related,) = {one.shard for one in taken} - {shard(9)} or {None}
        assert taken, "it stands still"
        handed += [] if related is None else [family.index(related)]
    assert handed == sorted(handed)
