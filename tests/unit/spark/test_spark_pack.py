"""Spreading rows over partitions: balanced, in order, and never too large for Spark."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers_spark.chunks import Chunk, divided, pack
from kinesis_publishers_spark.limits import balanced
from kinesis_publishers_spark.partitions import PrefetchedPartition
from tests.examples import examples
from tests.unit.spark.spark_builders import MIB, chunk, numbers_in, shard

if TYPE_CHECKING:
    import pyarrow as pa

# Slices of one buffer: a gigabyte of payloads would say no more.
LARGEST = bytes(10 * MIB)


def sizes(partitions: list[list[pa.RecordBatch]]) -> list[int]:
    return [sum(rows.nbytes for rows in one) for one in partitions]


def chunks_of(payload_sizes: list[int], *, shards: int = 4, per_chunk: int = 5) -> list[Chunk]:
    """Return chunks of consecutive records, dealt to the shards in turn."""
    chunks = []
    for index, start in enumerate(range(0, len(payload_sizes), per_chunk)):
        part = payload_sizes[start : start + per_chunk]
        payloads = [LARGEST[:size] for size in part]
        chunks.append(chunk(shard(index % shards), range(start, start + len(part)), payloads))
    return chunks


def test_nothing_needs_no_partition() -> None:
    assert pack([], 8) == []


def test_a_small_batch_is_one_partition_for_any_parallelism() -> None:
    partitions = pack(chunks_of([100] * 40), 64)
    assert len(partitions) == 1
    assert len(numbers_in(partitions[0])) == 40


def test_a_batch_worth_it_uses_every_core_evenly() -> None:
    partitions = pack(chunks_of([MIB // 2] * 64, shards=16, per_chunk=4), 8)
    assert len(partitions) == 8
    assert max(sizes(partitions)) < 1.5 * min(sizes(partitions))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 8, 11, 16])
def test_parallelism_is_an_upper_bound_while_partitions_stay_small(parallelism: int) -> None:
    for count in (3, 12, 24, 31):
        partitions = pack(chunks_of([MIB - 100] * count), parallelism)
        too_large_for_fewer = -(-sum(sizes(partitions)) // (16 * MIB))
        assert len(partitions) <= max(parallelism, too_large_for_fewer)


def test_size_demands_more_partitions_than_cores() -> None:
    partitions = pack(chunks_of([MIB] * 100), 2)
    assert 7 <= len(partitions) <= 10
    assert max(sizes(partitions)) <= 32 * MIB


def test_no_partition_exceeds_what_spark_takes_even_with_the_largest_records() -> None:
    payload_sizes = [10 * MIB] * 7 + [100] * 50 + [10 * MIB, 3, 10 * MIB, 10 * MIB]
    for parallelism in (1, 3, 8):
        partitions = pack(chunks_of(payload_sizes, shards=2, per_chunk=20), parallelism)
        assert len(numbers_in(r for one in partitions for r in one)) == len(payload_sizes)
        for rows in partitions:
            assert len(PrefetchedPartition.of(rows).ipc) <= 32 * MIB


def test_large_records_that_stand_together_are_torn_apart() -> None:
    large_in_the_middle = [10] * 50 + [9 * MIB] * 4 + [10] * 50
    partitions = pack(chunks_of(large_in_the_middle, shards=1, per_chunk=104), 1)
    assert max(sizes(partitions)) <= 28 * MIB


def test_a_single_record_beyond_every_limit_is_a_partition_of_its_own() -> None:
    assert [len(one) for one in pack([chunk(shard(0), [1], [LARGEST * 4])], 4)] == [1]


@settings(max_examples=examples(40))
@given(
    payload_sizes=st.lists(
        st.one_of(st.integers(0, 2000), st.integers(MIB // 4, 4 * MIB)), min_size=1, max_size=25
    ),
    shards=st.integers(1, 4),
    per_chunk=st.integers(1, 9),
    parallelism=st.integers(1, 12),
)
def test_every_row_is_packed_once_and_every_shard_keeps_its_order(
    payload_sizes: list[int], shards: int, per_chunk: int, parallelism: int
) -> None:
    chunks = chunks_of(payload_sizes, shards=shards, per_chunk=per_chunk)
    partitions = pack(chunks, parallelism)
    rows = numbers_in(piece for one in partitions for piece in one)
    assert sorted(number for _, number in rows) == list(range(len(payload_sizes)))
    by_shard = defaultdict(list)
    for shard_id, number in rows:
        by_shard[shard_id].append(number)
    assert all(a < b for numbers in by_shard.values() for a, b in pairwise(numbers))
    assert all(partitions)
    # Shards of half a partition and a bit cannot share one, nor the last pieces of a cut one.
    assert len(partitions) <= max(parallelism, 3 * -(-sum(sizes(partitions)) // (24 * MIB)))


@pytest.mark.parametrize("most", [1, 3, 5, 7, 40, 41])
def test_a_partition_is_divided_into_some_of_so_many_rows_in_their_order(most: int) -> None:
    (rows,) = pack(chunks_of([100] * 40, per_chunk=5), 4)
    parts = list(divided(rows, most))
    counts = [sum(one.num_rows for one in part) for part in parts]
    assert counts == [most] * (40 // most) + [40 % most] * (40 % most > 0)
    assert [number for part in parts for number in numbers_in(part)] == numbers_in(rows)


def test_packing_twice_gives_the_same_partitions() -> None:
    chunks = chunks_of([MIB // 3] * 40)
    one, other = pack(chunks, 5), pack(tuple(chunks), 5)
    assert [[rows.to_pylist() for rows in part] for part in one] == [
        [rows.to_pylist() for rows in part] for part in other
    ]


def test_the_rows_of_a_shard_stay_together() -> None:
    partitions = pack(chunks_of([MIB] * 20, shards=4), 16)
    assert len(partitions) == 4
    for rows in partitions:
        assert len({shard_id for shard_id, _ in numbers_in(rows)}) == 1


def test_a_shard_that_is_too_large_gets_partitions_of_its_own_in_its_order() -> None:
    small = chunk(shard(0), [1], [b"x"])
    large = chunk(shard(1), range(40), [LARGEST[:MIB]] * 40)
    partitions = pack([small, large], 8)
    assert [len(numbers_in(rows)) > 0 for rows in partitions] == [True] * len(partitions)
    numbers = [
        n for rows in partitions for name, n in numbers_in(rows) if name == shard(1).shard_id
    ]
    assert numbers == list(range(40))
    assert max(sizes(partitions)) <= 24 * MIB


def test_nothing_needs_no_task() -> None:
    assert balanced([], [], 4) == []


def test_little_is_one_task() -> None:
    assert balanced("abc", [10, 20, 30], 4) == [("a", "b", "c")]


def test_much_is_spread_by_its_size() -> None:
    sizes = [30 * MIB, 10 * MIB, 10 * MIB, 10 * MIB]
    assert balanced("abcd", sizes, 2) == [("a",), ("b", "c", "d")]


def test_where_sizes_are_unknown_every_task_has_as_many() -> None:
    assert balanced("abcde", None, 2) == [("a", "c", "e"), ("b", "d")]


@given(
    sizes=st.lists(st.integers(0, 50 * MIB), max_size=40),
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


@given(sizes=st.lists(st.integers(3 * MIB, 50 * MIB), min_size=2, max_size=40))
def test_no_group_is_larger_than_the_smallest_by_more_than_one_item(sizes: list[int]) -> None:
    loads = [sum(group) for group in balanced(sizes, sizes, 4)]
    assert max(loads) - min(loads) <= max(sizes)
