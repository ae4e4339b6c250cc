"""Shows a tail on a terminal: the table of shards, drawn twice a second."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rich.live import Live

from kinesis_publishers.cli.shared.formats import plain_line
from kinesis_publishers.cli.tail.session import RecordView
from kinesis_publishers.cli.tail.table import Meter, ShardRow, describe_position, render_tail
from kinesis_publishers.model import ShardKey
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from rich.console import Console

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.engine.delivery import ShardStatus
    from kinesis_publishers.model import RecordBatch, ShardProgress
    from kinesis_publishers.readers.fetcher import KinesisDataFetcher

__all__ = ["LiveTable"]

_PERIOD_SECONDS: Final = 0.5
# Wider than any terminal: escaping a whole payload would keep the loop that reads from reading.
_SHOWN_BYTES: Final = 1000


class LiveTable(RecordView):
    """Counts records by shard, and keeps the newest ones.

    Args:
        console: the terminal.
        clock: what rates are measured with.
        newest: how many records are shown below the table.
    """

    def __init__(self, console: Console, clock: Clock, *, newest: int) -> None:
        self._console = console
        self._clock = clock
        self._started_at = clock.monotonic()
        self._meters: dict[ShardKey, Meter] = {}
        # Of all shards that were read, also of those that are not any more.
        self._behind: dict[ShardKey, int | None] = {}
        self._newest: deque[str] = deque(maxlen=newest)
        self._has_ended = False

    @property
    def newest(self) -> tuple[str, ...]:
        """The newest records, a line each."""
        return tuple(self._newest)

    async def show(self, batch: RecordBatch) -> None:
        meter = self._meters.setdefault(batch.shard.key, Meter(self._started_at))
        meter.count(len(batch), batch.payload_bytes, now=self._clock.monotonic())
        if kept := self._newest.maxlen:
            last = batch.slice(max(0, len(batch) - kept), len(batch))
            self._newest.extend(plain_line(one, longest=_SHOWN_BYTES) for one in last)

    def observe(self, status: ShardStatus) -> None:
        self._behind[status.shard.key] = status.millis_behind_latest

    async def run(self, fetcher: KinesisDataFetcher) -> None:
        """Run ``fetcher`` and draw while it runs; the last state stays on the terminal."""
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
        reading = {one.shard.key for one in fetcher.statuses}
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
                        millis_behind_latest=None if progress.is_ended else self._behind.get(key),
                        position=describe_position(progress.position),
                    )
                )
        return rows

    def _state(self, key: ShardKey, progress: ShardProgress, *, is_reading: bool) -> str:
        if progress.is_ended:
            return "ended"
        if is_reading:
            return "reading"
        return "stopped" if self._has_ended or key in self._behind else "waiting"
