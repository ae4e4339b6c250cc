"""Records to be written, split as their bytes come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.cli.put.inputs import Lines

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1024 * 1024


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_the_blocks_in_which_they_come(blocks: list[bytes]) -> None:
    splitter = Lines("-")
    lines = [line for block in blocks for line in splitter.split(block)] + splitter.end()
    *ended, last = b"".join(blocks).split(b"\n")
    assert lines == [line.removesuffix(b"\r") for line in ended] + ([last] if last else [])


def test_lines_end_with_lf_or_crlf_and_an_empty_one_is_an_empty_record() -> None:
    splitter = Lines("-")
    assert splitter.split(b"a\r") == []
    assert splitter.split(b"\n\nb\rc\r\r\nd\r") == [b"a", b"", b"b\rc\r"]
    assert splitter.end() == [b"d\r"]
    assert splitter.end() == []


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_record_without_an_end_is_noticed_before_it_fills_the_memory(
    tmp_path: Path, is_whole: bool
) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"\n" + bytes(12 * _MIB))
    lines = Lines(str(path), is_whole)
    records = [line async for group in lines.groups() for line, _ in group]
    assert len(records[-1]) > 10 * _MIB
    assert lines.read_bytes < 11 * _MIB


def test_a_whole_keeps_its_line_feeds_and_may_be_empty() -> None:
    splitter = Lines("-", is_whole=True)
    assert (splitter.split(b"a\n"), splitter.split(b"\nb")) == ([], [])
    assert splitter.end() == [b"a\n\nb"]
    assert splitter.end() == [b""]
