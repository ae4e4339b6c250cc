"""The live table of tail: what it counts, what it shows, and its frames on a terminal."""

from __future__ import annotations

import asyncio
import io
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kinesis_publishers import KinesisDataFetcher, SequenceNumber, ShardKey, StartingPosition
from kinesis_publishers.cli.shared.formats import describe_position
from kinesis_publishers.cli.tail.session import TailSession
from kinesis_publishers.cli.tail.table import (
    LiveTable,
    Meter,
    Rate,
    ShardRow,
    render_tail,
)
from kinesis_publishers.clock import SystemClock

if TYPE_CHECKING:
    from kinesis_publishers.engine.delivery import ShardStatus
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_ORDERS = "orders"
_CONTROL = re.compile(r"\x1b\[[0-9?;]*[a-zA-Z]|\r")
_READ = {
    "kinesis.stream.initpos": "TRIM_HORIZON",
    "kinesis.shard.getrecords.intervalmillis": "200",
}


def row(shard: int, *, state: str = "reading", stream_arn: str = _ARN) -> ShardRow:
    return ShardRow(
        key=ShardKey(stream_arn, f"shardId-{shard:012}"),
        state=state,
        records=1_234_567,
        rate=Rate(1500.0, 1536.0),
        lag_seconds=None if state == "ended" else float(shard),
        position="4" * 56,
    )


def drawn(*rows: ShardRow, newest: tuple[str, ...] = (), width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(render_tail(rows, newest))
    return capture.get().splitlines()


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    meter = Meter(100.0)
    meter.count(1000, 5000, now=105.0)
    assert meter.rate(110.0) == Rate(100.0, 500.0)
    meter.count(10, 20, now=114.0)
    assert meter.rate(115.0) == Rate(1.0, 2.0)
    assert (meter.records, meter.payload_bytes) == (1010, 5020)
    assert meter.rate(200.0) == Rate(0.0, 0.0)


def test_a_rate_at_the_beginning_is_that_since_the_beginning() -> None:
    meter = Meter(100.0)
    meter.count(100, 100, now=100.1)
    assert meter.rate(100.1) == Rate(100.0, 100.0)
    assert meter.rate(104.0) == Rate(25.0, 25.0)


def test_shards_that_have_ended_stand_last() -> None:
    lines = drawn(row(0, state="ended"), row(1), row(2))
    shards = [line.split()[0] for line in lines if "shardId" in line]
    assert shards == ["shardId-000000000001", "shardId-000000000002", "shardId-000000000000"]


def test_the_last_line_sums_up_and_names_the_largest_distance() -> None:
    (total,) = [line.split() for line in drawn(row(1), row(2)) if "2 shards" in line]
    assert total == ["2", "shards", "2,469,134", "3,000", "3.0", "KiB", "2.0", "s"]


def test_all_but_the_position_fits_in_eighty_columns() -> None:
    (line,) = [line for line in drawn(row(1)) if "shardId" in line]
    assert "reading  1,234,567      1,500  1.5 KiB   1.0 s  44444" in line
    assert line.rstrip().endswith("…")


def test_streams_are_named_if_there_are_several() -> None:
    lines = drawn(row(1), row(1, stream_arn=f"{_ARN}-2"))
    assert [line.split()[0] for line in lines if "shardId" in line] == [
        "orders/shardId-000000000001",
        "orders-2/shardId-000000000001",
    ]


def test_a_newest_record_is_one_line_below_the_table() -> None:
    lines = drawn(row(1), newest=("[bold]x" * 100, "y"))
    assert lines[-2].startswith("[bold]x[bold]x")
    assert lines[-1].rstrip() == "y"


def test_before_shards_are_found_it_says_so() -> None:
    assert drawn() == ["Looking for shards ..."]


def test_a_position_is_a_record_an_instant_or_an_end_of_the_shard() -> None:
    instant = datetime(2026, 11, 22, tzinfo=UTC)
    positions = (
        StartingPosition.after(SequenceNumber("7")),
        StartingPosition.at_timestamp(instant),
        StartingPosition.trim_horizon(),
    )
    assert [describe_position(one) for one in positions] == [
        "7",
        "2026-11-22T00:00:00.000000Z",
        "TRIM_HORIZON",
    ]


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
