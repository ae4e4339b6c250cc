"""Metrics of streaming queries: a listener in the driver's program, not in the source's process.

It knows only Spark's progress, which contains :meth:`~kinesis_publishers_spark.lag.Lag.report`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from kinesis_publishers import Properties, ShardKey
from kinesis_publishers.event_loop import CLOSED_AT_EXIT, OpenInThread
from kinesis_publishers.events import (
    Event,
    QueryEnded,
    QueryLagMeasured,
    QueryProgressed,
    QueryWrote,
    RecordsLate,
)
from kinesis_publishers.readers import open_events, source_of, stream_name_of

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql.streaming import listener as spark

_LOGGER = logging.getLogger(__name__)
# Spark's name for the table of any sink in Python.
_PYTHON_SINK = ".python.PythonTable"


def _guarded(call: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Make a callback log its errors: Spark must not see them."""

    def wrapper(self: object, event: object) -> None:
        try:
            call(self, event)
        except Exception:
            _LOGGER.warning("The metrics of a query lack one of its reports.", exc_info=True)

    return wrapper


class KinesisMetricsListener(StreamingQueryListener):
    """Reports lag, late records and rows of queries to the sinks of ``kinesis.metrics.sinks``.

    ``spark.streams.addListener(KinesisMetricsListener({"kinesis.metrics.sinks": "prometheus"}))``
    covers all queries of the session. The sinks stay open until :meth:`close`, or the end of the
    program. No callback raises an error.

    Args:
        properties: those of ``kinesis.metrics.*``, and for CloudWatch those of ``aws.*``.

    Raises:
        ConfigError: the properties are wrong, or a sink cannot be opened.
    """

    def __init__(self, properties: Properties | Mapping[str, Any] | None = None) -> None:
        opening = open_events(Properties.of(properties, {}, complete=False))
        self._opened = OpenInThread(opening, name="kinesis-metrics")
        self._is_closed = False
        # By run: each start of a query counts from 0.
        self._names: dict[UUID, str] = {}
        self._sources: dict[UUID, dict[int, _Source]] = {}
        CLOSED_AT_EXIT.add(self)

    def close(self) -> None:
        """Send the remaining metrics, and close the sinks.

        Remove the listener from the session first.
        """
        if not self._is_closed:
            self._is_closed = True
            CLOSED_AT_EXIT.discard(self)
            self._opened.close()

    @_guarded
    def onQueryStarted(self, event: spark.QueryStartedEvent) -> None:
        """Keep the name of a query: the event of its end lacks it."""
        self._names[event.runId] = event.name or str(event.id)

    @_guarded
    def onQueryProgress(self, event: spark.QueryProgressEvent) -> None:
        """Report a micro-batch."""
        self._report(event.progress, is_new=True)

    @_guarded
    def onQueryIdle(self, event: spark.QueryIdleEvent) -> None:
        """Report the lag of a query without new records."""
        # The event lacks it. Spark Connect sets the session.
        session = self.spark or SparkSession.getActiveSession()
        query = None if session is None else session.streams.get(str(event.id))
        progress = None if query is None else query.lastProgress
        if progress is not None and progress.runId == event.runId:
            self._report(progress, is_new=False)
        else:
            # None is better than the lag of an old micro-batch.
            self._forget(event.runId)

    @_guarded
    def onQueryTerminated(self, event: spark.QueryTerminatedEvent) -> None:
        """Report the end of a query, which then has no lag."""
        for source in self._sources.pop(event.runId, {}).values():
            self._send(source.events_of({}, is_report=False))
        # Not the message, which may contain anything.
        error = event.exception and (event.errorClassOnException or "unknown")
        query = self._names.pop(event.runId, str(event.id))
        self._send([QueryEnded(query=query, error=error)])

    def _report(self, progress: spark.StreamingQueryProgress, *, is_new: bool) -> None:
        """Report the progress of a query; its rows only if it ``is_new``."""
        query = self._names.setdefault(progress.runId, progress.name or str(progress.id))
        sources = self._sources.setdefault(progress.runId, {})
        for place, one in enumerate(progress.sources):
            if arns := _streams_of(_parsed(one.endOffset)):
                source = sources.setdefault(place, _Source(query))
                source.arns = arns
                rows = one.numInputRows if is_new else 0
                self._send(source.events_of(_parsed(one.latestOffset), rows=rows))
        sink = progress.sink
        # -1 where Spark does not count.
        if is_new and _PYTHON_SINK in sink.description and sink.numOutputRows >= 0:
            self._send([QueryWrote(query=query, rows=sink.numOutputRows)])

    def _forget(self, run_id: UUID) -> None:
        for source in self._sources.get(run_id, {}).values():
            self._send(source.events_of({}))

    def _send(self, events: Iterable[Event]) -> None:
        for event in events:
            if not self._is_closed:
                self._opened.loop.call(self._opened.value, event)


@define
class _Source:
    """The last report of one source of a running query: shards with a lag, and late records."""

    query: str
    arns: Mapping[str, str] = field(factory=dict)
    shards: set[ShardKey] = field(factory=set)
    late: int = 0
    late_by_shard: dict[ShardKey, int] = field(factory=dict)
    held_back: int = 0

    def events_of(
        self, report: Mapping[str, Any], *, rows: int = 0, is_report: bool = True
    ) -> Iterator[Event]:
        """Yield the metrics of a report; an empty one resets them."""
        query, arn = self.query, None if len(self.arns) > 1 else next(iter(self.arns.values()))
        before, self.held_back = self.held_back, report.get("heldBackShards", 0)
        if is_report or before:
            yield QueryProgressed(
                query=query, stream_arn=arn, rows=rows, held_back_shards=self.held_back
            )
        lags = self._by_shard(report, "lagMillis")
        behind = self._by_shard(report, "millisBehindLatest")
        for shard in self.shards | lags.keys():
            seconds = lags[shard] / 1e3 if shard in lags else None
            yield QueryLagMeasured(
                shard=shard, query=query, seconds=seconds, millis_behind_latest=behind.get(shard)
            )
        self.shards = set(lags)
        total = report.get("lateRecords", 0)
        left, self.late = max(0, total - self.late), max(total, self.late)
        # A report names only some shards. The rest of an earlier one has the others.
        for shard, count in self._by_shard(report, "lateRecordsByShard").items():
            grown = min(left, max(0, count - self.late_by_shard.get(shard, 0)))
            self.late_by_shard[shard] = count
            left -= grown
            if grown:
                yield RecordsLate(query=query, shard=shard, stream_arn=None, records=grown)
        if left:
            yield RecordsLate(query=query, shard=None, stream_arn=arn, records=left)

    def _by_shard(self, report: Mapping[str, Any], key: str) -> dict[ShardKey, int]:
        """Return numbers by shard, which a report calls ``stream/shard``."""
        named = [(*name.split("/"), count) for name, count in report.get(key, {}).items()]
        return {ShardKey(self.arns.get(name, name), shard): count for name, shard, count in named}


def _parsed(text: str) -> dict[str, Any]:
    """Return an offset or a report; empty if the text is neither."""
    with suppress(ValueError):
        if isinstance(value := json.loads(text), dict):
            return value
    return {}


def _streams_of(offset: Mapping[str, Any]) -> dict[str, str]:
    """Return the ARNs of the streams in an offset, by name; none for another source."""
    arns = streams if isinstance(streams := offset.get("streams"), dict) else ()
    return {stream_name_of(arn): arn for arn in arns if source_of(arn)}
