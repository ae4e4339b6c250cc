"""The live table of tail on a terminal: its frames, from the first to the one that stays."""

from __future__ import annotations

import asyncio
import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kinesis_publishers import KinesisDataFetcher
from kinesis_publishers.cli.tail.session import TailSession
from kinesis_publishers.cli.tail.table import LiveTable
from kinesis_publishers.clock import SystemClock

if TYPE_CHECKING:
    from kinesis_publishers.engine.delivery import ShardStatus
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_ORDERS = "orders"
_CONTROL = re.compile(r"\x1b\[[0-9?;]*[a-zA-Z]|\r")
_READ = {
    "kinesis.stream.initpos": "TRIM_HORIZON",
    "kinesis.shard.getrecords.intervalmillis": "200",
}


class Terminal:
    """A live table on a terminal of 120 columns, and what was drawn on it."""

    def __init__(self, newest: int = 0) -> None:
        self._screen = io.StringIO()
        console = Console(
            file=self._screen, force_terminal=True, width=120, height=50, legacy_windows=False
        )
        self.clock = SystemClock()
        self.table = LiveTable(console, self.clock, newest=newest)

    def frames(self) -> list[str]:
        """Return what was drawn, one text for each time."""
        text = _CONTROL.sub("", self._screen.getvalue())
        return re.split(r"^ Shard .*$", text, flags=re.MULTILINE)[1:]

    def shards(self, frame: str) -> dict[str, tuple[str, str]]:
        """Return the state and the distance of each shard in ``frame``."""
        cells = [re.split(r" {2,}", line.strip()) for line in frame.splitlines()]
        return {one[0]: (one[1], one[5]) for one in cells if one[0].startswith("shardId")}

    async def run(self, server: LocalKinesis, session: TailSession) -> None:
        properties = server.properties(_ORDERS) | _READ
        async with (
            asyncio.timeout(30),
            KinesisDataFetcher.from_properties(properties, session) as fetcher,
        ):
            session.begin(fetcher)
            await self.table.run(fetcher)


async def test_the_table_that_stays_says_how_far_each_shard_was_read(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream(_ORDERS, 2)
    terminal = Terminal()
    session = TailSession(terminal.table, until=terminal.clock.now())
    await terminal.run(local_kinesis, session)
    assert terminal.shards(terminal.frames()[-1]) == {
        "shardId-000000000000": ("stopped", "0 ms"),
        "shardId-000000000001": ("stopped", "0 ms"),
    }


async def test_in_the_table_that_stays_a_shard_that_has_ended_has_ended(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream(_ORDERS, 2)
    local_kinesis.reshard(_ORDERS, 1)
    terminal = Terminal()
    session = TailSession(terminal.table, until=terminal.clock.now())
    await terminal.run(local_kinesis, session)
    assert terminal.shards(terminal.frames()[-1]) == {
        "shardId-000000000000": ("ended", "-"),
        "shardId-000000000001": ("ended", "-"),
        "shardId-000000000002": ("stopped", "0 ms"),
    }


class FinishOne(TailSession):
    """Finishes the first shard, and stops when the table has shown that."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal.table)
        self._terminal = terminal
        self._reader: KinesisDataFetcher | None = None

    def begin(self, fetcher: KinesisDataFetcher) -> None:
        super().begin(fetcher)
        self._reader = fetcher

    def observe(self, status: ShardStatus) -> None:
        super().observe(status)
        assert self._reader is not None
        if status.shard.shard_id == "shardId-000000000000":
            self._reader.finish_shard(status.shard.key)
        if any("stopped" in frame for frame in self._terminal.frames()):
            self.stop()


async def test_a_shard_that_is_read_no_further_is_shown_as_stopped_among_the_others(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream(_ORDERS, 2)
    terminal = Terminal()
    await terminal.run(local_kinesis, FinishOne(terminal))
    frame = next(frame for frame in terminal.frames() if "stopped" in frame)
    assert terminal.shards(frame) == {
        "shardId-000000000000": ("stopped", "0 ms"),
        "shardId-000000000001": ("reading", "0 ms"),
    }


@pytest.mark.parametrize("payload", [b"x" * 1_000_000, b"\xff" * 1_000_000])
async def test_of_a_large_record_no_more_is_kept_than_a_terminal_can_show(
    local_kinesis: LocalKinesis, payload: bytes
) -> None:
    local_kinesis.create_stream(_ORDERS)
    local_kinesis.put_many(_ORDERS, [("k", payload)])
    terminal = Terminal(newest=1)
    session = TailSession(terminal.table, max_records=1)
    await terminal.run(local_kinesis, session)
    (kept,) = terminal.table.newest
    assert len(kept) < 5000
    assert f"{_ORDERS}/shardId-000000000000  k  " in terminal.frames()[-1]
