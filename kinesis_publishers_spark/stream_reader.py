"""The reader of a streaming query, which Spark's engine calls on the driver."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kinesis_publishers.config import EndingPositionConfig, StreamsConfig
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError
from kinesis_publishers_spark.boundary import at_boundary
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.micro_batches import MicroBatches, Query, Session, SessionFactory
from kinesis_publishers_spark.offsets import Offset, OffsetJson
from kinesis_publishers_spark.options import Planner, SparkConfig
from kinesis_publishers_spark.partitions import TaskReader
from kinesis_publishers_spark.processes import prepare_source, write_logs

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_publishers import Properties

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark before 4.2 has neither admission control nor AvailableNow for Python

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces what this version of Spark lacks."""


_LOGGER = logging.getLogger("kinesis_publishers_spark.batches")
# Spark asks for the lag a hundred times a second while there are no new records.
_REPORT_SECONDS = 1.0
# Start and end of a micro-batch, and the end of the next.
_OFFSETS_KEPT = 3

# Not ReadAllAvailable when nothing is configured: Spark asks for that under Trigger.Once, for any
# default, and it is the only sign that distinguishes Once from the other triggers. This is the
# largest long of the JVM.
_UNLIMITED_ROWS: Final = 2**63 - 1


def make_session(
    planner: Planner, query: Query, resume: Offset, catch_up_to: datetime | None
) -> Session:
    """Return a session of a planner; only that planner is imported."""
    if planner is Planner.PREFETCH:
        from kinesis_publishers_spark.prefetch import PrefetchSession

        return PrefetchSession(query, resume, catch_up_to)
    from kinesis_publishers_spark.ranges import RangeSession

    return RangeSession(query, resume, catch_up_to)


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams for one query.

    Spark constructs readers in several processes, and pickles them only for tasks, which get a
    :class:`TaskReader`. Constructing one has no side effects; the first call that needs a session
    starts it.

    Args:
        properties: the whole configuration.
        config: its part for the Spark source.
        make_session: makes the sessions of the planners.
        tasks: reads the partitions in tasks.
    """

    def __init__(
        self,
        properties: Properties,
        config: SparkConfig,
        make_session: SessionFactory = make_session,
        *,
        tasks: TaskReader | None = None,
    ) -> None:
        self._properties = properties
        self._limit = BatchLimit(
            records=config.max_records_per_trigger,
            payload_bytes=config.max_bytes_per_trigger,
            min_records=config.min_records_per_trigger or 0,
        )
        self._make_session = make_session
        self._tasks = tasks or TaskReader.of(properties)
        self._micro_batches: MicroBatches | None = None
        # Spark passes the same offsets repeatedly: as an end, as a start, to commit.
        self._offsets: deque[tuple[OffsetJson, Offset]] = deque(maxlen=_OFFSETS_KEPT)
        self._report: dict[str, Any] | None = None
        self._next_report = float("-inf")

    def __reduce__(self) -> tuple[object, ...]:
        return TaskReader, (self._tasks.half,)

    @property
    def _batches(self) -> MicroBatches:
        if self._micro_batches is None:
            write_logs()
            prepare_source()
            self._micro_batches = MicroBatches(self._properties, self._make_session)
        return self._micro_batches

    @at_boundary
    def initialOffset(self) -> OffsetJson:
        """Return the start of a new query."""
        return self._text_of(self._batches.initial_offset())

    # Spark before 4.2 passes neither argument; it finds the defaults by inspecting the signature.
    @at_boundary
    def latestOffset(
        self, start: OffsetJson | None = None, limit: ReadLimit | None = None
    ) -> OffsetJson:
        """Return the end of the next micro-batch."""
        asked_at = time.monotonic()
        if start is None:
            begin, end = self._batches.next_latest_offset(self._limit)
        else:
            begin = self._parse(start)
            end = self._batches.latest_offset(begin, _batch_limit(self._limit, limit))
        if end == begin:
            # The very text that Spark gave: it compares offsets as text.
            return self._text_of(begin) if start is None else start
        self._report = None
        if _LOGGER.isEnabledFor(logging.INFO):
            self._log_plan(begin, end, seconds=time.monotonic() - asked_at)
        return self._text_of(end)

    def _parse(self, text: OffsetJson) -> Offset:
        for known, offset in self._offsets:
            if known == text:
                return offset
        return self._remember(text, Offset.from_json(text))

    def _text_of(self, offset: Offset) -> OffsetJson:
        for text, known in self._offsets:
            if known is offset:
                return text
        text = offset.to_json()
        self._remember(text, offset)
        return text

    def _remember(self, text: OffsetJson, offset: Offset) -> Offset:
        self._offsets.append((text, offset))
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the configured limit. Spark can express only one, but both apply."""
        limit = self._limit
        if limit.records is None and limit.payload_bytes is not None:
            return ReadMaxBytes(limit.payload_bytes)
        return ReadMaxRows(limit.records or _UNLIMITED_ROWS)

    @at_boundary
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the lag, which Spark shows in the query's progress as ``latestOffset``.

        It may be a second old while there are no new records.
        """
        now = time.monotonic()
        if self._report is None or now >= self._next_report:
            self._report, self._next_report = self._lag_report(), now + _REPORT_SECONDS
        return self._report

    def _lag_report(self) -> dict[str, Any] | None:
        lag = None if self._micro_batches is None else self._micro_batches.lag()
        if lag is None:
            return None
        names = {"streams": self._stream_names, "planner": self._batches.planner}
        return {**names, **lag.report()}

    @cached_property
    def _stream_names(self) -> str:
        # Not a list: Spark shows text and numbers only.
        streams = StreamsConfig.from_properties(self._properties).streams
        return ",".join(one.name for one in streams)

    @at_boundary
    def prepareForTriggerAvailableNow(self) -> None:
        """Read the records that exist now, children of ended shards included, and no more."""
        self._batches.prepare_for_available_now()

    @at_boundary
    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the partitions of the micro-batch between two offsets."""
        return self._tasks.split(self._batches.partitions(self._parse(start), self._parse(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        return self._tasks.read(partition)

    @at_boundary
    def commit(self, end: OffsetJson) -> None:
        """Release the micro-batch that ends at ``end``, which Spark has committed."""
        self._batches.commit(self._parse(end))
        self._log("committed")

    def stop(self) -> None:
        """Stop reading.

        Spark calls this after an error; it kills the process of a stopped query.
        """
        if self._micro_batches is not None:
            self._micro_batches.close()

    def _log_plan(self, start: Offset, end: Offset, *, seconds: float) -> None:
        planned, lag = self._batches.planned, self._batches.lag()
        self._log(
            "planned",
            shards=len(end.ranges_since(start)),
            records=None if planned is None else planned.records,
            payload_bytes=None if planned is None else planned.payload_bytes,
            max_lag_millis=None if lag is None else lag.max_lag_millis,
            buffered_records=None if lag is None else lag.buffered_records,
            plan_seconds=round(seconds, 3),
        )

    def _log(self, event: str, **more: float | None) -> None:
        """Log what happened to a micro-batch, at level INFO."""
        fields = {"streams": self._stream_names, "planner": self._batches.planner, **more}
        text = " ".join(
            f"{name}={'unknown' if value is None else value}" for name, value in fields.items()
        )
        extra = {f"kinesis_{name}": value for name, value in {"event": event, **fields}.items()}
        _LOGGER.info("micro-batch %s %s", event, text, extra=extra)


def refuse_ending_position(properties: Properties) -> None:
    """Refuse every option for the end of reading; raises ``ConfigErrors``."""
    if keys := properties.given_keys(EndingPositionConfig.options()):
        advice = (
            "a streaming query has no end. Remove it, or use trigger(availableNow=True) to read "
            "all records and stop"
        )
        raise ConfigErrors(
            [InvalidOptionError(f"{key} is for spark.read: {advice}") for key in keys]
        )


def _batch_limit(configured: BatchLimit, asked: ReadLimit | None) -> BatchLimit | None:
    """Return the limit of a micro-batch; ``None`` for all records that exist.

    Args:
        configured: applies in addition to ``asked``, except under Trigger.Once.
        asked: the limit that Spark passes, ``None`` before 4.2.

    Raises:
        ConfigError: Spark asks for an unknown kind of limit.
    """
    if asked is None:
        return configured
    if isinstance(asked, ReadAllAvailable):
        return None
    if isinstance(asked, ReadMaxRows):
        if asked.max_rows == _UNLIMITED_ROWS:
            return configured
        return configured.tightened(BatchLimit(records=asked.max_rows))
    if isinstance(asked, ReadMaxBytes):
        return configured.tightened(BatchLimit(payload_bytes=asked.max_bytes))
    raise ConfigError(
        f"Spark asks for a micro-batch with the limit {asked!r}, but this source supports only "
        "ReadAllAvailable, ReadMaxRows and ReadMaxBytes: use maxRecordsPerTrigger or "
        "maxBytesPerTrigger."
    )
