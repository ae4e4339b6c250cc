"""Ranges are spread evenly over few tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers_spark.chunks import balanced

_MIB = 1024 * 1024


def test_nothing_needs_no_task() -> None:
    assert balanced([], [], 4) == []


def test_little_is_one_task() -> None:
    assert balanced("abc", [10, 20, 30], 4) == [("a", "b", "c")]


def test_much_is_spread_by_its_size() -> None:
    sizes = [30 * _MIB, 10 * _MIB, 10 * _MIB, 10 * _MIB]
    assert balanced("abcd", sizes, 2) == [("a",), ("b", "c", "d")]


def test_where_sizes_are_unknown_every_task_has_as_many() -> None:
    assert balanced("abcde", None, 2) == [("a", "c", "e"), ("b", "d")]


@given(
    sizes=st.lists(st.integers(0, 50 * _MIB), max_size=40),
    parallelism=st.integers(1, 9),
    is_known=st.booleans(),
)
def test_each_item_is_in_one_group_in_order_and_no_group_is_empty(
    sizes: list[int], parallelism: int, is_known: bool
) -> None:
    items = list(range(len(sizes)))
    groups = balanced(items, sizes if is_known else None, parallelism)
    assert sorted(item for group in groups for item in group) == items
    assert all(group == tuple(sorted(group)) and group for group in groups)
    assert len(groups) <= parallelism
    assert groups == balanced(items, sizes if is_known else None, parallelism)


@given(sizes=st.lists(st.integers(3 * _MIB, 50 * _MIB), min_size=2, max_size=40))
def test_no_group_is_larger_than_the_smallest_by_more_than_one_item(sizes: list[int]) -> None:
    loads = [sum(group) for group in balanced(sizes, sizes, 4)]
    assert max(loads) - min(loads) <= max(sizes)
