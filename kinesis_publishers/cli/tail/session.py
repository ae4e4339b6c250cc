"""What a tail does with its records, and when it ends."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime

from kinesis_publishers.cli.shared.event_loop import OutputPipe
from kinesis_publishers.cli.shared.formats import (
    counted,
    format_behind,
    format_bytes,
    format_rate,
    iso_utc,
)
from kinesis_publishers.clock import Clock, ServiceClock
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.model import Record, RecordBatch, ShardKey
from kinesis_publishers.readers.fetcher import KinesisDataFetcher


class RecordView(ABC):
    @abstractmethod
    async def run(self, fetcher: KinesisDataFetcher) -> None:
        """Run ``fetcher``, and show records meanwhile."""

    @abstractmethod
    async def show(self, batch: RecordBatch) -> None:
        """Show the records of one shard; raises ``BrokenPipeError`` if the reader has gone."""

    def observe(self, status: ShardStatus) -> None:  # noqa: B027 - optional to override
        """Take the progress of a shard, after each of its answers."""


class RecordLines(RecordView):
    """Writes a line per record, which ``render`` returns with its line break."""

    def __init__(self, output: OutputPipe, render: Callable[[Record], bytes]) -> None:
        self._output = output
        self._render = render

    async def run(self, fetcher: KinesisDataFetcher) -> None:
        self._output.on_reader_gone(fetcher.stop)
        await fetcher.run()

    async def show(self, batch: RecordBatch) -> None:
        await self._output.write(b"".join(map(self._render, batch)))


class TailSession(DeliverySink):
    """Shows deliveries, and stops the fetcher when there is nothing more to show.

    It ends after ``max_records``, or where the fetcher ends.
    """

    def __init__(
        self,
        view: RecordView,
        *,
        max_records: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = ServiceClock.around(clock)
        self._view = view
        self._left = max_records
        self._fetcher: KinesisDataFetcher | None = None
        self._started_at = self._clock.monotonic()
        self._records = self._payload_bytes = 0
        self._last_arrival: datetime | None = None
        self._lags: dict[ShardKey, float | None] = {}
        self._largest_lag = 0.0

    def begin(self, fetcher: KinesisDataFetcher) -> None:
        """Set the fetcher that delivers, before it runs."""
        self._fetcher = fetcher

    def stop(self) -> None:
        """Make the fetcher return once it has shown its current batch."""
        if self._fetcher is not None:
            # Not from within the call of a shard's own task, which stopping may cancel.
            asyncio.get_running_loop().call_soon(self._fetcher.stop)

    async def deliver(self, delivery: Delivery) -> None:
        batch = delivery.batch
        try:
            if self._left is not None:
                batch = batch.slice(0, self._left)
                self._left -= len(batch)
            if arrival := batch.last_arrival:
                await self._view.show(batch)
                self._records += len(batch)
                self._payload_bytes += batch.payload_bytes
                self._last_arrival = max(arrival, self._last_arrival or arrival)
        except BrokenPipeError:
            # The reader of the output has what it wanted, as in "| head -1".
            self._left = 0
        finally:
            delivery.release()
        if self._left == 0:
            self.stop()

    def observe(self, status: ShardStatus) -> None:
        self._view.observe(status)
        lag = 0.0 if status.progress.is_ended else status.lag_seconds(self._clock.now())
        self._lags[status.shard.key] = lag
        self._largest_lag = max(lag or 0.0, self._largest_lag)

    def summary(self) -> str | None:
        """Return a summary of a few lines; ``None`` if no shard has answered."""
        if not self._lags:
            return None
        seconds = max(self._clock.monotonic() - self._started_at, 1e-3)
        lag = max((lag for lag in self._lags.values() if lag is not None), default=None)
        end = "at the tip" if lag == 0 else f"{format_behind(lag)} behind the tip"
        if lag is None:
            end = "at an unknown distance from the tip"
        if self._last_arrival is not None:
            end += f"; the newest record arrived at {iso_utc(self._last_arrival)}"
        return (
            f"Read {counted(self._records, 'record')} ({format_bytes(self._payload_bytes)}) of "
            f"{counted(len(self._lags), 'shard')} in {format_behind(seconds)}.\n"
            f"On average {format_rate(self._records / seconds)} records/s and "
            f"{format_bytes(self._payload_bytes / seconds)}/s; largest lag "
            f"{format_behind(self._largest_lag)}.\nEnded {end}."
        )
