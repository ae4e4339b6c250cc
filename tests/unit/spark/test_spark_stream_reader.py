"""The reader before it has read anything: limits, pickling, no side effects."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kinesis_publishers.errors import CheckpointError, ConfigError
from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.options import SparkConfig
from kinesis_publishers_spark.stream_reader import KinesisStreamReader
from tests.unit.spark.spark_builders import (
    after,
    offset,
    shard,
    starts_no_thread,
    tasks_between,
)
from tests.unit.spark.tip_sessions import TipSessions, place

if TYPE_CHECKING:
    from collections.abc import Callable


PLACE_3 = place(3)


def reader(**options: str) -> KinesisStreamReader:
    properties = parse_options({"streamName": "orders", "region": "eu-west-1", **options})
    return KinesisStreamReader(properties, SparkConfig.from_properties(properties))


def test_constructing_and_stopping_start_nothing() -> None:
    with starts_no_thread():
        one = reader()
        one.stop()
        one.stop()
        assert one.reportLatestOffset() is None


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_reader_can_be_pickled_also_after_it_has_planned(
    dumps: Callable[[Any], bytes],
) -> None:
    one = reader(maxRecordsPerTrigger="7")
    one.reportLatestOffset()
    loaded = pickle.loads(dumps(one))
    assert list(loaded.read(InputPartition(None))) == []


def test_spark_finds_admission_control_and_available_now() -> None:
    signature = inspect.signature(reader().latestOffset)
    assert len(signature.parameters) == 2
    signature.bind()  # Spark 4.0 and 4.1 pass nothing
    assert isinstance(reader(), SupportsTriggerAvailableNow)


LARGEST_LONG = 2**63 - 1


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        # Never ReadAllAvailable, which is how Trigger.Once shows.
        ({}, ReadMaxRows(LARGEST_LONG)),
        ({"maxRecordsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "2MiB"}, ReadMaxBytes(2 * 1024 * 1024)),
        ({"maxRecordsPerTrigger": "5", "maxBytesPerTrigger": "9"}, ReadMaxRows(5)),
    ],
)
def test_the_default_limit_is_the_configured_one(options: dict[str, str], limit: object) -> None:
    found = reader(**options).getDefaultReadLimit()
    assert found == limit
    # What Spark keeps of a limit between the two calls.
    assert ReadLimitRegistry().get(vars(found) | {"_type": type(found).__name__}) == limit


@pytest.mark.parametrize(
    ("options", "asked", "expected"),
    [
        ({}, None, BatchLimit()),
        ({}, ReadMaxRows(3), BatchLimit(records=3)),
        ({}, ReadMaxRows(LARGEST_LONG), BatchLimit()),
        ({"maxRecordsPerTrigger": "5"}, None, BatchLimit(records=5)),
        ({"maxRecordsPerTrigger": "5"}, ReadMaxRows(3), BatchLimit(records=3)),
        (
            {"maxRecordsPerTrigger": "5", "maxBytesPerTrigger": "9"},
            ReadMaxRows(5),
            BatchLimit(records=5, payload_bytes=9),
        ),
        (
            {"maxRecordsPerTrigger": "5"},
            ReadMaxBytes(8),
            BatchLimit(records=5, payload_bytes=8),
        ),
    ],
)
def test_both_configured_limits_hold_although_spark_carries_one(
    options: dict[str, str], asked: Any, expected: BatchLimit
) -> None:
    sessions = TipSessions(9)
    sessions.reader(**{"kinesis.spark.planner": "prefetch"}, **options).latestOffset(PLACE_3, asked)
    assert sessions.calls == [f"prefetch.plan(3, {expected})"]


@pytest.mark.parametrize("asked", [ReadMinRows(5), ReadMaxFiles(5), ReadLimit()])
def test_a_limit_without_a_meaning_here_is_an_error(asked: ReadLimit) -> None:
    sessions = TipSessions(9)
    with pytest.raises(ConfigError, match=f"{type(asked).__name__}.*maxRecordsPerTrigger"):
        sessions.reader().latestOffset(PLACE_3, asked)
    assert sessions.calls == []


def test_a_checkpoint_of_another_source_is_refused_by_every_call() -> None:
    one, foreign = reader(), {"index": 5}
    with pytest.raises(CheckpointError):
        one.latestOffset(foreign)
    with pytest.raises(CheckpointError):
        one.partitions(foreign, foreign)
    with pytest.raises(CheckpointError):
        one.commit(foreign)


def test_partitions_need_nothing_but_their_two_offsets() -> None:
    start = offset({shard(0): after(3), shard(1): after(3)})
    end = offset({shard(0): after(9), shard(1): after(3)}, first={shard(0): 5})
    with starts_no_thread():
        one = reader()
        assert tasks_between(one, start, start) == []
        (partition,) = tasks_between(one, start, end)
    assert [r.shard for r in partition.ranges] == [shard(0)]


def test_ranges_are_spread_over_as_many_partitions_as_configured() -> None:
    keys = [shard(number) for number in range(5)]
    start = offset(dict.fromkeys(keys, after(3)))
    end = offset(dict.fromkeys(keys, after(9)), first=dict.fromkeys(keys, 4))
    planned, again = (
        tasks_between(reader(**{"kinesis.spark.parallelism": "2"}), start, end) for _ in range(2)
    )
    assert sorted(len(one.ranges) for one in planned) == [2, 3]
    assert planned == again
