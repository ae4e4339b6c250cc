"""Input partitions: values that travel from the driver to the tasks, and how a task reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import InputPartition

from kinesis_publishers import (
    Delivery,
    DeliverySink,
    KinesisDataFetcher,
    Properties,
    ShardKey,
    ShardRange,
)
from kinesis_publishers.config import SourceConfig
from kinesis_publishers.config.options import fanout, publisher
from kinesis_publishers_spark.event_loop import iterate
from kinesis_publishers_spark.schema import ARROW_SCHEMA, to_spark_arrow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

__all__ = ["PrefetchedPartition", "RangePartition", "read_partition"]


@frozen(repr=False)
class PrefetchedPartition(InputPartition):
    """Records that the driver has fetched, as an Arrow IPC stream."""

    ipc: bytes

    @classmethod
    def of(cls, rows: Iterable[pa.RecordBatch]) -> PrefetchedPartition:
        """Return a partition of ``rows``, which have the source's schema."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ARROW_SCHEMA) as writer:
            for batch in rows:
                writer.write_batch(batch)
        return cls(sink.getvalue().to_pybytes())

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records."""
        with pa.ipc.open_stream(self.ipc) as reader:
            yield from reader

    def __repr__(self) -> str:
        return f"PrefetchedPartition({len(self.ipc)} bytes)"


@frozen
class RangePartition(InputPartition):
    """Exact ranges of records, which the task reads from Kinesis."""

    properties: Properties
    ranges: tuple[ShardRange, ...]

    @classmethod
    def of(cls, properties: Properties, ranges: Iterable[ShardRange]) -> RangePartition:
        """Return the task that reads ``ranges``, never by subscription.

        A subscription belongs to one reader per shard and consumer: a task's would end the one of
        the driver, and that of a speculative copy the first one's.
        """
        if SourceConfig.from_properties(properties).record_publisher == "EFO":
            polling = {
                publisher.RECORD_PUBLISHER.full_key: "POLLING",
                # An executor need not have what only the driver uses.
                fanout.HTTP2_CLIENT.full_key: fanout.HTTP2_CLIENT.default.value,
            }
            properties = Properties.parse({**properties.to_dict(), **polling})
        return cls(properties, tuple(ranges))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, shard by shard in the order of ``ranges``: the same each time.

        Raises:
            DataLossError: the range does not begin or end with its own records any more.
        """
        yield from iterate(self._read())

    async def _read(self) -> AsyncIterator[pa.RecordBatch]:
        # The shards are read at once, but a task yields them one after the other: what is read
        # again is part of one micro-batch, which the driver had in memory before.
        collected = _Collector()
        async with KinesisDataFetcher.from_properties(self.properties, collected) as fetcher:
            await fetcher.run_ranges(self.ranges)
        for one in self.ranges:
            for rows in collected.rows.get(one.shard, ()):
                yield rows


class _Collector(DeliverySink):
    def __init__(self) -> None:
        self.rows: dict[ShardKey, list[pa.RecordBatch]] = {}

    async def deliver(self, delivery: Delivery) -> None:
        self.rows.setdefault(delivery.shard.key, []).append(to_spark_arrow(delivery.batch))
        delivery.release()


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of either kind of partition; depends on nothing else."""
    if isinstance(partition, (PrefetchedPartition, RangePartition)):
        return partition.read()
    raise TypeError(f"not a partition of this source: {partition!r}")
