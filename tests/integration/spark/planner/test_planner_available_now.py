"""Trigger.AvailableNow: everything that is there, children included, and then the end."""

from __future__ import annotations

import pytest

from kinesis_publishers.errors import AccessDeniedError
from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from kinesis_publishers_spark import prefetch
from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    FIRST_SHARD,
    STREAM,
    QueryOf,
    ShiftedClock,
    StartQuery,
    eventually,
    options,
    planner_of,
    put,
)


def test_it_ends_on_a_stream_without_records(server: LocalKinesis, start_query: StartQuery) -> None:
    for position in ("TRIM_HORIZON", "LATEST"):
        query = start_query(position)
        query.run_to_the_end()
        assert query.rows == []


@pytest.mark.usefixtures("patient_gathering")
def test_it_keeps_to_the_limit_over_several_batches(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    expected = put(server, [f"{n}" for n in range(25)])
    query = start_query()
    query.run_to_the_end(BatchLimit(records=10))
    assert [len(batch.rows) for batch in query.batches if batch.rows] == [10, 10, 5]
    assert sorted(query.rows) == sorted(expected)


@BOTH_ENDS
def test_one_run_after_the_other_reads_everything_once(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    expected = []
    query = start_query()
    # Spark may ask for it before it prepares a run.
    query.planner.initial_offset()
    for part in range(3):
        expected += put(server, [f"{part}-{n}" for n in range(12)])
        query.run_to_the_end(BatchLimit(records=5))
        assert sorted(query.rows) == sorted(expected)
        server.reshard(STREAM, 3 + part)
        query.restart()


@pytest.mark.parametrize("kind", ["prefetch"])
def test_a_page_that_has_to_wait_for_room_is_not_waited_for(
    server: LocalKinesis, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "_GATHER_SECONDS", 3600.0)
    expected = put(server, ["x"] * 600)
    # One page fills more than half of the pool, and a second one does not fit.
    query = start_query(pending_maxrecords="100", shard_getrecords_maxrecordcount="60")
    query.run_to_the_end()
    assert sorted(query.rows) == sorted(expected)


@BOTH_ENDS
@pytest.mark.parametrize("kind", ["prefetch"])
def test_children_that_appear_behind_a_shard_that_was_read_far_enough_do_not_hold_it_up(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    slow = Fault("GetRecords", "delay", shard_id="shardId-000000000001", times=1, delay_seconds=5.0)
    server.add_fault(slow)
    put(server, ["x"] * 20)
    query = start_query()
    query.planner.prepare_for_available_now()
    query.planner.initial_offset()

    def has_left_the_quick_one() -> bool:
        lag = query.planner.lag()
        return lag is not None and f"{STREAM}/{FIRST_SHARD}" not in lag.millis_behind_latest

    # The quick shard has been read far enough, then both are split while the slow one is read.
    eventually(lambda: bool(server.calls("GetRecords", shard_id=FIRST_SHARD)), "the first read")
    eventually(has_left_the_quick_one, "the quick shard to be finished")
    server.reshard(STREAM, 4)
    assert not server.calls("GetRecords", shard_id="shardId-000000000001"), "it is still read"
    query.run_batch()
    while query.run_batch():
        pass
    assert len(query.rows) == 20
    query.restart()
    put(server, ["y"] * 20)
    query.run_to_the_end()
    assert len(set(query.rows)) == len(query.rows) == 40


def test_an_error_ends_it_with_the_error(server: LocalKinesis, start_query: StartQuery) -> None:
    server.add_fault(Fault("GetRecords", "error", code="AccessDeniedException", times=None))
    query = start_query()
    with pytest.raises(AccessDeniedError):
        query.run_to_the_end()


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("prefetch", BatchLimit()),
        ("prefetch", BatchLimit(records=100)),
        ("ranges", BatchLimit(records=100)),
    ],
)
def test_it_ends_although_a_slow_reader_never_reaches_the_tip(
    query_of: QueryOf, kind: str, limit: BatchLimit
) -> None:
    clock = ShiftedClock()
    with LocalKinesis.in_thread(Limits.off(), clock=clock) as server:
        server.create_stream(STREAM, 1)
        before = put(server, ["before"] * 15)
        settings = options(server, shard_getrecords_maxrecordcount="10")
        query = query_of(lambda: planner_of(kind, settings, clock=clock))
        query.planner.prepare_for_available_now()
        clock.seconds = 10.0
        put(server, ["more"] * 3000)
        while query.run_batch(limit):
            pass
        query.stop()
    assert set(before) <= set(query.rows)
    assert len(query.rows) < 3000
