"""Several generations of shards, micro-batches that lag behind, and restarts in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from kinesis_publishers_spark.chunks import BatchLimit
from tests.integration.planner.planner_harness import (
    BOTH_ENDS,
    STREAM,
    Query,
    eventually,
    planner,
    planner_of,
    read,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.micro_batches import MicroBatches

QueryOf = Callable[[Callable[[], "MicroBatches"]], Query]

TEN = BatchLimit(records=10)
_LINE = "line"


def put_numbered(server: LocalKinesis, stream: str, name: str, count: int) -> None:
    server.put_many(stream, [("key", f"{name}{number:03d}".encode()) for number in range(count)])


def payloads(query: Query) -> list[str]:
    return [data.decode() for _, _, data in query.rows]


def line_planner(server: LocalKinesis) -> MicroBatches:
    """Return a planner of a stream that begins with one shard."""
    properties = {
        **server.properties(_LINE),
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.shard.getrecords.intervalmillis": "20",
        "kinesis.shard.discovery.intervalmillis": "100",
    }
    return planner_of("prefetch", properties)


def wait_for_buffered(query: Query, count: int) -> None:
    def is_buffered() -> bool:
        lag = query.planner.lag()
        return lag is not None and lag.buffered_records >= count

    eventually(is_buffered, f"{count} records in the buffer")


@BOTH_ENDS
def test_records_of_a_shard_that_leaves_the_retention_while_they_wait_are_not_lost(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    server.create_stream(_LINE, 1)
    put_numbered(server, _LINE, "a", 50)
    server.reshard(_LINE, 2)
    put_numbered(server, _LINE, "c", 20)
    query = query_of(lambda: line_planner(server))
    query.planner.initial_offset()
    wait_for_buffered(query, 70)
    query.run_batch(TEN)
    listings = len(server.calls("ListShards"))
    server.trim(_LINE, shard_id="shardId-000000000000")
    eventually(lambda: len(server.calls("ListShards")) > listings + 2, "two more listings")
    query.run_until(70, TEN)
    query.stop()
    assert Counter(text[0] for text in payloads(query)) == {"a": 50, "c": 20}
    # Each offset names what its micro-batch has, also of the shard that is gone.
    for batch in query.batches:
        ranges = batch.end.ranges_since(batch.start)
        assert {one.shard.shard_id for one in ranges} == {shard for shard, _, _ in batch.rows}


@BOTH_ENDS
def test_a_grandchild_waits_for_its_grandparent_after_a_restart(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    server.create_stream(_LINE, 1)
    put_numbered(server, _LINE, "a", 30)
    server.reshard(_LINE, 2)
    server.reshard(_LINE, 1)
    put_numbered(server, _LINE, "c", 30)
    query = query_of(lambda: line_planner(server))
    query.planner.initial_offset()
    wait_for_buffered(query, 60)
    query.run_batch(TEN)
    query.restart()
    query.run_until(60, TEN)
    query.stop()
    assert payloads(query) == sorted(payloads(query))


@BOTH_ENDS
def test_a_child_is_not_in_the_micro_batch_of_its_parent(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    server.create_stream(_LINE, 1)
    put_numbered(server, _LINE, "a", 5)
    server.reshard(_LINE, 2)
    server.reshard(_LINE, 1)
    put_numbered(server, _LINE, "c", 5)
    query = query_of(lambda: line_planner(server))
    query.planner.initial_offset()
    wait_for_buffered(query, 10)
    query.run_until(10)
    query.stop()
    by_batch = [{data[:1] for _, _, data in batch.rows} for batch in query.batches if batch.rows]
    assert by_batch == [{b"a"}, {b"c"}]


class Growing:
    """A query over ``orders`` at LATEST, to which the stream ``more`` is added at a restart."""

    def __init__(self, server: LocalKinesis, query_of: QueryOf) -> None:
        self.server = server
        self.streams = STREAM
        self.query = query_of(self._planner)

    def _planner(self) -> MicroBatches:
        if self.streams == STREAM:
            return planner(self.server, "LATEST")
        properties = {
            **self.server.properties(self.streams),
            "kinesis.shard.getrecords.intervalmillis": "20",
        }
        return planner_of("prefetch", properties)

    def add(self) -> None:
        self.streams = f"{STREAM},more"
        self.query.restart()


def test_the_latest_of_a_stream_that_is_added_later_outlasts_a_restart(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    server.create_stream("more", 1)
    put_numbered(server, "more", "ancient", 5)
    growing = Growing(server, query_of)
    growing.query.run_batch()
    growing.add()
    growing.query.run_batch()
    growing.query.stop()
    put_numbered(server, "more", "while-down", 5)
    growing.query.restart()
    growing.query.run_until(5)
    growing.query.stop()
    assert {text.rstrip("0123456789") for text in payloads(growing.query)} == {"while-down"}


def test_a_replay_names_no_shard_twice(server: LocalKinesis, query_of: QueryOf) -> None:
    server.create_stream(_LINE, 1)
    put_numbered(server, _LINE, "a", 25)
    query = query_of(lambda: line_planner(server))
    query.run_until(25, TEN)
    query.restart()
    for batch in query.batches:
        assert read(query.planner.partitions(batch.start, batch.end)) == batch.rows
    query.stop()
