"""What a tail does with its records: the lines or the live table it shows, and when it ends."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from attrs import define, evolve, field
from rich.console import Console
from rich.live import Live

from kinesis_publishers.cli.shared.event_loop import OutputPipe, pressed_keys
from kinesis_publishers.cli.shared.formats import (
    counted,
    format_behind,
    format_bytes,
    format_rate,
    iso_utc,
    payload_text,
    plain_line,
)
from kinesis_publishers.cli.tail.screen import ORDERS, Amount, Screen, ShardRow
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.model import Record, RecordBatch, ShardKey, StreamProgress
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.tasks import TaskScope

_PERIOD_SECONDS: Final = 0.5
_WINDOW_SECONDS: Final = 10.0
# A rate over a shorter time would jump.
_SHORTEST_SECONDS: Final = 1.0
_BARS: Final = 10
_BAR_SECONDS: Final = 3.0
# Wider than any terminal: escaping a whole payload would keep the loop that reads from reading.
_SHOWN_BYTES: Final = 1000


@define(eq=False, kw_only=True)
class TailSession(DeliverySink):
    """Shows deliveries, and stops the fetcher when there is nothing more to show.

    It ends after ``max_records``, or where the fetcher ends.
    """

    _clock: Clock
    _left: int | None = field(default=None, alias="max_records")
    # What delivers; set before it runs.
    fetcher: KinesisDataFetcher = field(init=False)
    _started_at: float = field(init=False)
    _records: int = field(default=0, init=False)
    _payload_bytes: int = field(default=0, init=False)
    _last_arrival: datetime | None = field(default=None, init=False)
    # Of all shards that were read, also of those that no longer are.
    _lags: dict[ShardKey, float | None] = field(factory=dict, init=False)
    _largest_lag: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._started_at = self._clock.monotonic()

    async def run(self) -> None:
        """Read, and show records meanwhile."""
        await self.fetcher.run()

    @abstractmethod
    async def show(self, batch: RecordBatch) -> None:
        """Show the records of one shard; raises ``BrokenPipeError`` if the reader has gone."""

    def stop(self) -> None:
        """Make the fetcher return once it has shown its current batch."""
        # Not from within the call of a shard's own task, which stopping may cancel.
        asyncio.get_running_loop().call_soon(self.fetcher.stop)

    async def deliver(self, delivery: Delivery) -> None:
        batch = delivery.batch
        try:
            if self._left is not None:
                batch = batch.slice(0, self._left)
                self._left -= len(batch)
            if arrival := batch.last_arrival:
                await self.show(batch)
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


@define(eq=False)
class RecordLines(TailSession):
    """Writes a line per record, which ``render`` returns with its line break."""

    _output: OutputPipe
    _render: Callable[[Record], bytes]

    async def run(self) -> None:
        self._output.on_reader_gone(self.fetcher.stop)
        await super().run()

    async def show(self, batch: RecordBatch) -> None:
        await self._output.write(b"".join(map(self._render, batch)))


@define
class Meter:
    """Counts what is read from one shard; times are in seconds of the monotonic clock."""

    _started_at: float
    records: int = field(default=0, init=False)
    payload: str = field(default="", init=False)
    _recent: deque[tuple[float, Amount]] = field(factory=deque, init=False)

    def count(self, batch: RecordBatch, *, now: float) -> None:
        """Add what was read at ``now``: at least one record."""
        self.records += len(batch)
        self.payload = payload_text(batch.payloads[-1], longest=_SHOWN_BYTES)
        is_plain = batch.sub_sequence_numbers is None
        stored = len(batch) if is_plain else len(set(batch.sequence_numbers))
        self._recent.append((now, Amount(len(batch), batch.payload_bytes, stored)))
        while self._recent[0][0] < now - (_BARS + 1) * _BAR_SECONDS:
            self._recent.popleft()

    def rate(self, now: float) -> Amount:
        """Return the rate over the last ten seconds, or since reading began."""
        seconds = min(_WINDOW_SECONDS, max(_SHORTEST_SECONDS, now - self._started_at))
        recent = (one for at, one in self._recent if at > now - _WINDOW_SECONDS)
        return Amount.sum(recent, seconds)

    def trend(self, now: float) -> list[float]:
        """Return the records of each of the last ten whole spans of three seconds."""
        bars = [0.0] * _BARS
        for at, one in self._recent:
            age = now // _BAR_SECONDS - at // _BAR_SECONDS
            if 1 <= age <= _BARS:
                bars[-int(age)] += one.records
        return bars


@define(eq=False)
class LiveTable(TailSession):
    """Counts records by shard, and keeps the ``newest`` ones, a line each.

    A pause freezes only the picture: reading and counting continue.
    """

    _console: Console
    _screen: Screen
    newest: deque[str] = field(factory=lambda: deque(maxlen=0))
    _meters: dict[ShardKey, Meter] = field(factory=dict, init=False)
    _has_ended: bool = field(default=False, init=False)

    async def show(self, batch: RecordBatch) -> None:
        meter = self._meters.setdefault(batch.shard.key, Meter(self._started_at))
        meter.count(batch, now=self._clock.monotonic())
        if kept := self.newest.maxlen:
            last = batch.slice(max(0, len(batch) - kept), len(batch))
            self.newest.extend(plain_line(one, longest=_SHOWN_BYTES) for one in last)

    async def run(self) -> None:
        # The last state stays on the terminal.
        with Live(console=self._console, auto_refresh=False) as live:

            def press(key: str) -> None:
                if key in "qQ":
                    self.fetcher.stop()
                self.press(key)
                self._update(live)

            try:
                async with TaskScope() as scope:
                    reading = scope.spawn(super().run(), name="read")
                    # A signal ends this at once, and not after what reading does at its end: a
                    # second one, which ends the process, finds the terminal in order.
                    with pressed_keys(press) as has_keys:
                        self._screen = evolve(self._screen, has_keys=has_keys)
                        scope.spawn(self._draw(live), name="draw the table")
                        await asyncio.wait([reading])
                    scope.cancel()
            finally:
                self._has_ended = True
                self._screen = evolve(self._screen, has_keys=False, is_paused=False)
                self._update(live)

    def press(self, key: str) -> None:
        screen = self._screen
        match key.lower():
            case "s":
                order = ORDERS[(ORDERS.index(screen.order) + 1) % len(ORDERS)]
                self._screen = evolve(screen, order=order, is_reversed=False)
            case "r":
                self._screen = evolve(screen, is_reversed=not screen.is_reversed)
            case "p" | " ":
                self._screen = evolve(screen, is_paused=not screen.is_paused)

    async def _draw(self, live: Live) -> None:
        while True:
            self._update(live)
            await self._clock.sleep(_PERIOD_SECONDS)

    def _update(self, live: Live) -> None:
        read = self.fetcher
        screen = self.screen(read.progress, read.statuses, left=read.left_shards)
        height = None if self._has_ended else self._console.height
        live.update(evolve(screen, height=height), refresh=True)

    def screen(
        self,
        progress: Mapping[str, StreamProgress],
        statuses: Iterable[ShardStatus],
        *,
        left: Collection[ShardKey] = (),
    ) -> Screen:
        if not self._screen.is_paused:
            self._screen = evolve(
                self._screen,
                rows=[row for row in self._rows(progress, statuses) if row.key not in left],
                newest=tuple(self.newest),
                elapsed_seconds=self._clock.monotonic() - self._started_at,
            )
        return self._screen

    def _rows(
        self, progress: Mapping[str, StreamProgress], statuses: Iterable[ShardStatus]
    ) -> Iterator[ShardRow]:
        now = self._clock.monotonic()
        # It grows where no answer comes.
        reading = {one.shard.key: one.lag_seconds(self._clock.now()) for one in statuses}
        lags = self._lags | reading
        for stream_arn, stream in progress.items():
            for shard_id, shard in stream.shards.items():
                key = ShardKey(stream_arn, shard_id)
                meter = self._meters.get(key) or Meter(self._started_at)
                stopped = "stopped" if self._has_ended or key in self._lags else "waiting"
                state = "reading" if key in reading else stopped
                yield ShardRow(
                    key=key,
                    state="ended" if shard.is_ended else state,
                    records=meter.records,
                    rate=meter.rate(now),
                    # One that has ended has no tip.
                    lag_seconds=None if shard.is_ended else lags.get(key),
                    position=shard.position,
                    trend=meter.trend(now),
                    payload=meter.payload,
                )
