"""Where a query begins, and that this place does not move."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.integration.spark.planner.planner_harness import STREAM, StartQuery, pass_a_moment, put

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


def test_latest_reads_what_comes_after_the_start_and_nothing_before(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["before"] * 5)
    pass_a_moment()
    query = start_query("LATEST")
    query.planner.initial_offset()
    expected = put(server, ["a", "b", "c"])
    query.run_until(3)
    assert sorted(query.rows) == sorted(expected)


def test_latest_stays_where_it_was_pinned_after_a_restart_without_records(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query("LATEST")
    assert query.run_batch()
    assert query.rows == []
    query.stop()
    expected = put(server, ["while it was down"])
    query.restart()
    query.run_until(1)
    assert query.rows == expected


def test_an_idle_shard_keeps_its_pinned_place_while_another_moves_on(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query("LATEST")
    query.run_batch()
    busy, idle = put(server, [f"{n}" for n in range(20)]), []
    query.run_until(20)
    query.stop()
    idle = put(server, ["x"] * 4)
    query.restart()
    query.run_until(24)
    assert sorted(query.rows) == sorted(busy + idle)


def test_the_initial_offset_does_not_change_while_it_is_asked_again(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query("LATEST")
    first = query.planner.initial_offset()
    pass_a_moment()
    expected = put(server, ["between the two questions"])
    assert query.planner.initial_offset() == first
    query.run_until(1)
    assert query.rows == expected
    assert query.planner.initial_offset() == first


def test_asking_again_for_the_initial_offset_does_not_read_again(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query()
    put(server, ["a", "b"])
    query.run_until(2)
    iterators = len(server.calls("GetShardIterator"))
    query.planner.initial_offset()
    query.run_batch()
    assert len(server.calls("GetShardIterator")) == iterators


def test_at_timestamp_reads_from_the_first_record_of_that_instant(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["early"] * 6)
    pass_a_moment()
    expected = put(server, ["late"] * 6)
    arrivals = [r.arrival_time for records in server.records(STREAM).values() for r in records]
    instant = max(arrivals) - timedelta(milliseconds=1)
    query = start_query(
        "AT_TIMESTAMP", stream_initpos_timestamp=instant.isoformat(timespec="milliseconds")
    )
    query.run_until(6)
    assert sorted(query.rows) == sorted(expected)
