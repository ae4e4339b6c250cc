"""Bounded memory without planning, and nothing left behind after closing."""

from __future__ import annotations

import gc
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import AccessDeniedError
from kinesis_publishers.testing.local_kinesis import Fault
from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    STREAM,
    Query,
    StartQuery,
    eventually,
    planner,
    put,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.lag import Lag


@pytest.fixture
def kind() -> str:
    """These tests look into what the prefetch planner has fetched."""
    return "prefetch"


def lag_of(query: Query) -> Lag:
    lag = query.planner.lag()
    assert lag is not None
    return lag


def wait_until_reading_rests(server: LocalKinesis, query: Query) -> None:
    """Wait until 50 looks in a row find no further read."""
    quiet_looks, seen = 0, -1

    def is_resting() -> bool:
        nonlocal quiet_looks, seen
        calls = len(server.calls("GetRecords"))
        quiet_looks, seen = (quiet_looks + 1, seen) if calls == seen else (0, calls)
        return quiet_looks >= 50 and lag_of(query).buffered_records > 0

    eventually(is_resting, "the pool to be full")


@BOTH_ENDS
def test_records_stay_bounded_without_planning_and_all_arrive_in_the_end(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    server.reshard(STREAM, 4)
    expected = put(server, [f"{n}" for n in range(1000)])
    query = start_query(pending_maxrecords="100", shard_getrecords_maxrecordcount="20")
    query.planner.initial_offset()
    wait_until_reading_rests(server, query)
    assert 0 < lag_of(query).buffered_records <= 100
    query.run_until(1000)
    assert sorted(query.rows) == sorted(expected)
    assert max(len(batch.rows) for batch in query.batches) <= 100


def test_bytes_stay_bounded_without_planning_and_all_arrive_in_the_end(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    expected = put(server, [bytes([n]) * 10_000 for n in range(200)])
    query = start_query(pending_maxbytes="300KiB", shard_getrecords_maxrecordcount="5")
    query.planner.initial_offset()
    wait_until_reading_rests(server, query)
    assert 0 < lag_of(query).buffered_bytes <= 300 * 1024
    query.run_until(200)
    assert sorted(query.rows) == sorted(expected)


def test_a_record_larger_than_the_whole_pool_goes_through(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    expected = put(server, [b"x" * 50_000, b"", b"y" * 60_000, b"z"])
    query = start_query(pending_maxbytes="1KiB", pending_maxrecords="1")
    query.run_until(4)
    assert sorted(query.rows) == sorted(expected)


def test_a_batch_that_is_cut_keeps_its_share_of_the_pool_until_the_rest_is_taken(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    expected = put(server, [f"{n}" for n in range(300)])
    query = start_query(pending_maxrecords="40")
    query.run_until(300, BatchLimit(records=3))
    assert sorted(query.rows) == sorted(expected)


def own_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("kinesis-")]


def assert_nothing_is_left(caplog: pytest.LogCaptureFixture) -> None:
    eventually(lambda: not own_threads(), f"the end of {own_threads()}")
    # What asyncio and its users say when something is dropped that was still open.
    gc.collect()
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []


def test_closing_leaves_no_thread_and_nothing_open(
    server: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        put(server, ["x"] * 100)
        one = planner(server, pending_maxrecords="10")
        one.initial_offset()
        assert own_threads()
        one.close()
        one.close()
        assert_nothing_is_left(caplog)


def test_closing_does_not_wait_for_an_answer_that_does_not_come(
    server: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    server.add_fault(Fault("GetRecords", "delay", times=None, delay_seconds=3600))
    one = planner(server)
    one.initial_offset()
    eventually(lambda: bool(server.calls("GetShardIterator")), "the first calls")
    one.close()
    assert_nothing_is_left(caplog)


def test_closing_after_an_error_leaves_nothing(
    server: LocalKinesis, caplog: pytest.LogCaptureFixture, start_query: StartQuery
) -> None:
    server.add_fault(Fault("GetRecords", "error", code="AccessDeniedException", times=None))
    query = start_query()
    with pytest.raises(AccessDeniedError):
        eventually(lambda: query.run_batch() and False, "the error")
    caplog.set_level(logging.WARNING)
    query.stop()
    assert_nothing_is_left(caplog)


def test_a_planner_goes_on_after_it_was_closed(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    expected = put(server, ["a"])
    query = start_query()
    query.run_until(1)
    query.stop()
    expected += put(server, ["b"])
    query.run_until(2)
    assert sorted(query.rows) == sorted(expected)
