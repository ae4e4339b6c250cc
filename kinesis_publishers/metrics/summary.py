"""A summary of the reading in the log, one line for each stream, now and then."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from attrs import define

from kinesis_publishers.abc import EventReporter
from kinesis_publishers.config import MetricsConfig
from kinesis_publishers.events import (
    BackpressureEnded,
    CallRetried,
    EventReceived,
    RecordsFetched,
    RecordsProcessed,
    SubscriptionStarted,
)
from kinesis_publishers.metrics.gauges import is_end_of_reading
from kinesis_publishers.metrics.periodic import repeated

if TYPE_CHECKING:
    from types import TracebackType

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import Properties
    from kinesis_publishers.events import Event
    from kinesis_publishers.model import ShardKey

__all__ = ["SummaryLog"]

_LOGGER = logging.getLogger(__name__)


@define
class _Interval:
    """What has happened in one stream since the last line."""

    records: int = 0
    payload_bytes: int = 0
    retries: int = 0
    resubscribes: int = 0
    waited_seconds: float = 0.0

    def add(self, event: Event) -> None:
        match event:
            case RecordsProcessed():
                self.records += event.records
                self.payload_bytes += event.payload_bytes
            case CallRetried():
                self.retries += 1
            case SubscriptionStarted():
                self.resubscribes += event.is_reopened
            case BackpressureEnded():
                self.waited_seconds += event.seconds
            case _:
                pass

    def describe(self, seconds: float) -> str:
        """Return the line, for an interval that was so long."""
        rate, megabytes = self.records / seconds, self.payload_bytes / seconds / 1e6
        return (
            f"{rate:,.1f} records/s, {megabytes:,.2f} MB/s, {self.retries} retries, "
            f"{self.resubscribes} resubscribes, {self.waited_seconds:.1f} s waiting for room"
        )


class SummaryLog(EventReporter):
    """Selected by ``metrics.sinks = summary``: throughput and lag of each stream, at INFO.

    Args:
        interval_seconds: how often a line is written.
        clock: what the interval is measured with.
    """

    def __init__(self, interval_seconds: float, clock: Clock) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._streams: dict[str, _Interval] = {}
        self._lags: dict[ShardKey, int] = {}
        self._began_at = clock.monotonic()
        self._repeating = AsyncExitStack()

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls(MetricsConfig.from_properties(properties).summary_interval_seconds, clock)

    def __call__(self, event: Event) -> None:
        shard: ShardKey | None = getattr(event, "shard", None)
        if shard is None:
            return
        if shard.stream_name not in self._streams:
            self._streams[shard.stream_name] = _Interval()
        self._streams[shard.stream_name].add(event)
        if isinstance(event, RecordsFetched | EventReceived):
            if event.millis_behind_latest is not None:
                self._lags[shard] = event.millis_behind_latest
        elif is_end_of_reading(event):
            self._lags.pop(shard, None)

    async def __aenter__(self) -> Self:
        self._began_at = self._clock.monotonic()
        await self._repeating.enter_async_context(
            repeated(
                self._write,
                interval_seconds=self._interval_seconds,
                clock=self._clock,
                name="write a summary",
            )
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._repeating.aclose()
        await self._write()

    async def _write(self) -> None:
        now = self._clock.monotonic()
        seconds, self._began_at = now - self._began_at, now
        for stream, interval in sorted(self._streams.items()):
            if seconds > 0:
                _LOGGER.info("%s: %s; %s", stream, interval.describe(seconds), self._lag_of(stream))
            self._streams[stream] = _Interval()

    def _lag_of(self, stream: str) -> str:
        lags = {key: lag for key, lag in self._lags.items() if key.stream_name == stream}
        if not lags:
            return "no shard is being read"
        last = max(lags, key=lags.__getitem__)
        return f"{len(lags)} shards, {lags[last] / 1000:,.1f} s behind at most ({last.shard_id})"
