"""Runs micro-batches against the local server as Spark's engine does, without Spark."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import pytest
from attrs import define, evolve, field, frozen

from kinesis_publishers import Properties
from kinesis_publishers.clock import SystemClock
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.micro_batches import MicroBatches
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import TaskReader
from kinesis_publishers_spark.stream_reader import make_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from kinesis_publishers import Clock
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

STREAM = "orders"
FIRST_SHARD = "shardId-000000000000"
NO_LIMIT = BatchLimit()
# A closed shard says that it has ended with its last records, or only with the answer after them:
# a reader must not rely on either. For tests in which a shard ends.
BOTH_ENDS = pytest.mark.parametrize("late_end", [False, True], ids=["end with records", "late end"])
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.01
_READER = TaskReader(b"")

#: A row, as (shard id, sequence number, payload).
Row = tuple[str, str, bytes]


class ShiftedClock(SystemClock):
    """A clock that is some seconds ahead."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.seconds)


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until a thread or a process has made ``condition`` true."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        pause.wait(_POLL_SECONDS)


def pass_a_moment() -> None:
    """Let the clock of the server, which counts milliseconds, move on."""
    threading.Event().wait(0.005)


def wait_for_buffered(planner: MicroBatches, count: int) -> None:
    """Wait until the prefetch planner has fetched so many records."""

    def has_buffered() -> bool:
        lag = planner.lag()
        return lag is not None and lag.buffered_records >= count

    eventually(has_buffered, f"{count} records in the buffer")


def create_again(server: LocalKinesis) -> None:
    """Delete ``orders`` with its records, and create a stream of the same name."""
    with closing(server.client()) as client:
        client.delete_stream(StreamName=STREAM)
    server.create_stream(STREAM, 2)


def put(server: LocalKinesis, payloads: Iterable[bytes | str]) -> list[Row]:
    """Store one record per payload, spread over the shards; return the rows they must become."""
    pairs = [
        (f"key-{number}", payload.encode() if isinstance(payload, str) else payload)
        for number, payload in enumerate(payloads)
    ]
    stored = server.put_many(STREAM, pairs)
    return [(*place, data) for place, (_, data) in zip(stored, pairs, strict=True)]


def options(server: LocalKinesis, position: str = "TRIM_HORIZON", **more: str) -> dict[str, str]:
    """Return properties with short periods; ``more`` goes by the last parts of its keys."""
    return {
        **server.properties(STREAM),
        "kinesis.stream.initpos": position,
        "kinesis.shard.getrecords.intervalmillis": "20",
        "kinesis.shard.discovery.intervalmillis": "100",
        **{f"kinesis.{key.replace('_', '.')}": value for key, value in more.items()},
    }


def planner_of(
    kind: str, properties: dict[str, str], *, parallelism: int = 2, clock: Clock | None = None
) -> MicroBatches:
    """Return a planner by the name that ``kinesis.spark.planner`` has for it."""
    own = {"kinesis.spark.planner": kind, "kinesis.spark.parallelism": str(parallelism)}
    return MicroBatches(Properties.parse(properties | own), make_session, clock=clock)


def planner(
    server: LocalKinesis,
    position: str = "TRIM_HORIZON",
    *,
    kind: str = "prefetch",
    parallelism: int = 2,
    **more: str,
) -> MicroBatches:
    """Return a planner of ``orders``, or of the streams that ``more`` names."""
    return planner_of(kind, options(server, position, **more), parallelism=parallelism)


def read(
    partitions: Iterable[InputPartition],
    read_one: Callable[[InputPartition], Iterator[pa.RecordBatch]] = _READER.read,
) -> list[Row]:
    """Read partitions as tasks do; return the rows in the order in which they come."""
    return [
        (row["shardId"], row["sequenceNumber"], row["data"])
        for partition in partitions
        for rows in read_one(partition)
        for row in rows.to_pylist()
    ]


def through_the_log(offset: Offset) -> Offset:
    return Offset.from_json(json.loads(json.dumps(offset.to_json())))


@frozen
class Batch:
    """A micro-batch that was run: its two offsets and its rows."""

    start: Offset
    end: Offset
    rows: list[Row]


@define
class Query:
    """A streaming query: what is in its log survives a restart, what is in its planner does not.

    Like Spark it writes the first micro-batch even when it is empty, passes offsets as text, and
    commits one when the next has been planned.
    """

    make: Callable[[], MicroBatches]
    batches: list[Batch] = field(factory=list)
    planner: MicroBatches = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.planner = self.make()

    @property
    def rows(self) -> list[Row]:
        """Everything that was read so far, in the order of the batches."""
        return [row for batch in self.batches for row in batch.rows]

    @property
    def last(self) -> Offset:
        """The end of the last batch."""
        return self.batches[-1].end

    def batch_with(self, sequence_number: str) -> Batch:
        """Return the batch that read a record; how records fall into batches is not fixed."""
        (batch,) = (
            batch
            for batch in self.batches
            if any(number == sequence_number for _, number, _ in batch.rows)
        )
        return batch

    def run_batch(self, limit: BatchLimit = NO_LIMIT) -> bool:
        """Run one micro-batch; say whether there was one."""
        start = self.last if self.batches else through_the_log(self.planner.initial_offset())
        end = through_the_log(self.planner.latest_offset(start, limit))
        if self.batches:
            if end == start:
                return False
            self.planner.commit(start)
        rows = read(self.planner.partitions(start, end))
        self.batches.append(Batch(start, end, rows))
        return True

    def run_until(self, count: int, limit: BatchLimit = NO_LIMIT) -> None:
        """Run micro-batches until there are ``count`` rows in all."""

        def has_enough() -> bool:
            self.run_batch(limit)
            return len(self.rows) >= count

        eventually(has_enough, f"{count} rows")

    def run_to_the_end(self, limit: BatchLimit = NO_LIMIT) -> None:
        """Run micro-batches until there is none (Trigger.AvailableNow)."""
        self.planner.prepare_for_available_now()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        self.run_batch(limit)
        while self.run_batch(limit):
            assert time.monotonic() < deadline, "AvailableNow does not end"

    def replay(self, batch: Batch) -> list[Row]:
        """Read a micro-batch again, as after a restart; return its rows."""
        return read(self.planner.partitions(batch.start, batch.end))

    def stop(self) -> None:
        self.planner.close()

    def restart(self, make: Callable[[], MicroBatches] | None = None) -> None:
        """Go on in a new process, with another planner if one is given: only the log is left."""
        self.stop()
        self.make = make or self.make
        self.planner = self.make()

    def replay_last(self) -> None:
        """Run the last micro-batch again, as after a restart that found it without a commit.

        Spark does not keep the start of the first one; it asks for it again.
        """
        batch = self.batches.pop()
        start = self.last if self.batches else through_the_log(self.planner.initial_offset())
        self.batches.append(evolve(batch, rows=read(self.planner.partitions(start, batch.end))))


#: Starts a query; it takes what :func:`planner` takes.
StartQuery: TypeAlias = "Callable[..., Query]"
#: Starts a query with the planners that it is given.
QueryOf: TypeAlias = "Callable[[Callable[[], MicroBatches]], Query]"
