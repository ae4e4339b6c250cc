"""The sink: how tasks write the rows of a DataFrame, and the two writers for Spark."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from attrs import define, field, frozen
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from kinesis_publishers import BlockingProducer, Properties
from kinesis_publishers.config import ProducerConfig, StreamsConfig, selected_streams
from kinesis_publishers.errors import ConfigError, InvalidRecordError, KinesisPublishersError
from kinesis_publishers_spark.boundary import at_boundary
from kinesis_publishers_spark.options import SparkConfig
from kinesis_publishers_spark.processes import prepare_worker
from kinesis_publishers_spark.workers import WorkerCache

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kinesis_publishers import PutResult

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 gives Arrow to a writer for streams that is also one for batches.

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """Replaces what this version of Spark lacks."""


_TYPES = {
    "data": ("binary", "string"),
    "partitionKey": ("string",),
    "explicitHashKey": ("string",),
    "streamName": ("string",),
}
_EXPECTED = "data (binary or string), partitionKey, explicitHashKey and streamName (string)"
# Spark's names for the query and its micro-batch in the properties of a task.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_DIGEST_BYTES = 12


@frozen
class SinkColumns:
    """The indices of the sink's columns in the rows of a DataFrame; ``None`` for a missing one."""

    data: int
    partition_key: int | None = None
    explicit_hash_key: int | None = None
    stream_name: int | None = None

    @classmethod
    def of(cls, schema: StructType) -> SinkColumns:
        """Find the columns; the case of their names does not matter.

        Raises:
            ConfigError: data is missing, or a column is unknown or has the wrong type.
        """
        known = {name.lower(): name for name in _TYPES}
        places: dict[str, int] = {}
        for place, column in enumerate(schema):
            name, kind = known.get(column.name.lower()), column.dataType.typeName()
            if name is None:
                raise ConfigError(
                    f"the column {column.name} is not one that the sink writes: select(...) the "
                    f"columns {_EXPECTED}, and pack others into data, as with to_json(struct(...))"
                )
            if name in places:
                raise ConfigError(f"the column {name} occurs twice: select(...) one of them")
            if kind not in _TYPES[name]:
                raise ConfigError(
                    f"the column {name} is of type {column.dataType.simpleString()}, and must be "
                    f"{' or '.join(_TYPES[name])}: cast it, or make a text of it, as with "
                    "to_json(...)"
                )
            places[name] = place
        if "data" not in places:
            raise ConfigError(
                f"the column data is missing: the sink writes the columns {_EXPECTED}"
            )
        return cls(*map(places.get, _TYPES))  # type: ignore[arg-type]


@frozen(repr=False)
class Sink:
    """How rows are written; this travels to the tasks.

    Attributes:
        properties: the whole configuration.
    """

    properties: Properties
    columns: SinkColumns

    @classmethod
    def of(cls, properties: Properties, schema: StructType) -> Sink:
        """Return the sink for rows of ``schema``.

        Raises:
            ConfigError: the columns cannot be records, no stream is named, no column chooses among
                several, or records may wait on disk.
        """
        if properties.is_given(ProducerConfig.spill_path):
            raise ConfigError(
                f"{properties.written_key(ProducerConfig.spill_path)} is for a producer of your "
                "own: Spark repeats a task that fails, and its records on disk, too. Remove it"
            )
        columns, streams = SinkColumns.of(schema), selected_streams(properties)
        if columns.stream_name is None and len(streams) != 1:
            named = "names " + ", ".join(one.name for one in streams) if streams else "is missing"
            raise ConfigError(
                f"streamName ({StreamsConfig.names.full_key}) {named}: name one stream, or let a "
                "column streamName name the stream of each row"
            )
        return cls(properties, columns)

    @property
    def is_marked(self) -> bool:
        """Whether each record has a marker."""
        return SparkConfig.from_properties(self.properties).include_batch_marker

    def write(self, batches: Iterator[pa.RecordBatch], batch: str | None) -> RowsWritten:
        """Write the rows of a task, and return when the service has acknowledged all of them.

        Args:
            batches: the rows.
            batch: the prefix of their markers, if they have any.

        Raises:
            InvalidRecordError: a row cannot be a record.
            RecordsNotWrittenError: not every record was written.
        """
        with ExitStack() as lent:
            task = _Task(self, lent, None if batch is None else Markers(batch))
            for rows in batches:
                task.put(rows)
            return RowsWritten(task.finish())


@frozen
class RowsWritten(WriterCommitMessage):
    """The result of a task; the driver has nothing left to do."""

    rows: int


class KinesisBatchWriter(DataSourceArrowWriter):
    """Writes the rows of ``df.write``."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        # Not that of the micro-batch in which foreachBatch may be: it may write twice.
        self._id = uuid4().hex

    @at_boundary
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one task."""
        batch = f"{self._id}/0/{_context().partitionId()}" if self.sink.is_marked else None
        return self.sink.write(iterator, batch)


class KinesisStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of ``df.writeStream``."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    @at_boundary
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Write the rows of one task of a micro-batch."""
        return self.sink.write(iterator, self._batch() if self.sink.is_marked else None)

    def _batch(self) -> str:
        context = _context()
        query, batch = map(context.getLocalProperty, (_QUERY, _BATCH))
        if query is None or batch is None:
            raise ConfigError(
                "includeBatchMarker = true, and this version of Spark does not tell its tasks the "
                f"query and the micro-batch ({_QUERY}, {_BATCH}): remove it"
            )
        return f"{query}/{batch}/{context.partitionId()}"


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("the sink writes only in tasks of Spark")
    return context


@define
class Markers:
    """Makes the markers of a task's records, which are the same when the task is repeated.

    They depend on the records' contents, because the rows of a task may come in another order.
    Equal records are numbered.
    """

    _batch: str
    _seen: dict[bytes, int] = field(factory=dict)

    def of(
        self,
        stream: str | None,
        payloads: Sequence[bytes],
        keys: Sequence[str | None],
        hash_keys: Sequence[str | None],
    ) -> Iterator[str]:
        """Yield the marker of each record."""
        for payload, key, hash_key in zip(payloads, keys, hash_keys, strict=True):
            content = blake2b(ascii((stream, key, hash_key)).encode(), digest_size=_DIGEST_BYTES)
            content.update(payload)
            digest = content.digest()
            number = self._seen.get(digest, 0)
            self._seen[digest] = number + 1
            text = urlsafe_b64encode(digest).decode()
            yield f"{self._batch}/{text}.{number}" if number else f"{self._batch}/{text}"


class _KeptProducer:
    """A producer that survives a task; it is empty, unless that task failed."""

    def __init__(self, properties: Properties) -> None:
        encode = SparkConfig.from_properties(properties).compression
        self._producer = producer = BlockingProducer.from_properties(properties, encode=encode)
        self.put_many, self.flush = producer.put_many, producer.flush
        prepare_worker(again=True)

    def close(self) -> None:
        # Spark repeats the task, and nothing needs the rest of the failed one.
        with suppress(KinesisPublishersError):
            self._producer.close(timeout_seconds=0)


PRODUCERS = WorkerCache(_KeptProducer)

os.register_at_fork(after_in_child=PRODUCERS.abandon)


@define
class _Task:
    """What one task writes."""

    _sink: Sink
    _lent: ExitStack
    _markers: Markers | None
    _producers: dict[str | None, _KeptProducer] = field(factory=dict)
    _under_way: deque[Future[Sequence[PutResult]]] = field(factory=deque)
    _rows: int = 0

    def put(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        for stream, own in self._by_stream(rows):
            producer = self._producers.get(stream) or self._open(stream, own)
            self._under_way.append(producer.put_many(self._items(stream, own)))
        # An error must not be delayed until the last row.
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft().result()

    def finish(self) -> int:
        """Wait for all acknowledgements, and return the number of rows."""
        for producer in self._producers.values():
            producer.flush()
        for future in self._under_way:
            future.result()
        return self._rows

    def _by_stream(self, rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield the rows of each stream, in their order."""
        if self._sink.columns.stream_name is None or not rows.num_rows:
            yield None, rows
            return
        import pyarrow.compute as pc

        column = rows.column(self._sink.columns.stream_name)
        names = pc.unique(column).to_pylist()
        for name in names:
            mask = pc.is_null(column) if name is None else pc.equal(column, name)
            yield name, rows if len(names) == 1 else rows.filter(mask)

    def _open(self, stream: str | None, rows: pa.RecordBatch) -> _KeptProducer:
        properties = self._sink.properties
        if self._markers is not None and not properties.is_given(ProducerConfig.aggregates):
            # Every marked record is in an aggregate.
            properties = properties.with_values({ProducerConfig.aggregates: True})
        streams = selected_streams(properties)
        if stream is not None or len(streams) != 1:
            known = {name: one.reference for one in streams for name in (one.name, one.reference)}
            if stream is None or (streams and stream not in known):
                raise InvalidRecordError(
                    f"the row {self._describe(rows, 0)} has the streamName {stream!r}, and "
                    f"{StreamsConfig.names.full_key} names "
                    f"{', '.join(one.name for one in streams) or 'no stream'}"
                )
            properties = properties.with_values({StreamsConfig.names: known.get(stream, stream)})
        lent = self._lent.enter_context(PRODUCERS.lend(properties))
        self._producers[stream] = lent
        return lent

    def _items(self, stream: str | None, rows: pa.RecordBatch) -> list[Any]:
        columns = self._sink.columns
        data = rows.column(columns.data)
        if data.null_count:
            first = data.is_null().index(True).as_py()
            raise InvalidRecordError(
                f"the column data is null in the row {self._describe(rows, first)}: filter such "
                "rows out, or write an empty payload with coalesce(data, '')"
            )
        payloads = data.cast(pa.binary()).to_pylist()
        keys = self._column(rows, columns.partition_key)
        hash_keys = self._column(rows, columns.explicit_hash_key)
        if self._markers is not None:
            markers = self._markers.of(stream, payloads, keys, hash_keys)
            return list(zip(payloads, keys, hash_keys, markers, strict=True))
        if columns.explicit_hash_key is not None:
            return list(zip(payloads, keys, hash_keys, strict=True))
        return list(zip(payloads, keys, strict=True))

    @staticmethod
    def _column(rows: pa.RecordBatch, place: int | None) -> list[str | None]:
        if place is None:
            return [None] * rows.num_rows
        column: list[str | None] = rows.column(place).to_pylist()
        return column

    def _describe(self, rows: pa.RecordBatch, index: int) -> str:
        context, place = TaskContext.get(), self._sink.columns.partition_key
        parts = [] if context is None else [f"of partition {context.partitionId()}"]
        if place is not None:
            parts.append(f"with the partitionKey {rows.column(place)[index].as_py()!r:.300}")
        return " ".join(parts)
