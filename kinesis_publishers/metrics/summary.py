"""A summary of the reading in the log, one line per stream, periodically."""

from __future__ import annotations

import logging
from typing import Self

from attrs import define

from kinesis_publishers import events as ev
from kinesis_publishers.abc import EventReporter
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import MetricsConfig, Properties
from kinesis_publishers.metrics.metric import is_end_of_reading
from kinesis_publishers.metrics.sinks import repeated
from kinesis_publishers.model import ShardKey

_LOGGER = logging.getLogger(__name__)


@define
class _Interval:
    """The activity of one stream since the last line."""

    records: int = 0
    payload_bytes: int = 0
    retries: int = 0
    resubscribes: int = 0
    waited_seconds: float = 0.0

    def describe(self, seconds: float) -> str:
        rate, megabytes = self.records / seconds, self.payload_bytes / seconds / 1e6
        return (
            f"{rate:,.1f} records/s, {megabytes:,.2f} MB/s, {self.retries} retries, "
            f"{self.resubscribes} resubscribes, {self.waited_seconds:.1f} s waiting for room"
        )


class SummaryLog(EventReporter):
    """Selected by ``metrics.sinks = summary``: throughput and lag of each stream, at INFO.

    An application that hangs looks different from an idle one: shards that wait for room count
    while they wait, and the line says how old the answers are.
    """

    def __init__(self, interval_seconds: float, clock: Clock) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._streams: dict[str, _Interval] = {}
        # When each shard has answered; before that, when its reading began.
        self._answered_at: dict[ShardKey, float] = {}
        # How far answers were behind the tip, and how long records wait to be processed.
        self._read_lags: dict[ShardKey, float] = {}
        self._lags: dict[ShardKey, float] = {}
        # Since when shards wait for room, for the part that is in no line yet.
        self._waits: dict[ShardKey, float] = {}
        self._began_at = clock.monotonic()

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls(MetricsConfig.from_properties(properties).summary_interval_seconds, clock)

    def __call__(self, event: ev.Event) -> None:
        shard: ShardKey | None = getattr(event, "shard", None)
        # A query reports no throughput by shard.
        if shard is None or hasattr(event, "query"):
            return
        if shard.stream_name not in self._streams:
            self._streams[shard.stream_name] = _Interval()
        interval, now = self._streams[shard.stream_name], self._clock.monotonic()
        match event:
            case ev.RecordsProcessed():
                interval.records += event.records
                interval.payload_bytes += event.payload_bytes
            case ev.CallRetried():
                interval.retries += 1
            case ev.SubscriptionStarted():
                interval.resubscribes += event.is_reopened
            case ev.BackpressureBegan():
                self._waits[shard] = now
            case ev.BackpressureEnded():
                interval.waited_seconds += now - self._waits.pop(shard, now - event.seconds)
            case ev.ShardStarted():
                self._answered_at[shard] = now
            case ev.RecordsFetched() | ev.EventReceived():
                self._answered_at[shard] = now
                if event.millis_behind_latest is not None:
                    self._read_lags[shard] = event.millis_behind_latest / 1000
            case ev.LagMeasured():
                self._lags[shard] = event.seconds
            case _ if is_end_of_reading(event):
                for known in (self._answered_at, self._read_lags, self._lags):
                    known.pop(shard, None)

    async def __aenter__(self) -> Self:
        self._began_at = self._clock.monotonic()
        self._writing = repeated(
            self._write, self._interval_seconds, self._clock, name="write a summary"
        )
        await self._writing.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._writing.__aexit__(None, None, None)
        await self._write()

    async def _write(self) -> None:
        now = self._clock.monotonic()
        seconds, self._began_at = now - self._began_at, now
        for shard, began_at in self._waits.items():
            self._streams[shard.stream_name].waited_seconds += now - began_at
            self._waits[shard] = now
        for stream, interval in sorted(self._streams.items()):
            if seconds > 0:
                lag = self._lag_of(stream, now)
                _LOGGER.info("%s: %s; %s", stream, interval.describe(seconds), lag)
            self._streams[stream] = _Interval()

    def _lag_of(self, stream: str, now: float) -> str:
        answered_at = {
            key: at for key, at in self._answered_at.items() if key.stream_name == stream
        }
        if not answered_at:
            return "no shard is being read"
        parts = [f"{len(answered_at)} shards"]
        known = (self._read_lags, self._lags)
        lags = {key: max(one.get(key, -1.0) for one in known) for key in answered_at}
        last = max(lags, key=lags.__getitem__)
        if lags[last] >= 0:
            parts.append(f"{lags[last]:,.1f} s behind at most ({last.shard_id})")
        oldest = min(answered_at, key=answered_at.__getitem__)
        age = now - answered_at[oldest]
        if age > self._interval_seconds:
            parts.append(f"no answer for {age:,.1f} s at most ({oldest.shard_id})")
        return ", ".join(parts)
