"""The live table of shards; drawing only, from values."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from kinesis_publishers.cli.shared.formats import format_behind, format_bytes, format_rate, iso_utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinesis_publishers.model import ShardKey, StartingPosition

__all__ = ["Meter", "Rate", "ShardRow", "describe_position", "render_tail"]

_HEADINGS = ("Records", "Records/s", "Bytes/s", "Behind")


@frozen(kw_only=True)
class ShardRow:
    """One shard as the table shows it.

    Attributes:
        key: which shard.
        state: ``reading``, ``waiting`` (for its parents), ``stopped`` (it is read no further) or
            ``ended``.
        records: how many were read.
        rate: how fast.
        millis_behind_latest: how far behind the tip; ``None`` if it is not known.
        position: where reading goes on, in words.
    """

    key: ShardKey
    state: str
    records: int
    rate: Rate
    millis_behind_latest: int | None
    position: str


def describe_position(position: StartingPosition) -> str:
    """Return a position in words: the record or the instant after which reading goes on."""
    if position.sequence_number is not None:
        return str(position.sequence_number)
    if position.timestamp is not None:
        return iso_utc(position.timestamp)
    return position.type.value


def render_tail(rows: Sequence[ShardRow], newest: Sequence[str]) -> RenderableType:
    """Return the table, and below it the newest records, as lines that are cut to the width."""
    if not rows:
        return Text("Looking for shards ...")
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in newest]
    return Group(_table(rows), *lines)


def _order(row: ShardRow) -> tuple[bool, str, str]:
    return row.state == "ended", row.key.stream_name, row.key.shard_id


def _table(rows: Sequence[ShardRow]) -> Table:
    # Shards that still move come first: a terminal that is too small cuts the end.
    ordered = sorted(rows, key=_order)
    table = Table(
        box=box.SIMPLE_HEAD, show_footer=len(rows) > 1, pad_edge=False, padding=(0, 1, 0, 0)
    )
    total = sum((row.rate for row in rows), Rate())
    behind = [row.millis_behind_latest for row in rows if row.millis_behind_latest is not None]
    footers = (
        f"{sum(row.records for row in rows):,}",
        format_rate(total.records),
        format_bytes(total.payload_bytes),
        format_behind(max(behind, default=None)),
    )
    table.add_column("Shard", footer=f"{len(rows)} shards", no_wrap=True)
    table.add_column("State", no_wrap=True)
    for heading, footer in zip(_HEADINGS, footers, strict=True):
        table.add_column(heading, footer=footer, justify="right", no_wrap=True)
    # The only column that may be narrowed; its text is cut all the same, and not wrapped.
    table.add_column("Position")
    streams = {row.key.stream_arn for row in rows}
    for row in ordered:
        table.add_row(
            str(row.key) if len(streams) > 1 else row.key.shard_id,
            row.state,
            f"{row.records:,}",
            format_rate(row.rate.records),
            format_bytes(row.rate.payload_bytes),
            format_behind(row.millis_behind_latest),
            Text(row.position, no_wrap=True, overflow="ellipsis"),
        )
    return table


_WINDOW_SECONDS: Final = 10.0
# A rate over a shorter time would jump.
_SHORTEST_SECONDS: Final = 1.0


@frozen
class Rate:
    """How fast something is read.

    Attributes:
        records: records per second.
        payload_bytes: payload bytes per second.
    """

    records: float = 0.0
    payload_bytes: float = 0.0

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.records + other.records, self.payload_bytes + other.payload_bytes)


@define
class Meter:
    """Counts what is read from one shard.

    Args:
        started_at: when reading began, in seconds of the monotonic clock.

    Attributes:
        records: all records so far.
        payload_bytes: the bytes of all payloads so far.
    """

    _started_at: float
    records: int = field(default=0, init=False)
    payload_bytes: int = field(default=0, init=False)
    _recent: deque[tuple[float, int, int]] = field(factory=deque, init=False)

    def count(self, records: int, payload_bytes: int, *, now: float) -> None:
        """Add what was read at ``now``, in seconds of the monotonic clock."""
        self.records += records
        self.payload_bytes += payload_bytes
        self._recent.append((now, records, payload_bytes))
        self._forget(now)

    def rate(self, now: float) -> Rate:
        """Return the rate over the last ten seconds, or since reading began."""
        self._forget(now)
        seconds = min(_WINDOW_SECONDS, max(_SHORTEST_SECONDS, now - self._started_at))
        return Rate(
            sum(records for _, records, _ in self._recent) / seconds,
            sum(payload_bytes for _, _, payload_bytes in self._recent) / seconds,
        )

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - _WINDOW_SECONDS:
            self._recent.popleft()
