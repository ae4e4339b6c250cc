"""A batch read before any call to AWS: what it refuses in the user's words, and its reader."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_publishers import Properties
from kinesis_publishers.errors import ConfigErrors
from kinesis_publishers_spark.aliases import parse_options
from kinesis_publishers_spark.batch_reader import KinesisBatchReader, checked_bounds
from kinesis_publishers_spark.options import SparkConfig
from kinesis_publishers_spark.stream_reader import refuse_ending_position
from tests.unit.spark.spark_builders import starts_no_thread

if TYPE_CHECKING:
    from collections.abc import Callable

_LOADED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_SHARD = "shardId-000000000000"

_PLUGIN = "kinesis_publishers.testing.fakes:ScriptedPublisherFactory"


def check(**options: object) -> None:
    """Check options, of which ``stream_`` ones stand for keys of the properties dict."""
    values = {
        f"kinesis.{key.replace('_', '.')}" if key.startswith("stream_") else key: str(one)
        for key, one in options.items()
    }
    properties = parse_options({"streamName": "orders", **values}, allow=[_PLUGIN])
    checked_bounds(properties, loaded_at=_LOADED_AT)


def instant(minutes: float) -> float:
    return (_LOADED_AT + minutes * _MINUTE).timestamp()


def one_shard(kind: str, marker: object = "") -> str:
    return f'{{"{_SHARD}": {{"iteratorType": "{kind}", "iteratorPosition": "{marker}"}}}}'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream_initpos": "LATEST"}, "initpos = LATEST begins after the last record"),
        ({"startingOffsets": "latest"}, "startingOffsets = LATEST begins after the last record"),
        ({"stream_initpos_shards": one_shard("LATEST")}, rf"{_SHARD} begins at LATEST"),
        (
            {"stream_initpos": "AT_TIMESTAMP", "stream_initpos_timestamp": instant(5)},
            r"initpos .* is later than kinesis\.stream\.endpos .* the time of loading",
        ),
        (
            {"startingPosition": "2025-12-01T00:00Z", "endingTimestamp": "2025-11-01T00:00Z"},
            r"startingPosition \(AT_T.* is later than endingTimestamp",
        ),
        (
            {
                "startingPosition": one_shard("AT_SEQUENCE_NUMBER", 100),
                "endingPosition": one_shard("AT_SEQUENCE_NUMBER", 99),
            },
            rf"{_SHARD} begins \(AT_SEQUENCE_NUMBER 100, by startingPosition .*endingPosition",
        ),
        (
            {"stream_initpos_shards": one_shard("AT_TIMESTAMP", int(instant(5) * 1000))},
            rf"{_SHARD} begins \(AT_TIMESTAMP .*later than it ends",
        ),
        (
            {"stream_recordpublisher": _PLUGIN},
            r"is kinesis_publishers\.testing\.fakes:ScriptedPublisherFactory, and spark\.read",
        ),
    ],
)
def test_what_a_batch_cannot_do_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigErrors, match=message) as raised:
        check(**options)
    assert len(raised.value.problems) == 1


def test_every_contradiction_is_named_at_once() -> None:
    with pytest.raises(ConfigErrors) as raised:
        check(
            stream_initpos="LATEST",
            stream_initpos_shards=one_shard("AT_SEQUENCE_NUMBER", 9),
            stream_endpos_shards=one_shard("AT_SEQUENCE_NUMBER", 3),
            stream_recordpublisher=_PLUGIN,
        )
    assert len(raised.value.problems) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": instant(-5)},
        {"startingPosition": one_shard("SHARD_END"), "stream_initpos": "TRIM_HORIZON"},
        {"startingPosition": one_shard("AFTER_SEQUENCE_NUMBER", 5), "endingPosition": "latest"},
        {
            "startingPosition": one_shard("AT_SEQUENCE_NUMBER", 5),
            "endingTimestamp": instant(-5),
        },
        {"consumerMode": "efo", "consumerName": "app", "stream_efo_registration": "lazy"},
    ],
)
def test_what_may_have_records_is_read(options: dict[str, object]) -> None:
    check(**options)


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"kinesis.stream.endpos": "LATEST"}, ["kinesis.stream.endpos"]),
        ({"endingTimestamp": "2026-01-01T00:00Z"}, ["endingTimestamp"]),
        ({"endingOffsets": "latest"}, ["endingOffsets"]),
        ({"endingPosition": one_shard("SHARD_END")}, ["endingPosition"]),
        (
            {"stream.endpos": "at_timestamp", "KINESIS.Stream.EndPos.Timestamp": "5"},
            ["stream.endpos", "KINESIS.Stream.EndPos.Timestamp"],
        ),
    ],
)
def test_a_streaming_query_refuses_each_option_for_an_end_once(
    options: dict[str, str], keys: list[str]
) -> None:
    properties = parse_options({"streamName": "orders", **options})
    with pytest.raises(ConfigErrors, match=r"is for spark.read.*availableNow") as raised:
        refuse_ending_position(properties)
    assert [str(one).split(" ", 1)[0] for one in raised.value.problems] == keys


def test_a_streaming_query_without_an_end_is_fine() -> None:
    refuse_ending_position(Properties.parse({"kinesis.streams": "orders"}))


_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def reader() -> KinesisBatchReader:
    given = parse_options({"streams": "orders", "region": "eu-west-1"})
    return KinesisBatchReader(given, SparkConfig.from_properties(given), _NOON)


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
