"""The picture of a tail on a terminal, made of the figures of one moment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from math import ceil
from typing import Any, Final, NamedTuple

from attrs import evolve, frozen
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from kinesis_publishers.cli.shared import formats
from kinesis_publishers.cli.shared.console import add_row, printable
from kinesis_publishers.model import ShardKey, StartingPosition
from kinesis_publishers.model.sources import region_of

# What a shard takes in a second.
_RECORDS_LIMIT: Final = 1000
_BYTES_LIMIT: Final = 1024 * 1024
# Hot is near the limit, or far above the mean of the others and not idle.
_NEAR_LIMIT, _FAR_ABOVE, _NOT_IDLE = 0.8, 4, 0.1
# Further behind, what is read now was written at another rate.
_TIP_SECONDS: Final = 10.0
_LATE_SECONDS: Final = 60.0
_BARS: Final = "▁▂▃▄▅▆▇█"
_STYLES: Final = {"hot": "bold magenta", "behind": "bold red", "stopped": "yellow"}
_NUMBERS: Final = frozenset({"Records/s", "Bytes/s", "Behind", "Records"})


class Amount(NamedTuple):
    """How much is read, in all or per second; an aggregate is one of the ``stored``."""

    records: float = 0
    payload_bytes: float = 0
    stored: float = 0

    @classmethod
    def sum(cls, amounts: Iterable[Amount], seconds: float = 1) -> Amount:
        return cls(*(sum(column) / seconds for column in zip(cls(), *amounts, strict=True)))

    @property
    def load(self) -> float:
        """How much a rate is of what a shard takes; partition keys are not counted."""
        return max(self.stored / _RECORDS_LIMIT, self.payload_bytes / _BYTES_LIMIT)


@frozen(kw_only=True)
class ShardRow:
    """One shard as the table shows it.

    Attributes:
        state: ``reading``, ``waiting`` (for its parents), ``stopped`` or ``ended``; the screen also
            has ``hot`` and ``behind`` in place of ``reading``.
        trend: the numbers of records in equal spans of time, the newest last.
        payload: the newest payload, as text.
        name: what the screen calls the shard.
    """

    key: ShardKey
    state: str
    records: int
    rate: Amount
    lag_seconds: float | None
    position: StartingPosition
    trend: Sequence[float] = ()
    payload: str = ""
    name: str = ""


# The columns from left to right: the minimum width, the order in which they are given up, and what
# they show.
_COLUMNS: Final[dict[str, tuple[int, int, Callable[[ShardRow], str | Text]]]] = {
    "Shard": (5, 0, lambda row: row.name),
    "State": (7, 4, lambda row: Text(row.state, _STYLES.get(row.state, ""))),
    "Records/s": (9, 1, lambda row: formats.format_rate(row.rate.records)),
    "Bytes/s": (10, 5, lambda row: formats.format_bytes(row.rate.payload_bytes)),
    "Behind": (8, 2, lambda row: _behind(row.lag_seconds)),
    "Trend": (10, 6, lambda row: _sparkline(row.trend)),
    "Records": (11, 8, lambda row: f"{row.records:,}"),
    "Position": (15, 7, lambda row: _position(row.position)),
    "Last payload": (15, 3, lambda row: _line(row.payload)),
}
_SORTED: Final[dict[str, Callable[[ShardRow], Any]]] = {
    "Shard": lambda row: (row.key.stream_name, row.key.shard_id),
    "Records/s": lambda row: -row.rate.records,
    "Bytes/s": lambda row: -row.rate.payload_bytes,
    "Behind": lambda row: -(row.lag_seconds or 0),
    "Records": lambda row: -row.records,
}
ORDERS: Final = tuple(_SORTED)
"""The columns by which the rows can be sorted."""


@frozen(kw_only=True)
class Screen:
    """The whole picture: a title, a row for each shard, the newest records, the keys.

    Attributes:
        place: where the streams are, if it is not a region of AWS.
        newest: lines below the table, which are cut to the width.
        order: one of :data:`ORDERS`.
        height: the number of lines; ``None`` for no limit.
    """

    begin: StartingPosition
    place: str | None = None
    rows: Sequence[ShardRow] = ()
    elapsed_seconds: float = 0.0
    newest: Sequence[str] = ()
    order: str = ORDERS[0]
    is_reversed: bool = False
    is_paused: bool = False
    has_keys: bool = False
    height: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            yield Text("Looking for shards ...")
            return
        rows, newest = self._sorted(), self.newest
        if self.height is not None:
            # Without the title, the headings, the sums and the keys.
            room = self.height - 6 - self.has_keys
            newest = newest[max(0, len(newest) - max(0, room // 2)) :]
            room -= len(newest)
            rows = rows if len(rows) <= room else rows[: max(1, room - 1)]
        yield self._title()
        yield self._table(rows, options.max_width)
        if hidden := len(self.rows) - len(rows):
            yield _line(f"... and {formats.counted(hidden, 'more shard')}", "dim")
        yield from map(_line, newest)
        if self.has_keys:
            arrow = "↑" if (self.order == "Shard") is not self.is_reversed else "↓"
            pause = "resume" if self.is_paused else "pause"
            yield _line(f"s sort: {self.order} {arrow}   r reverse   p {pause}   q quit", "dim")

    def _sorted(self) -> list[ShardRow]:
        loads = [row.rate.load for row in self.rows if row.state == "reading"]
        with_stream = len({row.key.stream_arn for row in self.rows}) > 1
        rows = [
            evolve(
                row, state=_state(row, loads), name=_short_name(row.key, with_stream=with_stream)
            )
            for row in self.rows
        ]
        rows.sort(key=_SORTED[self.order], reverse=self.is_reversed)
        # Shards that still move come first: a terminal that is too small cuts the end.
        return sorted(rows, key=lambda row: row.state == "ended")

    def _title(self) -> Table:
        streams = ", ".join(dict.fromkeys(row.key.stream_name for row in self.rows))
        place = self.place or region_of(self.rows[0].key.stream_arn)
        shards = formats.counted(len(self.rows), "shard")
        title = " · ".join((streams, place, f"from {_position(self.begin)}", shards))
        time = str(timedelta(seconds=int(self.elapsed_seconds)))
        line = Table.grid(Column(ratio=1), expand=True, padding=(0, 1, 0, 0))
        line.add_row(_line(title, "bold"), Text(" PAUSED " * self.is_paused, "reverse"), Text(time))
        return line

    def _table(self, rows: Sequence[ShardRow], width: int) -> Table:
        widths = _widths(width, max(len(row.name) for row in rows))
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, footer_style="bold")
        table.show_footer = len(self.rows) > 1
        lags = [row.lag_seconds for row in self.rows if row.lag_seconds is not None]
        total = evolve(
            rows[0],
            name="total",
            rate=Amount.sum(row.rate for row in self.rows),
            lag_seconds=max(lags, default=None),
            records=sum(row.records for row in self.rows),
        )
        cells = {heading: _COLUMNS[heading][-1] for heading in widths}
        for heading, cell in cells.items():
            table.add_column(
                Text(heading, "underline" if heading == self.order else ""),
                cell(total) if heading in ("Shard", *_NUMBERS) else "",
                width=widths[heading],
                justify="right" if heading in _NUMBERS else "left",
                no_wrap=True,
            )
        for row in rows:
            style = "dim" if row.state in ("ended", "waiting") else ""
            add_row(table, *(cell(row) for cell in cells.values()), style=style)
        return table


def _state(row: ShardRow, loads: Sequence[float]) -> str:
    """Return the state to show; ``loads`` are those of all shards being read."""
    lag, load = row.lag_seconds, row.rate.load
    if row.state != "reading" or lag is None:
        return row.state
    if lag >= _LATE_SECONDS:
        return "behind"
    others = (sum(loads) - load) / max(1, len(loads) - 1)
    is_outlier = len(loads) > 1 and load > _FAR_ABOVE * others and load >= _NOT_IDLE
    return "hot" if lag <= _TIP_SECONDS and (load >= _NEAR_LIMIT or is_outlier) else "reading"


def _widths(width: int, name: int) -> dict[str, int]:
    """Return the columns for which there is room, from left to right."""
    least = {heading: wide for heading, (wide, *_) in _COLUMNS.items()}
    least["Shard"] = max(least["Shard"], name)
    left, chosen = width + 1, set()
    for heading, (_, rank, _) in sorted(_COLUMNS.items(), key=lambda one: one[1][1]):
        # The last ones come only where they leave the payload room.
        if least[heading] < left - (13 if rank > 6 else 0):
            chosen.add(heading)
            left -= least[heading] + 1
    least["Last payload"] += left
    return {heading: wide for heading, wide in least.items() if heading in chosen}


def _short_name(key: ShardKey, *, with_stream: bool) -> str:
    number = key.shard_id.removeprefix("shardId-").lstrip("0") or "0"
    return _end(f"{key.stream_name}/{number}" if with_stream else number, 24)


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style, no_wrap=True, overflow="ellipsis")


def _behind(seconds: float | None) -> Text:
    if seconds is None:
        return Text("-")
    style = "green" if seconds < 1 else "yellow" if seconds < _LATE_SECONDS else "bold red"
    return Text(formats.format_behind(seconds).replace(" ", ""), style)


def _sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, as a part of the largest."""
    top = max(values, default=0) or 1
    return "".join(_BARS[ceil(value / top * (len(_BARS) - 1))] for value in values)


def _position(position: StartingPosition) -> str:
    if position.timestamp is not None:
        return f"{position.timestamp:%m-%d %H:%M:%SZ}"
    return _end(formats.describe_position(position), _COLUMNS["Position"][0])


def _end(text: str, width: int) -> str:
    """Return ``text``, or its end, which is the part that changes."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
