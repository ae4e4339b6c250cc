"""What Spark's engine calls on the driver: offsets and partitions of a streaming query."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kinesis_publishers.config import StreamsConfig
from kinesis_publishers_spark.batch_log import (
    log_commit,
    log_plan,
    max_millis_behind,
    write_logs,
)
from kinesis_publishers_spark.offsets import Offset, OffsetJson
from kinesis_publishers_spark.partitions import TaskReader
from kinesis_publishers_spark.read_limits import (
    SupportsTriggerAvailableNow,
    batch_limit,
    configured_limit,
    default_read_limit,
)
from kinesis_publishers_spark.triggers import PlannerFactory, TriggeredPlanner, planner_factory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from kinesis_publishers import Properties
    from kinesis_publishers.config import SparkConfig

__all__ = ["KinesisStreamReader"]

# How many shards are named, the furthest behind first, where Spark shows the lag.
_SHARDS_IN_LAG = 20
# Spark asks for the lag a hundred times a second while nothing is new.
_REPORT_SECONDS = 1.0
# How long Spark's thread may wait for the planner's, which is busy while many shards are polled:
# with Python's own 5 ms, a trigger that finds nothing took three times as long.
_SWITCH_SECONDS = 0.0005
# The two of a micro-batch, and one more for the next.
_OFFSETS_KEPT = 3


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams for one query.

    Spark constructs readers in several processes, and pickles them only for tasks, which get a
    :class:`TaskReader`. Constructing one has no side effects: what runs is made by the first call
    that needs it.

    Args:
        properties: the whole configuration.
        config: the part of it that only the Spark source reads.
        make_planner: makes planners; those of the package if it is not given.
        tasks: reads the partitions in tasks.
    """

    def __init__(
        self,
        properties: Properties,
        config: SparkConfig,
        make_planner: PlannerFactory | None = None,
        *,
        tasks: TaskReader | None = None,
    ) -> None:
        self._properties = properties
        self._config = config
        self._make_planner = make_planner
        self._tasks = tasks or TaskReader.of(properties)
        self._planner: TriggeredPlanner | None = None
        # Spark names the same ones again and again: as an end, as a start, to commit.
        self._offsets: deque[tuple[OffsetJson, Offset]] = deque(maxlen=_OFFSETS_KEPT)
        self._report: dict[str, Any] | None = None
        self._next_report = float("-inf")

    def __reduce__(self) -> tuple[object, ...]:
        return TaskReader, (self._tasks.half,)

    @property
    def _plan(self) -> TriggeredPlanner:
        if self._planner is None:
            write_logs(os.environ)
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
            make = self._make_planner or planner_factory(
                # The source's process learns nothing of Spark's cores: neither its configuration
                # nor its environment arrives here.
                self._properties,
                self._config.parallelism or os.cpu_count() or 1,
            )
            self._planner = TriggeredPlanner(self._config.planner, make)
        return self._planner

    def initialOffset(self) -> OffsetJson:
        """Return where a new query begins."""
        return self._text_of(self._plan.initial_offset())

    # Spark before 4.2 passes neither argument; it finds the defaults by inspecting the signature.
    def latestOffset(
        self, start: OffsetJson | None = None, limit: ReadLimit | None = None
    ) -> OffsetJson:
        """Return the end of the next micro-batch."""
        asked_at = time.monotonic()
        if start is None:
            begin, end = self._plan.next_latest_offset(configured_limit(self._config))
        else:
            begin = self._parse(start)
            end = self._plan.latest_offset(begin, batch_limit(self._config, limit))
        if end == begin:
            # The very text that Spark gave: it compares offsets as text.
            return self._text_of(begin) if start is None else start
        self._report = None
        log_plan(begin, end, self._plan, seconds=time.monotonic() - asked_at)
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
        """Return the configured limit; Spark can express only one, both are kept."""
        return default_read_limit(self._config)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the lag, which Spark shows in the query's progress as ``latestOffset``.

        While nothing is new it may be a second old.
        """
        now = time.monotonic()
        if self._report is None or now >= self._next_report:
            self._report, self._next_report = self._lag_report(), now + _REPORT_SECONDS
        return self._report

    def _lag_report(self) -> dict[str, Any] | None:
        lag = None if self._planner is None else self._planner.lag()
        if lag is None:
            return None
        known = {name: ms for name, ms in lag.millis_behind_latest.items() if ms is not None}
        furthest = sorted(known.items(), key=lambda item: (-item[1], item[0]))[:_SHARDS_IN_LAG]
        return {
            "streams": self._stream_names,
            "planner": self._plan.name,
            "maxMillisBehindLatest": max_millis_behind(lag) or 0,
            "shards": len(lag.millis_behind_latest),
            "millisBehindLatest": dict(furthest),
            "bufferedRecords": lag.buffered_records,
            "bufferedBytes": lag.buffered_bytes,
        }

    @cached_property
    def _stream_names(self) -> str:
        # Not a list: what Spark shows is text and numbers.
        streams = StreamsConfig.from_properties(self._properties).streams
        return ",".join(one.name for one in streams)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, children of ended shards included, and no further."""
        self._plan.prepare_for_available_now()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the partitions of the micro-batch between two offsets."""
        return self._tasks.split(self._plan.partitions(self._parse(start), self._parse(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        return self._tasks.read(partition)

    def commit(self, end: OffsetJson) -> None:
        """Learn that Spark is done with the micro-batch that ends at ``end``."""
        offset = self._parse(end)
        self._plan.commit(offset)
        log_commit(offset, planner=self._plan.name)

    def stop(self) -> None:
        """Stop reading. Spark calls it after an error; a stopped query's process is killed."""
        if self._planner is not None:
            self._planner.close()
