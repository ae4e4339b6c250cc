"""The live table of a tail on a terminal: what it counts, and how it is drawn twice a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import define, field, frozen
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kinesis_publishers.cli.shared.formats import (
    describe_position,
    format_behind,
    format_bytes,
    format_rate,
    plain_line,
)
from kinesis_publishers.cli.tail.session import RecordView
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.model import RecordBatch, ShardKey, ShardProgress
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.tasks import TaskScope

_PERIOD_SECONDS: Final = 0.5
_WINDOW_SECONDS: Final = 10.0
# A rate over a shorter time would jump.
_SHORTEST_SECONDS: Final = 1.0
# Wider than any terminal: escaping a whole payload would keep the loop that reads from reading.
_SHOWN_BYTES: Final = 1000


@frozen
class Rate:
    """How fast something is read, per second."""

    records: float = 0.0
    payload_bytes: float = 0.0

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.records + other.records, self.payload_bytes + other.payload_bytes)


@define
class Meter:
    """Counts what is read from one shard; times are in seconds of the monotonic clock."""

    _started_at: float
    records: int = field(default=0, init=False)
    payload_bytes: int = field(default=0, init=False)
    _recent: deque[tuple[float, Rate]] = field(factory=deque, init=False)

    def count(self, records: int, payload_bytes: int, *, now: float) -> None:
        """Add what was read at ``now``."""
        self.records += records
        self.payload_bytes += payload_bytes
        self._recent.append((now, Rate(records, payload_bytes)))
        self._forget(now)

    def rate(self, now: float) -> Rate:
        """Return the rate over the last ten seconds, or since reading began."""
        self._forget(now)
        seconds = min(_WINDOW_SECONDS, max(_SHORTEST_SECONDS, now - self._started_at))
        total = sum((one for _, one in self._recent), Rate())
        return Rate(total.records / seconds, total.payload_bytes / seconds)

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - _WINDOW_SECONDS:
            self._recent.popleft()


@frozen(kw_only=True)
class ShardRow:
    """One shard as the table shows it.

    Attributes:
        state: ``reading``, ``waiting`` (for its parents), ``stopped`` (it is read no further) or
            ``ended``.
        lag_seconds: how far behind the tip; ``None`` if it is not known.
        position: where reading continues, in words.
    """

    key: ShardKey
    state: str
    records: int
    rate: Rate
    lag_seconds: float | None
    position: str


def render_tail(rows: Sequence[ShardRow], newest: Iterable[str]) -> RenderableType:
    """Return the table, and below it the newest records, as lines that are cut to the width."""
    if not rows:
        return Text("Looking for shards ...")
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in newest]
    return Group(_table(rows), *lines)


def _order(row: ShardRow) -> tuple[bool, str, str]:
    return row.state == "ended", row.key.stream_name, row.key.shard_id


def _table(rows: Sequence[ShardRow]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, show_footer=len(rows) > 1, pad_edge=False, padding=(0, 1, 0, 0)
    )
    total = sum((row.rate for row in rows), Rate())
    behind = [row.lag_seconds for row in rows if row.lag_seconds is not None]
    footers = {
        "Records": f"{sum(row.records for row in rows):,}",
        "Records/s": format_rate(total.records),
        "Bytes/s": format_bytes(total.payload_bytes),
        "Behind": format_behind(max(behind, default=None)),
    }
    table.add_column("Shard", footer=f"{len(rows)} shards", no_wrap=True)
    table.add_column("State", no_wrap=True)
    for heading, footer in footers.items():
        table.add_column(heading, footer=footer, justify="right", no_wrap=True)
    # The only column that may be narrowed; its text is cut, and not wrapped.
    table.add_column("Position")
    streams = {row.key.stream_arn for row in rows}
    # Shards that still move come first: a terminal that is too small cuts the end.
    for row in sorted(rows, key=_order):
        table.add_row(
            str(row.key) if len(streams) > 1 else row.key.shard_id,
            row.state,
            f"{row.records:,}",
            format_rate(row.rate.records),
            format_bytes(row.rate.payload_bytes),
            format_behind(row.lag_seconds),
            Text(row.position, no_wrap=True, overflow="ellipsis"),
        )
    return table


class LiveTable(RecordView):
    """Counts records by shard, and keeps the newest ones.

    Args:
        newest: how many records are shown below the table.

    Attributes:
        newest: these records, a line each.
    """

    def __init__(self, console: Console, clock: Clock, *, newest: int) -> None:
        self._console = console
        self._clock = clock
        self._started_at = clock.monotonic()
        self._meters: dict[ShardKey, Meter] = {}
        # Of all shards that were read, also of those that no longer are.
        self._lags: dict[ShardKey, float | None] = {}
        self.newest: deque[str] = deque(maxlen=newest)
        self._has_ended = False

    async def show(self, batch: RecordBatch) -> None:
        meter = self._meters.setdefault(batch.shard.key, Meter(self._started_at))
        meter.count(len(batch), batch.payload_bytes, now=self._clock.monotonic())
        if kept := self.newest.maxlen:
            last = batch.slice(max(0, len(batch) - kept), len(batch))
            self.newest.extend(plain_line(one, longest=_SHOWN_BYTES) for one in last)

    def observe(self, status: ShardStatus) -> None:
        self._lags[status.shard.key] = status.lag_seconds(self._clock.now())

    async def run(self, fetcher: KinesisDataFetcher) -> None:
        # The last state stays on the terminal.
        with Live(console=self._console, auto_refresh=False) as live:
            try:
                async with TaskScope() as scope:
                    scope.spawn(self._draw(live, fetcher), name="draw the table")
                    await fetcher.run()
                    scope.cancel()
            finally:
                self._has_ended = True
                self._update(live, fetcher)

    async def _draw(self, live: Live, fetcher: KinesisDataFetcher) -> None:
        while True:
            self._update(live, fetcher)
            await self._clock.sleep(_PERIOD_SECONDS)

    def _update(self, live: Live, fetcher: KinesisDataFetcher) -> None:
        live.update(render_tail(self._rows(fetcher), self.newest), refresh=True)

    def _rows(self, fetcher: KinesisDataFetcher) -> list[ShardRow]:
        now = self._clock.monotonic()
        # It grows where no answer comes.
        reading = {one.shard.key: one.lag_seconds(self._clock.now()) for one in fetcher.statuses}
        lags = self._lags | reading
        rows = []
        for stream_arn, stream in fetcher.progress.items():
            for shard_id, progress in stream.shards.items():
                key = ShardKey(stream_arn, shard_id)
                meter = self._meters.get(key) or Meter(self._started_at)
                rows.append(
                    ShardRow(
                        key=key,
                        state=self._state(key, progress, is_reading=key in reading),
                        records=meter.records,
                        rate=meter.rate(now),
                        # One that has ended has no tip.
                        lag_seconds=None if progress.is_ended else lags.get(key),
                        position=describe_position(progress.position),
                    )
                )
        return rows

    def _state(self, key: ShardKey, progress: ShardProgress, *, is_reading: bool) -> str:
        if progress.is_ended:
            return "ended"
        if is_reading:
            return "reading"
        return "stopped" if self._has_ended or key in self._lags else "waiting"
