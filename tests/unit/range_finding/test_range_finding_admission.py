"""A limit for all shards together is held to the record, and every shard has its turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.readers.range_ends.rules import ReadLimit, Weight
from kinesis_publishers.readers.range_ends.rules import shares as weighted_shares

SHARDS = st.lists(st.lists(st.integers(0, 50), max_size=12), max_size=8)


def shares(sizes: list[list[int]], limit: ReadLimit, *, first: int = 0) -> list[int]:
    """Return the shares of records that are no aggregates."""
    return weighted_shares([list(map(Weight, of)) for of in sizes], limit, first=first)


def test_without_a_limit_everything_is_admitted() -> None:
    assert shares([[1, 2], [], [3]], ReadLimit()) == [2, 0, 1]


def test_shards_share_evenly_and_what_one_leaves_goes_to_the_others() -> None:
    sizes = [[1] * 100, [1] * 2, [1] * 100]
    assert shares(sizes, ReadLimit(records=30)) == [18, 2, 10]


def test_a_small_limit_goes_round() -> None:
    sizes = [[1] * 5, [1] * 5, [1] * 5]
    limit = ReadLimit(records=1)
    assert [shares(sizes, limit, first=turn) for turn in range(3)] == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
    ]


def test_a_record_that_exceeds_the_limit_goes_through_alone() -> None:
    limit = ReadLimit(payload_bytes=10)
    assert shares([[4, 100], [3]], limit) == [1, 1]
    assert shares([[100], [3]], limit) == [1, 0]
    assert shares([[100], [3]], limit, first=1) == [0, 1]


def test_an_aggregate_counts_for_what_is_inside_and_is_not_split() -> None:
    weights = [Weight(1, 3), Weight(1, 1), Weight(1, 4), Weight(1, 1)]
    admitted = [
        weighted_shares([weights], ReadLimit(records=limit)) for limit in (1, 3, 4, 7, 8, 9)
    ]
    assert admitted == [[1], [1], [2], [2], [3], [4]]


def test_an_aggregate_that_exceeds_the_limit_goes_through_alone() -> None:
    weights = [[Weight(1, 5)], [Weight(1)]]
    assert weighted_shares(weights, ReadLimit(records=2)) == [1, 0]
    assert weighted_shares(weights, ReadLimit(records=2), first=1) == [0, 1]


@given(
    sizes=SHARDS,
    records=st.one_of(st.none(), st.integers(1, 30)),
    payload_bytes=st.one_of(st.none(), st.integers(1, 200)),
    first=st.integers(0, 7),
)
def test_the_limit_is_never_exceeded_and_something_always_goes_through(
    sizes: list[list[int]], records: int | None, payload_bytes: int | None, first: int
) -> None:
    limit = ReadLimit(records=records, payload_bytes=payload_bytes)
    admitted = shares(sizes, limit, first=first % len(sizes) if sizes else 0)
    taken = [size for of, count in zip(sizes, admitted, strict=True) for size in of[:count]]
    assert all(0 <= count <= len(of) for of, count in zip(sizes, admitted, strict=True))
    assert bool(taken) == any(sizes)
    assert records is None or len(taken) <= records
    assert payload_bytes is None or len(taken) == 1 or sum(taken) <= payload_bytes


@given(sizes=SHARDS, records=st.integers(1, 30), payload_bytes=st.integers(1, 200))
def test_what_would_still_fit_is_not_left_out(
    sizes: list[list[int]], records: int, payload_bytes: int
) -> None:
    admitted = shares(sizes, ReadLimit(records=records, payload_bytes=payload_bytes))
    left = payload_bytes - sum(sum(of[:n]) for of, n in zip(sizes, admitted, strict=True))
    if sum(admitted) < records:
        nexts = [of[n] for of, n in zip(sizes, admitted, strict=True) if n < len(of)]
        assert all(size > left for size in nexts)
