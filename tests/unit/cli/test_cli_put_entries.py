"""Records to be written: split, checked, and put together to calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import UserRecord
from kinesis_publishers.cli.put.entries import LineSplitter, batches, is_acceptable

_MIB = 1024 * 1024


def entry(data: bytes = b"x") -> UserRecord:
    return UserRecord(data=data, partition_key="k")


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_the_blocks_in_which_they_come(blocks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for block in blocks for line in splitter.split(block)] + splitter.end()
    whole = b"".join(blocks)
    expected = whole.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


def test_an_empty_line_is_an_empty_record_and_a_carriage_return_stays() -> None:
    splitter = LineSplitter()
    assert splitter.split(b"a\r\n\nb") == [b"a\r", b""]
    assert splitter.end() == [b"b"]
    assert splitter.end() == []


def test_a_call_takes_five_hundred_records() -> None:
    assert [len(batch) for batch in batches(entry() for _ in range(1001))] == [500, 500, 1]


def test_a_call_takes_five_mebibytes_and_a_larger_record_goes_alone() -> None:
    sizes = [2 * _MIB, 2 * _MIB, 2 * _MIB, 8 * _MIB, 1]
    found = [[len(one.data) for one in batch] for batch in batches(entry(bytes(n)) for n in sizes)]
    assert found == [[2 * _MIB, 2 * _MIB], [2 * _MIB], [8 * _MIB], [1]]


def test_no_stream_takes_more_than_ten_mebibytes_with_the_partition_key() -> None:
    assert is_acceptable(entry(bytes(10 * _MIB - 1)))
    assert not is_acceptable(entry(bytes(10 * _MIB)))


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_record_without_an_end_is_noticed_before_it_fills_the_memory(is_whole: bool) -> None:
    splitter = LineSplitter(is_whole=is_whole)
    splitter.split(b"\n" + bytes(10 * _MIB - 1))
    assert not splitter.is_too_long
    splitter.split(bytes(2))
    assert splitter.is_too_long


def test_a_whole_keeps_its_line_feeds_and_may_be_empty() -> None:
    splitter = LineSplitter(is_whole=True)
    assert (splitter.split(b"a\n"), splitter.split(b"\nb")) == ([], [])
    assert splitter.end() == [b"a\n\nb"]
    assert splitter.end() == [b""]
