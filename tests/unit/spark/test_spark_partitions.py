"""Partitions as values: their schema, their way to another process, and what they show."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from kinesis_publishers import (
    Properties,
    SequenceNumber,
    ShardRange,
    StartingPosition,
)
from kinesis_publishers.config import SourceConfig
from kinesis_publishers_spark.partitions import (
    PrefetchedPartition,
    RangePartition,
    TaskReader,
)
from kinesis_publishers_spark.schema import ARROW_SCHEMA
from tests.unit.spark.spark_builders import rows_of, shard

SECRET = "not-to-be-shown"

PICKLERS: list[Callable[[Any], bytes]] = [pickle.dumps, cloudpickle.dumps]

_PLUGIN = "kinesis_publishers.testing.fakes:ScriptedPublisherFactory"


def range_partition() -> RangePartition:
    properties = Properties.parse(
        {
            "aws.region": "us-east-1",
            "aws.credentials.provider.basic.accesskeyid": "id",
            "aws.credentials.provider.basic.secretkey": SECRET,
            "kinesis.streams": "orders",
        }
    )
    one = ShardRange(
        shard=shard(0),
        start=StartingPosition.at(SequenceNumber("4")),
        end=SequenceNumber("9"),
    )
    return RangePartition(properties, (one,))


def test_a_prefetched_partition_yields_what_was_put_in() -> None:
    rows = [
        rows_of(shard(0), [1, 2], [b"", "zażółć \U0001f980".encode()]),
        rows_of(shard(1), [7], [bytes(1000)]),
    ]
    read = list(PrefetchedPartition.of(rows).read())
    assert read == rows
    assert all(ARROW_SCHEMA.equals(one.schema) for one in read)


def test_a_slice_travels_without_the_rows_around_it() -> None:
    rows = rows_of(shard(0), range(100), [bytes(10_000)] * 100)
    partition = PrefetchedPartition.of([rows.slice(50, 2)])
    assert len(partition.ipc) < 30_000
    assert list(partition.read()) == [rows.slice(50, 2)]


@pytest.mark.parametrize("dumps", PICKLERS)
def test_a_prefetched_partition_can_be_pickled(dumps: Callable[[Any], bytes]) -> None:
    partition = PrefetchedPartition.of([rows_of(shard(0), [1], [b"x"])])
    loaded = pickle.loads(dumps(partition))
    assert loaded == partition
    assert list(loaded.read()) == list(partition.read())


@pytest.mark.parametrize(
    ("publisher", "expected"),
    [("EFO", "POLLING"), ("POLLING", "POLLING"), (_PLUGIN, _PLUGIN)],
)
def test_ranges_are_polled_although_the_stream_is_subscribed_to(
    publisher: str, expected: str
) -> None:
    given = {
        **range_partition().properties.to_dict(),
        "flink.stream.recordpublisher": publisher,
        "kinesis.stream.efo.consumername": "app",
    }
    partition = RangePartition.of(Properties.parse(given), range_partition().ranges)
    assert partition.properties.get(SourceConfig.record_publisher) == expected
    kept = partition.properties.to_dict()
    assert kept["aws.credentials.provider.basic.secretkey"] == SECRET
    assert partition.ranges == range_partition().ranges


def test_spark_takes_both_kinds_for_its_own_partitions() -> None:
    assert isinstance(range_partition(), InputPartition)
    assert isinstance(PrefetchedPartition.of([]), InputPartition)


def test_what_is_read_is_an_iterator_that_nothing_runs_before_the_first_row() -> None:
    # Reading this range would fail: the endpoint does not exist.
    assert isinstance(range_partition().read(), Iterator)
    assert isinstance(PrefetchedPartition.of([]).read(), Iterator)


def test_neither_payloads_nor_secrets_are_shown() -> None:
    partition = PrefetchedPartition.of([rows_of(shard(0), [1], [b"a payload"])])
    assert repr(partition) == f"PrefetchedPartition({len(partition.ipc)} bytes)"
    shown = repr(range_partition())
    assert SECRET not in shown
    assert shard(0).shard_id in shown


def test_a_partition_of_another_source_is_refused() -> None:
    class Other(InputPartition):
        pass

    with pytest.raises(TypeError, match="not a partition of this source"):
        TaskReader(b"").read(Other(1))


def test_a_partition_without_rows_yields_nothing() -> None:
    assert list(PrefetchedPartition.of([]).read()) == []
    with pa.ipc.open_stream(PrefetchedPartition.of([]).ipc) as reader:
        assert reader.schema == ARROW_SCHEMA


@pytest.mark.parametrize("dumps", PICKLERS)
def test_a_partition_of_ranges_travels_without_its_secrets(dumps: Callable[[Any], bytes]) -> None:
    partition = range_partition()
    tasks = TaskReader.of(partition.properties)
    (split,) = tasks.split([partition])
    travels, reader = dumps(split), dumps(TaskReader(tasks.half))
    assert SECRET.encode() in dumps(partition)
    assert SECRET.encode() not in travels + reader
    arrived = pickle.loads(reader).joined(pickle.loads(travels))
    assert arrived == partition
    assert arrived.properties.to_dict() == partition.properties.to_dict()


def test_the_halves_of_secrets_are_other_ones_in_each_query() -> None:
    properties = range_partition().properties
    one, other = TaskReader.of(properties), TaskReader.of(properties)
    assert not {one.half, one.other_half} & {other.half, other.other_half}
    # The driver's processes get what was split once: a second pad would not fit the first half.
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_partition_and_its_reader_show_no_half() -> None:
    tasks = TaskReader.of(range_partition().properties)
    shown = repr((tasks, tasks.split([range_partition()])))
    assert SECRET not in shown
    assert repr(tasks.half) not in shown
    assert repr(tasks.other_half) not in shown


def test_records_are_not_split() -> None:
    prefetched = PrefetchedPartition.of([])
    assert TaskReader(b"").split([prefetched]) == [prefetched]
