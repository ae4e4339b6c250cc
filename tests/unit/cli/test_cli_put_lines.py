"""Records to be written, split as their bytes come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers.cli.put.inputs import lines
from kinesis_publishers.cli.shared.event_loop import read_blocks

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1024 * 1024


async def split(*blocks: bytes, is_whole: bool = False) -> list[list[bytes]]:
    """Return the records of blocks, by the block in which they end."""

    async def read() -> AsyncIterator[bytes]:
        for block in blocks:
            yield block

    return [[line for line, _ in group] async for group in lines(read(), is_whole=is_whole)]


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_the_blocks_in_which_they_come(blocks: list[bytes]) -> None:
    found = [line for group in asyncio.run(split(*blocks)) for line in group]
    *ended, last = b"".join(blocks).split(b"\n")
    assert found == [line.removesuffix(b"\r") for line in ended] + ([last] if last else [])


async def test_lines_end_with_lf_or_crlf_and_an_empty_one_is_an_empty_record() -> None:
    groups = await split(b"a\r", b"\n\nb\rc\r\r\nd\r")
    assert groups == [[], [b"a", b"", b"b\rc\r"], [b"d\r"]]
    assert await split(b"a\n") == [[b"a"]]


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_record_without_an_end_is_noticed_before_it_fills_the_memory(
    tmp_path: Path, is_whole: bool
) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"\n" + bytes(12 * _MIB))
    with path.open("rb") as file:
        groups = lines(read_blocks(file), is_whole=is_whole)
        records = [line async for group in groups for line, _ in group]
        assert len(records[-1]) > 10 * _MIB
        assert file.tell() < 11 * _MIB


async def test_a_whole_keeps_its_line_feeds_and_may_be_empty() -> None:
    assert await split(b"a\n", b"\nb", is_whole=True) == [[], [], [b"a\n\nb"]]
    assert await split(is_whole=True) == [[b""]]
