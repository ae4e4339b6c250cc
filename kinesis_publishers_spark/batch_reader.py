"""The reader of ``spark.read``: exact ranges of records, planned on the driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_publishers import Properties, ShardKey, StartingPosition
from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPositionConfig,
    SourceConfig,
)
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError
from kinesis_publishers.readers import (
    BatchBounds,
    Narrowing,
    PositionType,
    is_after,
    plan_batch,
    publisher_factory_class,
)
from kinesis_publishers_spark.boundary import at_boundary
from kinesis_publishers_spark.limits import balanced
from kinesis_publishers_spark.partitions import RangePartition, TaskReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter  # Spark before 4.1 does not have it

    from kinesis_publishers_spark.options import SparkConfig


class KinesisBatchReader(DataSourceReader):
    """Reads the records between two positions, once.

    Spark plans a batch at the first action, and again for each other set of pushed-down filters, in
    processes that share nothing. The end depends on ``loaded_at`` alone, so that all actions see
    the same records.

    Args:
        properties: the whole configuration.
        config: its part for the Spark source.
        loaded_at: the instant of LATEST, and the latest possible end.
    """

    def __init__(
        self,
        properties: Properties,
        config: SparkConfig,
        loaded_at: datetime,
        *,
        tasks: TaskReader | None = None,
    ) -> None:
        self._properties = properties
        self._config = config
        self._loaded_at = loaded_at
        self._tasks = tasks or TaskReader.of(properties)
        self._narrowing = Narrowing()

    def __reduce__(self) -> tuple[object, ...]:
        return TaskReader, (self._tasks.half,)

    @property
    def pushFilters(self) -> _FilterPushdown:
        """Spark calls it with the filters of a query if filter pushdown is enabled."""
        return _FilterPushdown(self)

    def narrow(self, filters: Iterable[Filter]) -> tuple[Filter, ...]:
        """Read no more than ``filters`` need; return those that Spark still has to evaluate."""
        pushed = PushedFilters.of(filters)
        self._narrowing = pushed.narrowing
        return pushed.rest

    @at_boundary
    def partitions(self) -> list[InputPartition]:
        """Return the partitions: the shards that have records, spread over the tasks."""
        ranges = asyncio.run(plan_batch(self._properties, self._loaded_at, self._narrowing))
        most = self._config.parallelism or os.cpu_count() or 1
        # By polling: a subscription belongs to one reader, and other actions may run.
        groups = balanced(ranges, None, most)
        return self._tasks.split(RangePartition.of(self._properties, group) for group in groups)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in a task."""
        return self._tasks.read(partition)


@frozen
class _FilterPushdown:
    """``pushFilters`` of a reader, which works whether Spark calls it or not.

    While ``spark.sql.python.filterPushdown.enabled`` is off, the default, Spark refuses every
    reader whose class overrides the method, in case its rows depend on the filters. The rows of
    this reader do not: Spark evaluates what is not pushed down. So the attribute looks like the
    base class's method, and a call narrows what is read.
    """

    _reader: KinesisBatchReader

    @property
    def __func__(self) -> object:
        # Absent before Spark 4.1, which never asks.
        return getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Iterable[Filter]) -> Iterable[Any]:
        return self._reader.narrow(filters)


def checked_bounds(properties: Properties, *, loaded_at: datetime) -> BatchBounds:
    """Return the positions between which a batch is read.

    Args:
        properties: the configuration as the user wrote it, for the messages.
        loaded_at: the instant of LATEST, and the latest possible end.

    Raises:
        ConfigErrors: names every problem; no call to AWS is made.
    """
    bounds = BatchBounds.from_properties(properties, loaded_at=loaded_at)
    if problems := list(_problems(properties, bounds)):
        raise ConfigErrors(problems)
    return bounds


def _problems(properties: Properties, bounds: BatchBounds) -> Iterator[ConfigError]:
    yield from _latest_problems(properties)
    yield from _order_problems(properties, bounds)
    yield from _shard_order_problems(properties, bounds)
    yield from _publisher_problems(properties)


def _latest_problems(properties: Properties) -> Iterator[ConfigError]:
    initial = InitialPositionConfig.from_properties(properties)
    advice = "a batch would read nothing. Start at TRIM_HORIZON or AT_TIMESTAMP"
    is_given = properties.is_given(InitialPositionConfig.position)
    if is_given and initial.position is PositionType.LATEST:
        key = properties.written_key(InitialPositionConfig.position)
        yield InvalidOptionError(f"{key} = LATEST begins after the last record: {advice}")
    for scope, position in initial.shards:
        if position == StartingPosition.latest():
            key = properties.written_key(InitialPositionConfig.shards)
            yield InvalidOptionError(
                f"{key}: {scope} begins at LATEST, after its last record: {advice}"
            )


def _order_problems(properties: Properties, bounds: BatchBounds) -> Iterator[ConfigError]:
    start, end = bounds.starts.default, bounds.ends.default
    if is_after(start, end):
        start_key = properties.written_key(InitialPositionConfig.position)
        end_key = properties.written_key(EndingPositionConfig.position)
        yield InvalidOptionError(
            f"{start_key} ({start}) is later than {end_key} ({end}): a batch must start before "
            "its end, and its end is the time of loading at the latest"
        )


def _shard_order_problems(properties: Properties, bounds: BatchBounds) -> Iterator[ConfigError]:
    for scope in sorted(bounds.scopes):
        shard = ShardKey(*scope)
        start, until = bounds.starts.of(shard), bounds.ends.of(shard)
        if start is not None and until is not None and is_after(start, until):
            start_key = properties.written_key(InitialPositionConfig.shards)
            end_key = properties.written_key(EndingPositionConfig.shards)
            yield InvalidOptionError(
                f"{scope} begins ({start}, by {start_key} or the stream's) later than it ends "
                f"({until}, by {end_key} or the stream's)"
            )


def _publisher_problems(properties: Properties) -> Iterator[ConfigError]:
    if not publisher_factory_class(properties).reads_ranges:
        name = properties.get(SourceConfig.record_publisher)
        yield InvalidOptionError(
            f"{properties.written_key(SourceConfig.record_publisher)} is {name}, and spark.read "
            "finds the ends of a batch with GetRecords, but a publisher of your own may deliver "
            "other records: remove it, set it to POLLING, or set reads_ranges = True in its "
            "class if it delivers the same ones"
        )


# Filters are distinguished by their names: Spark before 4.1 does not have their classes.
_EQUAL = ("EqualTo", "EqualNullSafe")
_SINCE = ("GreaterThan", "GreaterThanOrEqual", *_EQUAL)
_UNTIL = ("LessThan", "LessThanOrEqual", *_EQUAL)
# The columns of names, and what limits them.
_NAMES = {"shardid": "shard_ids", "streamname": "stream_names"}
_ARRIVAL = "approximatearrivaltimestamp"


@frozen
class PushedFilters:
    """The filters of a query that limit what is read.

    Attributes:
        narrowing: the records that the query needs.
        rest: the filters that Spark must evaluate for each row.
    """

    narrowing: Narrowing = field(factory=Narrowing)
    rest: tuple[Filter, ...] = ()

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> PushedFilters:
        """Sort ``filters``, all of which apply."""
        return reduce(_with_filter, filters, cls())


def _with_filter(pushed: PushedFilters, one: Filter) -> PushedFilters:
    column = _column(one)
    if column in _NAMES:
        return _with_names(pushed, one, _NAMES[column])
    if column == _ARRIVAL:
        pushed = evolve(pushed, narrowing=_with_arrival(pushed.narrowing, one))
    # The range exceeds the arrival times by a minute, and records are not in order of arrival:
    # Spark evaluates each row.
    return evolve(pushed, rest=(*pushed.rest, one))


def _column(one: Filter) -> str | None:
    path: Sequence[str] = getattr(one, "attribute", ())
    return path[0].lower() if len(path) == 1 else None


def _with_names(pushed: PushedFilters, one: Filter, field_name: str) -> PushedFilters:
    kind, value = type(one).__name__, getattr(one, "value", None)
    if kind == "IsNotNull":  # both columns always have a value
        return pushed
    if kind == "In" and isinstance(value, tuple):
        wanted = frozenset(value)
    elif kind in _EQUAL:
        wanted = frozenset((value,))
    else:
        return evolve(pushed, rest=(*pushed.rest, one))
    known: frozenset[str] | None = getattr(pushed.narrowing, field_name)
    change: dict[str, Any] = {field_name: wanted if known is None else known & wanted}
    return evolve(pushed, narrowing=evolve(pushed.narrowing, **change))


def _with_arrival(narrowing: Narrowing, one: Filter) -> Narrowing:
    kind, instant = type(one).__name__, getattr(one, "value", None)
    # Without a zone it would mean another instant on another machine.
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        return narrowing
    if kind in _SINCE:
        known = narrowing.arrived_since
        narrowing = evolve(narrowing, arrived_since=max(instant, known or instant))
    if kind in _UNTIL:
        known = narrowing.arrived_until
        narrowing = evolve(narrowing, arrived_until=min(instant, known or instant))
    return narrowing
