"""What Spark calls for ``spark.read``: exact ranges of records, planned on the driver."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_publishers.readers import Narrowing, plan_batch
from kinesis_publishers_spark.batch_filters import PushedFilters
from kinesis_publishers_spark.partitions import RangePartition, TaskReader
from kinesis_publishers_spark.planning.chunks import balanced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from kinesis_publishers import Properties
    from kinesis_publishers.config import SparkConfig
    from kinesis_publishers.readers import BatchBounds

__all__ = ["KinesisBatchReader"]


class KinesisBatchReader(DataSourceReader):
    """Reads what stands between two positions, once.

    Spark plans a batch when an action first needs it, and again for other filters that it pushes
    down, in processes that share nothing. Where it ends follows from ``bounds`` alone, so that all
    actions see the same records.

    Args:
        properties: the whole configuration.
        config: the part of it that only the Spark source reads.
        bounds: between which positions the records stand.
        tasks: reads the partitions in tasks.
    """

    def __init__(
        self,
        properties: Properties,
        config: SparkConfig,
        bounds: BatchBounds,
        *,
        tasks: TaskReader | None = None,
    ) -> None:
        self._properties = properties
        self._config = config
        self._bounds = bounds
        self._tasks = tasks or TaskReader.of(properties)
        self._narrowing = Narrowing()

    def __reduce__(self) -> tuple[object, ...]:
        return TaskReader, (self._tasks.half,)

    @property
    def pushFilters(self) -> _FilterPushdown:
        """What Spark calls with the filters of a query, if its configuration allows it."""
        return _FilterPushdown(self)

    def narrow(self, filters: Iterable[Filter]) -> tuple[Filter, ...]:
        """Read no more than ``filters`` need; return those that Spark still has to evaluate."""
        pushed = PushedFilters.of(filters)
        self._narrowing = pushed.narrowing
        return pushed.rest

    def partitions(self) -> list[InputPartition]:
        """Return the partitions: the shards that have records, spread over the tasks."""
        ranges = asyncio.run(plan_batch(self._properties, self._bounds, self._narrowing))
        most = self._config.parallelism or os.cpu_count() or 1
        # By polling: a subscription belongs to one reader, and this is not the only action.
        groups = balanced(ranges, None, most)
        return self._tasks.split(RangePartition.of(self._properties, group) for group in groups)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        return self._tasks.read(partition)


@frozen
class _FilterPushdown:
    """``pushFilters`` of a reader, which works whether Spark calls it or not.

    While ``spark.sql.python.filterPushdown.enabled`` is off, the default, Spark refuses every
    reader whose class overrides the method, in case its rows depend on the filters. Ours do not:
    what is not pushed down is evaluated by Spark. So it is the base class's method to whoever
    asks, and narrows what is read for whoever calls it.
    """

    _reader: KinesisBatchReader

    @property
    def __func__(self) -> object:
        # Absent before Spark 4.1, which never asks.
        return getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Iterable[Filter]) -> Iterable[Any]:
        return self._reader.narrow(filters)
