"""The live table of tail: what it counts, what it shows, and its frames on a terminal."""

from __future__ import annotations

import asyncio
import io
import re
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from rich.console import Console

from kinesis_publishers import (
    KinesisDataFetcher,
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.cli.shared.formats import describe_position, format_behind
from kinesis_publishers.cli.tail.screen import Amount, Screen, ShardRow
from kinesis_publishers.cli.tail.session import LiveTable, Meter
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_ORDERS = "orders"
_HEADINGS = {
    *("Shard", "State", "Records/s", "Bytes/s", "Behind", "Trend", "Records", "Position"),
    "Last_payload",
}
_CONTROL = re.compile(r"\x1b\[[0-9?;]*[a-zA-Z]|\r")
_READ = {
    "kinesis.stream.initpos": "TRIM_HORIZON",
    "kinesis.shard.getrecords.intervalmillis": "200",
}


def row(shard: int = 0, *, of: float = 0.0, lag: float | None = 0.0, **more: Any) -> ShardRow:
    """Return a shard that has ``of`` of the records that a shard takes."""
    given: dict[str, Any] = {
        "key": ShardKey(_ARN, f"shardId-{shard:012}"),
        "state": "reading",
        "records": 1_234_567,
        "rate": Amount(1000 * of, 1024 * of, 1000 * of),
        "lag_seconds": lag,
        "position": StartingPosition.after(SequenceNumber("4" * 55 + "7")),
        "payload": "{}",
    }
    return ShardRow(**given | more)


def drawn(*rows: ShardRow, width: int = 80, **how: Any) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(Screen(begin=StartingPosition.latest(), rows=rows, **how))
    return capture.get().splitlines()


def states(*rows: ShardRow) -> list[str]:
    return [line.split()[1] for line in drawn(*rows)[3 : 3 + len(rows)]]


def batch(count: int, **columns: Any) -> RecordBatch:
    shard = Shard(stream_arn=_ARN, shard_id="shardId-000000000000")
    return RecordBatch(
        shard=shard,
        requested_at=datetime(2026, 11, 22, tzinfo=UTC),
        payloads=[b"12345"] * count,
        sequence_numbers=[str(number) for number in range(count)],
        **columns,
    )


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    meter = Meter(100.0)
    meter.count(batch(1000), now=105.0)
    assert meter.rate(110.0) == Amount(100.0, 500.0, 100.0)
    meter.count(batch(10), now=114.0)
    assert meter.rate(115.0) == Amount(1.0, 5.0, 1.0)
    assert meter.records == 1010
    assert meter.rate(200.0) == Amount(0.0, 0.0, 0.0)


def test_a_rate_at_the_beginning_is_that_since_the_beginning() -> None:
    meter = Meter(100.0)
    meter.count(batch(100), now=100.1)
    assert meter.rate(100.1).records == 100.0
    assert meter.rate(104.0).records == 25.0


def test_an_aggregate_is_one_record_of_what_a_shard_takes() -> None:
    meter = Meter(0.0)
    aggregates = evolve(batch(4, sub_sequence_numbers=[0, 1, 0, 1]), sequence_numbers=[*"1122"])
    meter.count(aggregates, now=1.0)
    assert meter.rate(1.0) == Amount(4.0, 20.0, 2.0)


def test_the_trend_has_whole_spans_of_three_seconds_and_forgets_old_ones() -> None:
    meter = Meter(0.0)
    meter.count(batch(5), now=1.0)
    meter.count(batch(7), now=3.0)
    meter.count(batch(9), now=6.5)
    assert meter.trend(7.0) == [0] * 8 + [5, 7]
    assert meter.trend(35.0) == [7, 9] + [0] * 8
    meter.count(batch(1), now=60.0)
    assert meter.trend(63.0) == [0] * 9 + [1]


@pytest.mark.parametrize(
    ("loads", "hot"),
    [
        ([0.8], {0}),
        ([0.79], set()),
        ([0.3, 0.02, 0.02], {0}),
        ([0.3, 0.1, 0.1], set()),
        # Nothing to speak of.
        ([0.09, 0.001], set()),
        ([0.9, 0.9], {0, 1}),
    ],
)
def test_a_shard_is_hot_near_its_limit_or_far_above_the_others(
    loads: list[float], hot: set[int]
) -> None:
    found = states(*(row(number, of=load) for number, load in enumerate(loads)))
    assert {number for number, state in enumerate(found) if state == "hot"} == hot


def test_bytes_make_a_shard_hot_as_records_do() -> None:
    assert states(row(rate=Amount(1, 900_000, 1))) == ["hot"]


def test_what_is_read_behind_the_tip_makes_no_shard_hot() -> None:
    assert states(row(0, of=1.9, lag=11.0), row(1, of=1.9, lag=60.0)) == ["reading", "behind"]


@pytest.mark.parametrize(
    ("lag", "style"), [(0.9, "green"), (1.0, "yellow"), (59.9, "yellow"), (60.0, "bold red")]
)
def test_the_lag_has_a_colour(lag: float, style: str) -> None:
    console = Console(width=80, force_terminal=True, color_system="standard")
    screen = Screen(begin=StartingPosition.latest(), rows=[row(lag=lag)])
    (line,) = [line for line in console.render_lines(screen) if line[0].text.startswith("0")]
    shown = {segment.text.strip(): str(segment.style) for segment in line}
    assert shown[format_behind(lag).replace(" ", "")] == style


@pytest.mark.parametrize("width", range(24, 180, 3))
def test_a_heading_is_never_cut_and_a_line_never_longer_than_the_screen(width: int) -> None:
    _, headings, _, cells = drawn(row(), width=width)
    words = headings.replace("Last payload", "Last_payload").split()
    assert {"Shard", "Records/s"} <= set(words) <= _HEADINGS
    assert len(cells) <= width
    assert ("Last_payload" in words) == (width >= 40)


@pytest.mark.parametrize(
    ("order", "first"),
    [("Shard", 0), ("Records/s", 1), ("Bytes/s", 1), ("Behind", 2), ("Records", 2)],
)
def test_the_rows_are_sorted(order: str, first: int) -> None:
    rows = [row(0), row(1, of=0.5), row(2, lag=30.0, records=2_000_000)]
    assert drawn(*rows, order=order)[3].startswith(str(first))
    assert not drawn(*rows, order=order, is_reversed=True)[3].startswith(str(first))


@pytest.mark.parametrize("is_reversed", [False, True])
def test_shards_that_have_ended_stand_last(is_reversed: bool) -> None:
    rows = [row(0, state="ended"), row(1), row(2)]
    assert drawn(*rows, is_reversed=is_reversed)[5].split()[:2] == ["0", "ended"]


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


@pytest.mark.parametrize(
    ("lags", "end"),
    [
        ([], None),
        ([None], "largest lag 0 ms.\nEnded at an unknown distance from the tip."),
        ([90.0, 0.0], "largest lag 1 min 30 s.\nEnded at the tip."),
        ([0.0, 90.0], "largest lag 1 min 30 s.\nEnded 1 min 30 s behind the tip."),
    ],
)
def test_the_summary_says_where_it_ended(lags: list[float | None], end: str | None) -> None:
    clock = ManualClock()
    session = LiveTable(Console(), Screen(begin=StartingPosition.latest()), clock=clock)
    for lag in lags:
        status = ShardStatus(
            shard=batch(1).shard,
            progress=ShardProgress(position=StartingPosition.trim_horizon()),
            millis_behind_latest=None if lag is None else int(lag * 1000),
            read_until=None if lag is None else clock.now() - timedelta(seconds=lag),
        )
        session.observe(status)
    summary = session.summary()
    assert (summary is None) if end is None else str(summary).endswith(end)


class Terminal:
    """A live table on a terminal of 120 columns, and what was drawn on it."""

    def __init__(
        self, newest: int = 0, max_records: int | None = None, kind: type[LiveTable] = LiveTable
    ) -> None:
        self._screen = io.StringIO()
        console = Console(
            file=self._screen, force_terminal=True, width=120, height=50, legacy_windows=False
        )
        begin = Screen(begin=StartingPosition.trim_horizon())
        kept: deque[str] = deque(maxlen=newest)
        self.table = kind(console, begin, kept, clock=SystemClock(), max_records=max_records)

    def frames(self) -> list[str]:
        """Return what was drawn, one text for each time."""
        text = _CONTROL.sub("", self._screen.getvalue())
        return re.split(r"^Shard .*$", text, flags=re.MULTILINE)[1:]

    def shards(self, frame: str) -> dict[str, tuple[str, str]]:
        """Return the state and the distance of each shard in ``frame``."""
        rows = re.findall(r"^(\d+) +(\w+) .* (-|\d+ms) [▁-█]{10}", frame, re.MULTILINE)
        return {shard: (state, behind) for shard, state, behind in rows}

    async def run(self, server: LocalKinesis, **more: str) -> None:
        properties = server.properties(_ORDERS) | _READ | more
        reading = KinesisDataFetcher.from_properties(properties, self.table)
        async with asyncio.timeout(30), reading as self.table.fetcher:
            await self.table.run()


@pytest.mark.parametrize("named", [{}, {"kinesis.shards": f"{_ORDERS}:shardId-000000000002"}])
async def test_the_table_that_stays_says_how_far_each_shard_was_read_or_that_it_has_ended(
    local_kinesis: LocalKinesis, named: dict[str, str]
) -> None:
    local_kinesis.create_stream(_ORDERS, 2)
    local_kinesis.reshard(_ORDERS, 1)
    terminal = Terminal()
    named["kinesis.stream.endpos"] = "LATEST"
    await terminal.run(local_kinesis, **named)
    parents = {} if "kinesis.shards" in named else dict.fromkeys("01", ("ended", "-"))
    assert terminal.shards(terminal.frames()[-1]) == parents | {"2": ("stopped", "0ms")}


class FinishOne(LiveTable):
    """Finishes the first shard when both have answered; stops when the table has shown that."""

    frames: Callable[[], list[str]]

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._answered: set[str] = set()

    def observe(self, status: ShardStatus) -> None:
        super().observe(status)
        self._answered.add(status.shard.shard_id)
        if status.shard.shard_id == "shardId-000000000000" and len(self._answered) == 2:
            self.fetcher.finish_shard(status.shard.key)
        if any("stopped" in frame for frame in self.frames()):
            self.stop()


async def test_a_shard_that_is_read_no_further_is_shown_as_stopped_among_the_others(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream(_ORDERS, 2)
    terminal = Terminal(kind=FinishOne)
    assert isinstance(terminal.table, FinishOne)
    terminal.table.frames = terminal.frames
    await terminal.run(local_kinesis)
    frame = next(frame for frame in terminal.frames() if "stopped" in frame)
    assert terminal.shards(frame) == {
        "0": ("stopped", "0ms"),
        "1": ("reading", "0ms"),
    }


@pytest.mark.parametrize("payload", [b"x" * 1_000_000, b"\xff" * 1_000_000], ids=["text", "bytes"])
async def test_of_a_large_record_no_more_is_kept_than_a_terminal_can_show(
    local_kinesis: LocalKinesis, payload: bytes
) -> None:
    local_kinesis.create_stream(_ORDERS)
    local_kinesis.put_many(_ORDERS, [("k", payload)])
    terminal = Terminal(newest=1, max_records=1)
    await terminal.run(local_kinesis)
    (kept,) = terminal.table.newest
    assert len(kept) < 5000
    assert f"{_ORDERS}/shardId-000000000000  k  " in terminal.frames()[-1]
