"""A Spark session for all tests, and a running query whose micro-batches a test can look at."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

# Spark starts its workers with "python3" otherwise, which need not be this interpreter.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, Row, SparkSession

from kinesis_publishers_spark import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql.streaming import StreamingQuery

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores that knows ``format("kinesis")``."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kinesis-publishers tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@define
class RunningQuery:
    """A query that collects every micro-batch into memory."""

    query: StreamingQuery | None = None
    batches: dict[int, list[Row]] = field(factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def collect(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; a failure of the query is raised."""
        assert self.query is not None
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            self.query.awaitTermination(0.1)
            assert time.monotonic() < deadline, f"not within the time: {self.query.status}"

    def wait_for_rows(self, count: int) -> None:
        self.wait_until(lambda: len(self.rows) >= count)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@define
class QueryRunner:
    """Starts queries over a stream of the local server, all with the same checkpoint."""

    spark: SparkSession
    server: LocalKinesis
    checkpoint: Path

    @contextmanager
    def run(
        self,
        stream: str = "flights",
        *,
        sink: Callable[[RunningQuery, DataFrame, int], None] | None = None,
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> Iterator[RunningQuery]:
        """Run a query; ``sink(running, frame, batch_id)`` sees its micro-batches."""
        running = RunningQuery()

        def for_each_batch(frame: DataFrame, batch_id: int) -> None:
            if sink is None:
                running.collect(frame, batch_id)
            else:
                sink(running, frame, batch_id)

        writer = (
            self.spark.readStream.format("kinesis")
            .options(**{**self.server.properties(stream), **options})
            .load()
            .writeStream.foreachBatch(for_each_batch)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
        )
        running.query = writer.start()
        try:
            yield running
        finally:
            running.stop()


FROM_THE_START = {"kinesis.stream.initpos": "TRIM_HORIZON"}


@pytest.fixture
def runner(spark: SparkSession, local_kinesis: LocalKinesis, tmp_path: Path) -> QueryRunner:
    return QueryRunner(spark, local_kinesis, tmp_path / "checkpoint")


@pytest.fixture
def flights(local_kinesis: LocalKinesis) -> str:
    """An empty stream of four shards."""
    local_kinesis.create_stream("flights", 4)
    return "flights"


def numbered(start: int, stop: int, *, keys: int = 50) -> list[tuple[str, bytes]]:
    """Return records whose payload is their number and whose key repeats every ``keys``."""
    return [(f"key-{number % keys}", b"%d" % number) for number in range(start, stop)]


def numbers(rows: list[Row]) -> list[int]:
    """Return the numbers in the payloads of ``rows``, in their order."""
    return [int(row.data) for row in rows]


def assert_in_order_per_key(rows: list[Row]) -> None:
    """Check that the numbers of each partition key only grow."""
    last: dict[str, int] = {}
    for row in rows:
        assert int(row.data) > last.get(row.partitionKey, -1), row
        last[row.partitionKey] = int(row.data)
