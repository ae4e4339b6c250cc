"""What Spark's engine calls on the driver: offsets and partitions of a streaming query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kinesis_publishers_spark.offsets import Offset, OffsetJson
from kinesis_publishers_spark.partitions import read_partition
from kinesis_publishers_spark.planning.chunks import BatchLimit
from kinesis_publishers_spark.planning.prefetch import PrefetchPlanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from kinesis_publishers import Properties
    from kinesis_publishers.config import SparkConfig
    from kinesis_publishers_spark.planning.planner import Planner

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark before 4.2 has neither admission control nor AvailableNow for Python
    _HAS_ADMISSION_CONTROL = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for what this version of Spark does not have."""
else:
    _HAS_ADMISSION_CONTROL = True

__all__ = ["KinesisStreamReader"]

# How many shards are named, the furthest behind first, where Spark shows the lag.
_SHARDS_IN_LAG = 20


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams for one query.

    Spark constructs readers in several processes and pickles them to tasks: constructing one has no
    side effects, and everything that runs is made by the first call that needs it.

    Args:
        properties: the whole configuration.
        config: the part of it that only the Spark source reads.
    """

    def __init__(self, properties: Properties, config: SparkConfig) -> None:
        self._properties = properties
        self._config = config
        self._planner: Planner | None = None
        self._parsed: tuple[OffsetJson, Offset] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._properties, self._config)

    @property
    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = PrefetchPlanner(
                self._properties,
                parallelism=self._config.parallelism or os.cpu_count() or 1,
            )
        return self._planner

    def initialOffset(self) -> OffsetJson:
        """Return where a new query begins."""
        return self._plan.initial_offset().to_json()

    # Spark before 4.2 passes neither argument; it finds the defaults by inspecting the signature.
    def latestOffset(
        self, start: OffsetJson | None = None, limit: ReadLimit | None = None
    ) -> OffsetJson:
        """Return the end of the next micro-batch."""
        begin = None if start is None else self._parse(start)
        end = self._plan.latest_offset(begin, self._limit(limit))
        # The very text that Spark gave: it compares offsets as text.
        return start if start is not None and end == begin else end.to_json()

    def _parse(self, text: OffsetJson) -> Offset:
        # While there is nothing new, Spark asks again and again with the same one.
        if self._parsed is None or self._parsed[0] != text:
            self._parsed = text, Offset.from_json(text)
        return self._parsed[1]

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the configured limit; Spark can express only one, both are kept."""
        if self._config.max_records_per_trigger is not None:
            return ReadMaxRows(self._config.max_records_per_trigger)
        if self._config.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._config.max_bytes_per_trigger)
        return ReadAllAvailable()

    def _limit(self, asked: ReadLimit | None) -> BatchLimit:
        configured = BatchLimit(
            records=self._config.max_records_per_trigger,
            payload_bytes=self._config.max_bytes_per_trigger,
        )
        if not _HAS_ADMISSION_CONTROL or asked is None:
            return configured
        if isinstance(asked, ReadMaxRows):
            return configured.tightened(BatchLimit(records=asked.max_rows))
        if isinstance(asked, ReadMaxBytes):
            return configured.tightened(BatchLimit(payload_bytes=asked.max_bytes))
        # ReadAllAvailable: nothing is configured.
        return BatchLimit()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the lag, which Spark shows in the query's progress as ``latestOffset``."""
        lag = self._plan.lag()
        if lag is None:
            return None
        known = {name: ms for name, ms in lag.millis_behind_latest.items() if ms is not None}
        furthest = sorted(known.items(), key=lambda item: (-item[1], item[0]))[:_SHARDS_IN_LAG]
        return {
            "maxMillisBehindLatest": max(known.values(), default=0),
            "shards": len(lag.millis_behind_latest),
            "millisBehindLatest": dict(furthest),
            "bufferedRecords": lag.buffered_records,
            "bufferedBytes": lag.buffered_bytes,
        }

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, children of ended shards included, and no further."""
        self._plan.prepare_for_available_now()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the partitions of the micro-batch between two offsets."""
        return self._plan.partitions(Offset.from_json(start), Offset.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        return read_partition(partition)

    def commit(self, end: OffsetJson) -> None:
        """Learn that Spark is done with the micro-batch that ends at ``end``."""
        self._plan.commit(Offset.from_json(end))

    def stop(self) -> None:
        """Stop reading. Spark calls it after an error; a stopped query's process is killed."""
        if self._planner is not None:
            self._planner.close()
