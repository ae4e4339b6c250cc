"""``spark.read``: the records between two positions, the same ones for every action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader

from tests.integration.spark.spark_harness import (
    assert_in_order_per_key,
    by_place,
    numbered,
    numbers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Batches:
    """DataFrames over streams of the local server."""

    def __init__(self, spark: SparkSession, server: LocalKinesis) -> None:
        self.spark = spark
        self.server = server

    def load(self, streams: str = "flights", **options: object) -> DataFrame:
        given = {f"kinesis.{key.replace('_', '.')}": str(value) for key, value in options.items()}
        read = self.spark.read.format("kinesis")
        return read.options(**self.server.properties(streams), **given).load()

    def put(self, start: int, stop: int, *, stream: str = "flights") -> None:
        self.server.put_many(stream, numbered(start, stop))

    def shards_read_since(self, call: int) -> set[str | None]:
        return {one.shard_id for one in self.server.calls("GetRecords")[call:]}


@pytest.fixture
def batches(spark: SparkSession, local_kinesis: LocalKinesis, flights: str) -> Batches:
    return Batches(spark, local_kinesis)


@pytest.fixture(params=[False, True], ids=["not pushed", "pushed"])
def pushes_filters(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param
    spark.conf.unset(PUSHDOWN)


def test_every_action_sees_the_rows_that_were_there_at_load(batches: Batches) -> None:
    batches.put(0, 300)
    frame = batches.load()
    first = frame.collect()
    batches.put(300, 400)
    assert by_place(frame.collect()) == by_place(first)
    assert sorted(numbers(first)) == list(range(300))
    assert_in_order_per_key(by_place(first))
    assert (frame.count(), batches.load().count()) == (300, 400)


def test_named_shards_are_read_alone(batches: Batches) -> None:
    batches.put(0, 200)
    stored = batches.server.records("flights")
    shard_id = min(stored)
    rows = batches.load(shards=f"flights:{shard_id}").collect()
    assert {row.shardId for row in rows} == {shard_id}
    assert len(rows) == len(stored[shard_id])


def test_single_shards_begin_and_end_at_their_own_positions(batches: Batches) -> None:
    batches.put(0, 200)
    stored = {
        shard_id: [one.sequence_number for one in records]
        for shard_id, records in batches.server.records("flights").items()
    }
    one, other, *_ = sorted(stored)

    def positions(kind: str, index: int, *shard_ids: str) -> str:
        return orjson.dumps(
            {
                shard_id: {"iteratorType": kind, "iteratorPosition": stored[shard_id][index]}
                for shard_id in shard_ids
            }
        ).decode()

    rows = batches.load(
        stream_initpos_shards=positions("AFTER_SEQUENCE_NUMBER", 2, one, other),
        stream_endpos_shards=positions("AFTER_SEQUENCE_NUMBER", 9, one),
    ).collect()
    read = {
        shard_id: [row.sequenceNumber for row in by_place(rows) if row.shardId == shard_id]
        for shard_id in stored
    }
    expected = {**stored, one: stored[one][3:10], other: stored[other][3:]}
    assert read == expected


def test_several_streams_with_closed_and_empty_shards_are_read_whole(batches: Batches) -> None:
    batches.server.create_stream("orders", 1)
    batches.put(0, 100)
    batches.put(100, 150, stream="orders")
    batches.server.reshard("flights", 2)
    batches.server.reshard("orders", 3)
    batches.put(150, 160)
    frame = batches.load("flights,orders")
    frame.createOrReplaceTempView("batch")
    counts = batches.spark.sql(
        "SELECT streamName, count(*) AS records FROM batch GROUP BY streamName ORDER BY 1"
    ).collect()
    assert [(row.streamName, row.records) for row in counts] == [("flights", 110), ("orders", 50)]
    assert sorted(numbers(frame.collect())) == list(range(160))


def test_filters_have_the_same_rows_pushed_down_or_not(
    batches: Batches, pushes_filters: bool
) -> None:
    batches.put(0, 200)
    frame = batches.load()
    rows = frame.collect()
    # Each set of filters that is pushed down is planned on its own, with the end of the first one.
    batches.put(200, 250)
    wanted = "shardId-000000000002"
    call = len(batches.server.calls("GetRecords"))
    filtered = frame.where(F.col("shardId") == wanted).collect()
    is_pushed = pushes_filters and hasattr(DataSourceReader, "pushFilters")  # since Spark 4.1
    assert batches.shards_read_since(call) == (
        {wanted} if is_pushed else {row.shardId for row in rows}
    )
    assert by_place(filtered) == by_place([row for row in rows if row.shardId == wanted])
    arrivals = [row.approximateArrivalTimestamp for row in rows]
    for column, count in (
        (
            F.col("approximateArrivalTimestamp").between(arrivals[0], arrivals[0]),
            arrivals.count(arrivals[0]),
        ),
        (F.col("approximateArrivalTimestamp") > max(arrivals), 0),
        (F.col("streamName").isin("orders", "nothing"), 0),
    ):
        assert frame.where(column).count() == count


def test_filters_on_arrival_times_are_not_evaluated_by_reading_everything(
    batches: Batches, spark: SparkSession
) -> None:
    batches.put(0, 200)
    spark.conf.set(PUSHDOWN, True)
    try:
        before = len(batches.server.calls("GetRecords"))
        assert batches.load().where("approximateArrivalTimestamp < '2020-01-01'").count() == 0
        # Each shard is looked at, which Spark 4.0 asks for twice, and a task finds that it begins
        # behind the end.
        assert len(batches.server.calls("GetRecords")) - before <= 3 * 4
    finally:
        spark.conf.unset(PUSHDOWN)


def test_what_cannot_be_read_is_said_before_aws_is_asked(batches: Batches) -> None:
    with pytest.raises(AnalysisException, match="initpos = LATEST begins after the last record"):
        batches.load(stream_initpos="LATEST").collect()
    with pytest.raises(AnalysisException, match=r"(?s)2 configuration problems.*TRIM_HORIZON"):
        batches.load(stream_endpos="TRIM_HORIZON", stream_initpos="SOMEWHERE")
    assert {call.operation for call in batches.server.calls()} <= {"DescribeStreamSummary"}
