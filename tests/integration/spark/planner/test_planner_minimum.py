"""A micro-batch that waits for more records, and what it does not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    STREAM,
    QueryOf,
    eventually,
    planner,
    put,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.planner.planner_harness import Query, StartQuery


AT_LEAST_5 = BatchLimit(min_records=5)


def wait_until_seen(query: Query) -> None:
    """Wait until the planner knows of records, of which it makes no micro-batch."""

    def has_seen() -> bool:
        assert not query.run_batch(AT_LEAST_5)
        lag = query.planner.lag()
        return lag is not None and (lag.max_lag_millis or 0) > 0

    eventually(has_seen, "records that wait")


def test_a_micro_batch_waits_for_more_records_and_only_the_first_does_not(
    server: LocalKinesis, start_query: StartQuery, kind: str
) -> None:
    query = start_query()
    query.planner.initial_offset()
    if kind == "prefetch":
        eventually(lambda: len(server.calls("GetRecords")) > 2, "an answer without records")
    # It has none either, and says how far the shards are read.
    query.run_batch(AT_LEAST_5)
    assert (query.rows, query.planner.planned is None) == ([], False)
    put(server, ["first"])
    query.run_until(1, AT_LEAST_5)
    put(server, ["a", "b", "c"])
    wait_until_seen(query)
    put(server, ["d", "e", "f"])
    query.run_until(6, AT_LEAST_5)
    assert len(query.batches[-1].rows) >= 5


def test_the_first_records_do_not_wait_although_shards_ended_that_had_none(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    server.reshard(STREAM, 1)
    query = start_query()

    def is_at_their_end() -> bool:
        query.run_batch(AT_LEAST_5)
        return any(one.progress.is_ended for one in query.last.shards.values())

    eventually(is_at_their_end, "the end of an empty shard")
    put(server, ["first"])
    query.run_until(1, AT_LEAST_5)


def test_the_end_of_a_shard_does_not_wait(server: LocalKinesis, start_query: StartQuery) -> None:
    """Its children may have many records, which nobody can see before."""
    put(server, ["first"])
    query = start_query()
    query.run_until(1, AT_LEAST_5)
    put(server, ["a"])
    wait_until_seen(query)
    server.reshard("orders", 1)
    expected = put(server, [f"{n}" for n in range(9)])
    query.run_until(11, AT_LEAST_5)
    assert set(expected) <= set(query.rows)


def test_a_pool_that_takes_no_further_page_does_not_wait(
    server: LocalKinesis, query_of: QueryOf
) -> None:
    """A page is less than half of the pool, and there is no room for one that is twice as large."""
    small = {"pending_maxbytes": "2MiB", "shard_getrecords_maxrecordcount": "9"}
    query = query_of(lambda: planner(server, **small))
    at_least_1000 = BatchLimit(min_records=1000)
    server.put_many(STREAM, [("key", bytes(100_000))])
    query.run_until(1, at_least_1000)
    server.put_many(STREAM, [("key", bytes(100_000))] * 40)
    query.run_until(30, at_least_1000)


def test_available_now_does_not_wait(server: LocalKinesis, start_query: StartQuery) -> None:
    expected = put(server, ["a", "b"])
    query = start_query()
    query.run_to_the_end(AT_LEAST_5)
    put(server, ["c"])
    query.restart()
    query.run_to_the_end(AT_LEAST_5)
    assert len(query.rows) == len(expected) + 1
