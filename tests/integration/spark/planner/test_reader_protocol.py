"""The stream reader as each version of Spark calls it, against the local server."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from kinesis_publishers_spark import KinesisDataSource
from tests.integration.spark.planner.planner_harness import Row, eventually, options, put, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.stream_reader import KinesisStreamReader


@pytest.fixture
def make_reader(server: LocalKinesis) -> Iterator[Callable[..., KinesisStreamReader]]:
    """Return a function that makes the reader of a new process."""
    readers: list[KinesisStreamReader] = []

    def make(position: str = "TRIM_HORIZON", **more: str) -> KinesisStreamReader:
        # Spark lower-cases the keys of options.
        spark_options = {k.lower(): v for k, v in options(server, position, **more).items()}
        source = pickle.loads(pickle.dumps(KinesisDataSource(spark_options)))
        reader: KinesisStreamReader = source.streamReader(StructType())
        readers.append(reader)
        return reader

    yield make
    for reader in readers:
        reader.stop()


def over_the_socket(value: Any) -> Any:
    return json.loads(json.dumps(value))


def wait_for_end(ask: Callable[[], Any], start: Any) -> Any:
    """Ask for the latest offset until it differs from ``start``, as each trigger does."""
    found: list[Any] = []

    def has_moved() -> bool:
        found.append(over_the_socket(ask()))
        return json.dumps(found[-1]) != json.dumps(start)

    eventually(has_moved, "a new offset")
    return found[-1]


def rows_of(reader: KinesisStreamReader, start: Any, end: Any) -> list[Row]:
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    in_the_task = pickle.loads(pickle.dumps(reader))
    assert [type(one) for one in in_the_task.read(partitions[0])] if partitions else True
    return read(partitions, in_the_task.read)


def test_nothing_new_returns_the_very_text_that_was_given(
    server: LocalKinesis, make_reader: Callable[..., KinesisStreamReader]
) -> None:
    reader = make_reader("LATEST")
    start = over_the_socket(reader.initialOffset())
    for limit in (ReadAllAvailable(), ReadMaxRows(5), None):
        assert reader.latestOffset(start, limit) is start
    assert list(reader.partitions(start, start)) == []


def test_spark_4_0_asks_without_arguments(
    server: LocalKinesis, make_reader: Callable[..., KinesisStreamReader]
) -> None:
    reader = make_reader()
    end = over_the_socket(reader.initialOffset())
    expected: list[Row] = []
    rows: list[Row] = []
    for part in range(3):
        expected += put(server, [f"{part}-{n}" for n in range(5)])
        while len(rows) < len(expected):
            start, end = end, wait_for_end(reader.latestOffset, end)
            rows += rows_of(reader, start, end)
            reader.commit(end)
    assert sorted(rows) == sorted(expected)
    assert over_the_socket(reader.latestOffset()) == end


@pytest.mark.parametrize("committed", [True, False])
def test_spark_4_0_restarts_where_its_log_ends(
    server: LocalKinesis, make_reader: Callable[..., KinesisStreamReader], committed: bool
) -> None:
    reader = make_reader()
    begin = over_the_socket(reader.initialOffset())
    put(server, [f"{n}" for n in range(10)])
    eventually(lambda: (reader.reportLatestOffset() or {})["bufferedRecords"] == 10, "10 records")
    end = over_the_socket(reader.latestOffset())
    rows = rows_of(reader, begin, end)
    reader.stop()

    after_restart = make_reader()
    if committed:
        assert list(after_restart.partitions(end, end)) == []
    else:
        # Its start was never written: Spark asks for the initial offset again.
        begin_again = over_the_socket(after_restart.initialOffset())
        assert sorted(rows_of(after_restart, begin_again, end)) == sorted(rows)
    assert over_the_socket(after_restart.latestOffset()) == end
    expected = put(server, ["new"] * 4)
    new: list[Row] = []
    following = end
    while len(new) < 4:
        begin, following = following, wait_for_end(after_restart.latestOffset, following)
        new += rows_of(after_restart, begin, following)
    assert sorted(new) == sorted(expected)


def is_primitive(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_primitive(one) for key, one in value.items())
    return isinstance(value, (int, str, bool))


def test_the_lag_is_made_of_what_spark_can_show(
    server: LocalKinesis, make_reader: Callable[..., KinesisStreamReader]
) -> None:
    reader = make_reader()
    assert reader.reportLatestOffset() is None
    put(server, ["xy"] * 10)
    reader.initialOffset()
    before_any_answer = reader.reportLatestOffset()
    assert is_primitive(before_any_answer)
    eventually(lambda: (reader.reportLatestOffset() or {})["bufferedRecords"] == 10, "10 records")
    report = reader.reportLatestOffset()
    assert report is not None
    assert is_primitive(report)
    assert json.loads(json.dumps(report)) == report
    assert report["bufferedBytes"] == 20
    assert report["shards"] == 2
    assert set(report["millisBehindLatest"]) == {
        "orders/shardId-000000000000",
        "orders/shardId-000000000001",
    }
