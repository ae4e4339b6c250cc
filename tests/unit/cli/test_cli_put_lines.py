"""Records to be written, split as their bytes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.cli.put.inputs import LineSplitter

_MIB = 1024 * 1024


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_the_blocks_in_which_they_come(blocks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for block in blocks for line in splitter.split(block)] + splitter.end()
    whole = b"".join(blocks)
    expected = whole.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


def test_lines_end_with_lf_or_crlf_and_an_empty_one_is_an_empty_record() -> None:
    splitter = LineSplitter()
    assert splitter.split(b"a\r") == []
    assert splitter.split(b"\n\nb\rc\r\r\nd\r") == [b"a", b"", b"b\rc\r"]
    assert splitter.end() == [b"d\r"]
    assert splitter.end() == []


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
