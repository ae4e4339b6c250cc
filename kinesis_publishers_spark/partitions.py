"""Input partitions: values that travel from the driver to the tasks, and how a task reads them."""

from __future__ import annotations

import hashlib
import pickle
import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import Factory, field, frozen
from pyspark.sql.datasource import InputPartition

from kinesis_publishers.config import SparkConfig
from kinesis_publishers.range_publishers import as_polling
from kinesis_publishers_spark.schema import arrow_schema, to_spark_arrow, together
from kinesis_publishers_spark.worker_cache import lend_reader
from kinesis_publishers_spark.worker_gc import freeze_in_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_publishers import Properties, ShardRange

__all__ = ["PrefetchedPartition", "RangePartition", "TaskReader", "read_partition"]


# What goes through the JVM in partitions costs more there than zstd does here, which is quick to
# give up on what is compressed or encrypted already (docs/decisions, number 5).
_IPC_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@frozen(repr=False)
class PrefetchedPartition(InputPartition):
    """Records that the driver has fetched, as an Arrow IPC stream."""

    # Not bytes: pickling those copies them once more.
    ipc: pa.Buffer

    @classmethod
    def of(
        cls, rows: Iterable[pa.RecordBatch], *, include_metadata: bool = False
    ) -> PrefetchedPartition:
        """Return a partition of ``rows``, which have the source's schema."""
        sink = pa.BufferOutputStream()
        schema = arrow_schema(include_metadata=include_metadata)
        with pa.ipc.new_stream(sink, schema, options=_IPC_OPTIONS) as writer:
            for batch in rows:
                writer.write_batch(batch)
        return cls(sink.getvalue())

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records."""
        freeze_in_task()
        with pa.ipc.open_stream(self.ipc) as reader:
            yield from reader

    def __repr__(self) -> str:
        return f"PrefetchedPartition({self.ipc.size} bytes)"


@frozen
class RangePartition(InputPartition):
    """Exact ranges of records, which the task reads from Kinesis.

    Attributes:
        properties: how they are read.
        ranges: at most one per shard.
        expected_bytes: about how much they are together; ``None`` if that is not known.
    """

    properties: Properties
    ranges: tuple[ShardRange, ...]
    expected_bytes: int | None = None

    @classmethod
    def of(cls, properties: Properties, ranges: Iterable[ShardRange]) -> RangePartition:
        """Return the task that reads ``ranges`` again, never by subscription.

        A subscription belongs to one reader per shard and consumer: a task's would end the one of
        the driver.
        """
        return cls(as_polling(properties), tuple(ranges))

    @classmethod
    def planned(
        cls, properties: Properties, ranges: Iterable[ShardRange], expected_bytes: int | None
    ) -> RangePartition:
        """Return the task that reads ``ranges``, with the publisher that the properties select.

        Args:
            properties: with EFO they name the stream consumers, and no registration: an executor
                registers nothing.
            ranges: what the task reads.
            expected_bytes: about how much that is; a little is not worth a subscription.
        """
        return cls(properties, tuple(ranges), expected_bytes)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as they arrive: those of one shard in order, shards interleaved.

        Raises:
            DataLossError: a range does not begin or end with its own records any more.
        """
        has_metadata = SparkConfig.from_properties(self.properties).include_metadata
        with (
            lend_reader(self.properties) as reader,
            closing(reader.read(self.ranges, self.expected_bytes)) as arriving,
        ):
            for taken in arriving:
                yield together(
                    [to_spark_arrow(one.batch, include_metadata=has_metadata) for one in taken]
                )


@frozen
class _SealedPartition(InputPartition):
    """A :class:`RangePartition` as it travels: its properties may have secrets."""

    mark: bytes = field(repr=False)
    sealed: bytes = field(repr=False)


@frozen
class TaskReader:
    """What tasks get of a query's reader: the key of its partitions, and no configuration.

    Partitions and readers travel apart, and are kept apart: neither tells a secret by itself.
    """

    key: bytes = field(default=Factory(lambda: secrets.token_bytes(32)), repr=False)

    def seal(self, partitions: Iterable[InputPartition]) -> list[InputPartition]:
        """Return ``partitions`` as Spark may have them; records have nothing to hide from it."""
        return [self._sealed(one) if isinstance(one, RangePartition) else one for one in partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        # For a batch without any, Spark makes a partition itself.
        is_empty = type(partition) is InputPartition
        return iter(()) if is_empty else read_partition(self.opened(partition))

    def _sealed(self, partition: RangePartition) -> _SealedPartition:
        plain = pickle.dumps(partition)
        # As a synthetic nonce (RFC 5297): two partitions that differ have different pads.
        mark = self._mark(plain)
        return _SealedPartition(mark, self._masked(plain, mark))

    def opened(self, partition: InputPartition) -> Any:
        """Return the partition that was sealed, any other one as it is."""
        if not isinstance(partition, _SealedPartition):
            return partition
        plain = self._masked(partition.sealed, partition.mark)
        if not secrets.compare_digest(self._mark(plain), partition.mark):
            raise ValueError("this partition is not of this query, or was changed on its way")
        return pickle.loads(plain)

    def _mark(self, plain: bytes) -> bytes:
        return hashlib.blake2b(plain, key=self.key).digest()

    def _masked(self, data: bytes, mark: bytes) -> bytes:
        pad = hashlib.shake_256(self.key + mark).digest(len(data))
        return (int.from_bytes(data) ^ int.from_bytes(pad)).to_bytes(len(data))


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of either kind of partition; depends on nothing else."""
    if isinstance(partition, (PrefetchedPartition, RangePartition)):
        return partition.read()
    raise TypeError(f"not a partition of this source: {partition!r}")
