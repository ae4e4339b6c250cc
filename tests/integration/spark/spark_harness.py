"""A running query whose micro-batches a test can look at."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

FROM_THE_START = {"kinesis.stream.initpos": "TRIM_HORIZON"}
#: For what the tests of the planners, without Spark, show of both.
MOSTLY_PREFETCH = pytest.mark.parametrize(
    "planner", ["prefetch", pytest.param("ranges", marks=pytest.mark.soak)]
)
_DEADLINE_SECONDS = 180.0


class SinkIsDownError(Exception):
    pass


@define
class RunningQuery:
    """A query that collects every micro-batch into memory."""

    query: StreamingQuery | None = None
    batches: dict[int, list[Row]] = field(factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def collect(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.collect()
        before = self.batches.setdefault(batch_id, rows)
        assert by_place(rows) == by_place(before), f"micro-batch {batch_id} changed"

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; a failure of the query is raised."""
        assert self.query is not None
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            self.query.awaitTermination(0.1)
            assert time.monotonic() < deadline, f"not within the time: {self.query.status}"

    def wait_for_the_end(self) -> None:
        """Wait until the query ends by itself."""
        assert self.query is not None
        assert self.query.awaitTermination(_DEADLINE_SECONDS), self.query.status

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
        earlier: RunningQuery | None = None,
        sink: Callable[[RunningQuery, DataFrame, int], None] | None = None,
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> Iterator[RunningQuery]:
        """Run a query; ``sink(running, frame, batch_id)`` sees its micro-batches.

        A query that goes on after an ``earlier`` one keeps its micro-batches, and reads the last of
        them again where the earlier one was stopped before Spark had noted it as done.
        """
        options = {**self.server.properties(stream), **options}
        frame = self.spark.readStream.format("kinesis").options(**options).load()
        with self.run_frame(frame, earlier=earlier, sink=sink, trigger=trigger) as running:
            yield running

    def run_into_a_failure(
        self, stream: str = "flights", *, trigger: dict[str, Any] | None = None, **options: str
    ) -> tuple[int, list[Row]]:
        """Run a query whose sink fails at the first micro-batch with rows; return that one."""

        def sink(running: RunningQuery, frame: DataFrame, batch_id: int) -> None:
            running.batches[batch_id] = frame.collect()
            if running.batches[batch_id]:
                raise SinkIsDownError

        with (
            pytest.raises(StreamingQueryException, match="SinkIsDownError"),
            self.run(stream, sink=sink, trigger=trigger, **options) as running,
        ):
            running.wait_for_the_end()
        return max(running.batches.items())

    @contextmanager
    def run_frame(
        self,
        frame: DataFrame,
        *,
        earlier: RunningQuery | None = None,
        sink: Callable[[RunningQuery, DataFrame, int], None] | None = None,
        trigger: dict[str, Any] | None = None,
    ) -> Iterator[RunningQuery]:
        """Run a query over a source that has been loaded; see :meth:`run`."""
        running = RunningQuery(batches=dict(earlier.batches) if earlier else {})

        def for_each_batch(frame: DataFrame, batch_id: int) -> None:
            if sink is None:
                running.collect(frame, batch_id)
            else:
                sink(running, frame, batch_id)

        writer = (
            frame.writeStream.foreachBatch(for_each_batch)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
        )
        running.query = writer.start()
        try:
            yield running
        finally:
            running.stop()


def numbered(start: int, stop: int, *, keys: int = 50) -> list[tuple[str, bytes]]:
    """Return records whose payload is their number and whose key repeats every ``keys``."""
    return [(f"key-{number % keys}", b"%d" % number) for number in range(start, stop)]


def by_place(rows: list[Row]) -> list[Row]:
    """Return rows in the order of their places in the stream: tasks finish in any order."""
    return sorted(rows, key=lambda row: (row.shardId, int(row.sequenceNumber)))


def numbers(rows: list[Row]) -> list[int]:
    """Return the numbers in the payloads of ``rows``, in their order."""
    return [int(row.data) for row in rows]


def assert_in_order_per_key(rows: list[Row]) -> None:
    """Check that the numbers of each partition key only grow."""
    last: dict[str, int] = {}
    for row in rows:
        assert int(row.data) > last.get(row.partitionKey, -1), row
        last[row.partitionKey] = int(row.data)
