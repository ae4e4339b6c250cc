"""The batch reader before any call to AWS: what it refuses, and how Spark sees it."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition
from spark_builders import starts_no_thread

from kinesis_publishers import Properties
from kinesis_publishers.config import SparkConfig
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers_spark.batch_reader import KinesisBatchReader, refuse_ending_position

if TYPE_CHECKING:
    from collections.abc import Callable

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def properties(**options: str) -> Properties:
    return Properties.from_spark_options(
        {
            "streams": "orders",
            "region": "eu-west-1",
            **{f"kinesis.stream.{key.replace('_', '.')}": value for key, value in options.items()},
        }
    )


def reader(**options: str) -> KinesisBatchReader:
    given = properties(**options)
    return KinesisBatchReader(given, SparkConfig.from_properties(given), loaded_at=_NOON)


def test_what_cannot_be_read_is_refused_without_asking_aws() -> None:
    with pytest.raises(ConfigErrors, match=r"initpos = LATEST begins after the last record"):
        reader(initpos="LATEST")


def test_constructing_starts_nothing() -> None:
    with starts_no_thread():
        reader()


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_reader_can_be_pickled(dumps: Callable[[Any], bytes]) -> None:
    assert pickle.loads(dumps(reader())).read(InputPartition(None)) is not None


def test_the_partition_that_spark_makes_for_an_empty_batch_has_no_rows() -> None:
    assert list(reader().read(InputPartition(None))) == []


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


def test_a_streaming_query_has_no_ending_position() -> None:
    refuse_ending_position(properties(initpos="TRIM_HORIZON"))
    with pytest.raises(ConfigErrors, match=r"endpos is for spark.read.*availableNow") as raised:
        refuse_ending_position(properties(endpos="AT_TIMESTAMP", endpos_timestamp="5"))
    assert len(raised.value.problems) == 2
