"""Shows a tail on a terminal: the table of shards, drawn twice a second."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rich.live import Live

from kinesis_publishers.cli.records import plain_line
from kinesis_publishers.cli.tail.rates import Meter
from kinesis_publishers.cli.tail.session import RecordView
from kinesis_publishers.cli.tail.table import ShardRow, describe_position, render_tail
from kinesis_publishers.model import ShardKey
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from rich.console import Console

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.data_fetcher import KinesisDataFetcher
    from kinesis_publishers.model import RecordBatch

__all__ = ["LiveTable"]

_PERIOD_SECONDS: Final = 0.5


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
        self._newest: deque[str] = deque(maxlen=newest)

    async def show(self, batch: RecordBatch) -> None:
        meter = self._meters.setdefault(batch.shard.key, Meter(self._started_at))
        meter.count(len(batch), batch.payload_bytes, now=self._clock.monotonic())
        if kept := self._newest.maxlen:
            last = batch.slice(max(0, len(batch) - kept), len(batch))
            self._newest.extend(map(plain_line, last))

    async def run(self, fetcher: KinesisDataFetcher) -> None:
        """Run ``fetcher`` and draw meanwhile; the last state stays on the terminal."""
        with Live(console=self._console, auto_refresh=False) as live:
            try:
                async with TaskScope() as scope:
                    scope.spawn(self._draw(live, fetcher), name="draw the table")
                    await fetcher.run()
                    scope.cancel()
            finally:
                self._update(live, fetcher)

    async def _draw(self, live: Live, fetcher: KinesisDataFetcher) -> None:
        while True:
            self._update(live, fetcher)
            await self._clock.sleep(_PERIOD_SECONDS)

    def _update(self, live: Live, fetcher: KinesisDataFetcher) -> None:
        live.update(render_tail(self._rows(fetcher), tuple(self._newest)), refresh=True)

    def _rows(self, fetcher: KinesisDataFetcher) -> list[ShardRow]:
        now = self._clock.monotonic()
        behind = {one.shard.key: one.millis_behind_latest for one in fetcher.statuses}
        rows = []
        for stream_arn, stream in fetcher.progress.items():
            for shard_id, progress in stream.shards.items():
                key = ShardKey(stream_arn, shard_id)
                meter = self._meters.get(key) or Meter(self._started_at)
                is_reading = key in behind
                state = "ended" if progress.is_ended else "reading" if is_reading else "waiting"
                rows.append(
                    ShardRow(
                        key=key,
                        state=state,
                        records=meter.records,
                        rate=meter.rate(now),
                        millis_behind_latest=behind.get(key),
                        position=describe_position(progress.position),
                    )
                )
        return rows
