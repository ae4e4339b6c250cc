"""The batch reader before any call to AWS: how Spark sees it."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_publishers import Properties
from kinesis_publishers_spark.batch_reader import KinesisBatchReader, checked_bounds
from kinesis_publishers_spark.options import SparkConfig
from tests.unit.spark.spark_builders import starts_no_thread

if TYPE_CHECKING:
    from collections.abc import Callable

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def reader() -> KinesisBatchReader:
    given = Properties.from_spark_options({"streams": "orders", "region": "eu-west-1"})
    bounds = checked_bounds(given, loaded_at=_NOON)
    return KinesisBatchReader(given, SparkConfig.from_properties(given), bounds)


def test_constructing_starts_nothing() -> None:
    with starts_no_thread():
        reader()


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_reader_can_be_pickled(dumps: Callable[[Any], bytes]) -> None:
    assert pickle.loads(dumps(reader())).read(InputPartition(None)) is not None


@pytest.mark.parametrize("partition", [InputPartition(None), None], ids=["4.1", "4.0"])
def test_the_partition_that_spark_makes_for_an_empty_batch_has_no_rows(
    partition: InputPartition | None,
) -> None:
    assert list(reader().read(partition)) == []


@pytest.mark.skipif(
    not hasattr(DataSourceReader, "pushFilters"), reason="Spark before 4.1 pushes no filters down"
)
def test_spark_does_not_refuse_the_reader_while_pushdown_is_off() -> None:
    # What plan_data_source_read.py of Spark asks.
    push = reader().pushFilters
    assert getattr(push, "__func__", None) is DataSourceReader.pushFilters


@pytest.mark.skipif(
    not hasattr(DataSourceReader, "pushFilters"), reason="Spark before 4.1 pushes no filters down"
)
def test_filters_that_are_pushed_come_back_unless_they_are_exact() -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan

    filters = [
        EqualTo(("shardId",), "a"),
        GreaterThan(("approximateArrivalTimestamp",), _NOON),
        GreaterThan(("partitionKey",), "k"),
    ]
    assert list(reader().pushFilters(filters)) == filters[1:]
