"""Input partitions: values that travel from the driver to the tasks, and how a task reads them.

Every Python worker imports this module in its first task. Dependencies of single kinds of
partitions are imported where these are read.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import evolve, field, frozen
from pyspark.sql.datasource import InputPartition

from kinesis_publishers_spark.processes import prepare_worker
from kinesis_publishers_spark.schema import USUAL_COLUMNS, Columns, to_spark_arrow

if TYPE_CHECKING:
    from kinesis_publishers import Properties, ShardRange

# Bytes of a partition cost more in the JVM than zstd costs here. zstd gives up quickly on data that
# is already compressed or encrypted (docs/decisions, number 5).
_IPC_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@frozen(repr=False)
class PrefetchedPartition(InputPartition):
    """Records that the driver has fetched, as an Arrow IPC stream."""

    # Not bytes: pickle would copy them once more.
    ipc: pa.Buffer

    @classmethod
    def of(
        cls, rows: Iterable[pa.RecordBatch], columns: Columns = USUAL_COLUMNS
    ) -> PrefetchedPartition:
        """Return a partition of ``rows``, which have these columns."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, columns.arrow, options=_IPC_OPTIONS) as writer:
            for batch in rows:
                writer.write_batch(batch)
        return cls(sink.getvalue())

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records."""
        prepare_worker()
        with pa.ipc.open_stream(self.ipc) as reader:
            yield from reader

    def __repr__(self) -> str:
        return f"PrefetchedPartition({self.ipc.size} bytes)"


@frozen
class RangePartition(InputPartition):
    """Exact ranges of records, which the task reads from Kinesis.

    Attributes:
        properties: the configuration; with EFO it names the stream consumers, because an executor
            registers none.
        ranges: at most one per shard.
        expected_bytes: an estimate of their size, because few records do not justify a
            subscription; ``None`` if unknown.
    """

    properties: Properties
    ranges: tuple[ShardRange, ...]
    expected_bytes: int | None = None

    @classmethod
    def of(cls, properties: Properties, ranges: Iterable[ShardRange]) -> RangePartition:
        """Return the task that reads ``ranges`` again, never by subscription.

        A subscription belongs to one reader per shard and consumer: that of a task would end the
        driver's.
        """
        from kinesis_publishers.readers import as_polling

        return cls(as_polling(properties), tuple(ranges))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as they arrive: those of one shard in order, shards interleaved.

        Raises:
            DataLossError: a range does not begin or end with its own records.
        """
        from kinesis_publishers_spark.options import SparkConfig
        from kinesis_publishers_spark.workers import lend_reader

        columns = Columns.of(SparkConfig.from_properties(self.properties))
        with lend_reader(self.properties) as reader:
            prepare_worker(again=reader.is_new)
            with closing(reader.read(self.ranges, self.expected_bytes)) as arriving:
                for taken in arriving:
                    rows = [to_spark_arrow(one.batch, columns) for one in taken]
                    yield from pa.Table.from_batches(rows).combine_chunks().to_batches()


@frozen
class _SplitPartition(InputPartition):
    """A :class:`RangePartition` as it travels: with one half of each secret."""

    public: RangePartition
    half: bytes = field(repr=False)


@frozen(repr=False)
class TaskReader:
    """Reads the partitions of one query, in tasks.

    The reader and the partitions travel separately, each with one half of the query's secrets: a
    one-time pad, and the secrets that it masks. Neither half reveals more than its length.

    Attributes:
        half: travels with the reader.
        other_half: travels with the partitions; only the driver has both.
    """

    half: bytes
    other_half: bytes = b""

    @classmethod
    def of(cls, properties: Properties) -> TaskReader:
        """Split the secrets of ``properties``, once per query: a pad must not serve twice."""
        plain = pickle.dumps(properties.part(secret=True))
        pad = secrets.token_bytes(len(plain))
        return cls(pad, _xor(plain, pad))

    def split(self, partitions: Iterable[InputPartition]) -> list[InputPartition]:
        """Return ``partitions`` without secrets, as Spark may see them."""
        return [self._split(one) if isinstance(one, RangePartition) else one for one in partitions]

    def _split(self, one: RangePartition) -> _SplitPartition:
        public = evolve(one, properties=one.properties.part(secret=False))
        return _SplitPartition(public, self.other_half)

    def joined(self, partition: InputPartition) -> Any:
        """Restore a partition without secrets; return any other one unchanged."""
        if not isinstance(partition, _SplitPartition):
            return partition
        hidden = pickle.loads(_xor(partition.half, self.half))
        return evolve(partition.public, properties=partition.public.properties | hidden)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        if partition is None or type(partition) is InputPartition:
            return iter(())  # Spark makes one itself, or None, for a batch that has none.
        joined = self.joined(partition)
        if isinstance(joined, (PrefetchedPartition, RangePartition)):
            return joined.read()
        raise TypeError(f"not a partition of this source: {partition!r}")


def _xor(one: bytes, other: bytes) -> bytes:
    assert len(one) == len(other), "they belong together"
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
