"""The ceiling that Spark sets: a source whose rows are in memory already, without any Kinesis."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from benchmarks.canned_pages import sequence_number
from kinesis_publishers_spark.schema import ARROW_SCHEMA, SPARK_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

__all__ = ["MemorySource"]

_PIECE_ROWS = 2_000


@dataclass(frozen=True)
class _MemoryPartition(InputPartition):
    rows: int
    record_bytes: int


class MemorySource(DataSource):
    """Streams the same rows as the Kinesis source; options ``rows``, ``batchrows``, ``bytes``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "benchmark-memory"

    def schema(self) -> str:
        """Return the columns of the Kinesis source."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> _MemoryReader:
        """Return a reader."""
        numbers = (int(self.options[name]) for name in ("rows", "batchrows", "bytes"))
        return _MemoryReader(*numbers)


class _MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: int, batch_rows: int, record_bytes: int) -> None:
        self._rows = rows
        self._batch_rows = batch_rows
        self._record_bytes = record_bytes

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._batch_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(self._rows, start["row"] + self._batch_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        rows = end["row"] - start["row"]
        halves = (rows // 2, rows - rows // 2)
        return [_MemoryPartition(half, self._record_bytes) for half in halves]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _MemoryPartition)
        piece = _piece(partition.record_bytes)
        whole, rest = divmod(partition.rows, _PIECE_ROWS)
        for _ in range(whole):
            yield piece
        if rest:
            yield piece.slice(0, rest)


@cache
def _piece(record_bytes: int) -> pa.RecordBatch:
    """Return rows that are made once in each worker process."""
    source = random.Random(0)
    arrival = datetime(2026, 1, 1, tzinfo=UTC)
    columns = [
        [source.randbytes(record_bytes) for _ in range(_PIECE_ROWS)],
        ["memory"] * _PIECE_ROWS,
        ["shardId-000000000000"] * _PIECE_ROWS,
        [sequence_number(0, 0, place) for place in range(_PIECE_ROWS)],
        [f"customer-{source.randrange(10**8):08d}" for _ in range(_PIECE_ROWS)],
        [arrival] * _PIECE_ROWS,
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind.type) for values, kind in zip(columns, ARROW_SCHEMA, strict=True)],
        schema=ARROW_SCHEMA,
    )
