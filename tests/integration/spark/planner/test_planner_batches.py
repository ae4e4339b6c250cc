"""Micro-batches of the prefetch planner: planned once, held to the limit, dropped when done."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.errors import AccessDeniedError, StreamNotFoundError
from kinesis_publishers.testing.local_kinesis import Fault
from kinesis_publishers_spark import prefetch, tip_polls
from kinesis_publishers_spark.chunks import Chunk
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.micro_batches import MicroBatches
from kinesis_publishers_spark.partitions import PrefetchedPartition, RangePartition
from kinesis_publishers_spark.stream_reader import make_session
from tests.integration.spark.planner.planner_harness import (
    FIRST_SHARD,
    NO_LIMIT,
    StartQuery,
    eventually,
    options,
    planner,
    put,
    read,
    wait_for_buffered,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers_spark.micro_batches import Session


@pytest.fixture
def kind() -> str:
    """These tests look into what the prefetch planner has fetched."""
    return "prefetch"


def wait_for_polls(server: LocalKinesis, more: int = 10) -> None:
    count = len(server.calls("GetRecords")) + more
    eventually(lambda: len(server.calls("GetRecords")) >= count, f"{more} more polls")


def wait_for_rest(server: LocalKinesis) -> None:
    """Wait until shards that are polled every 20 ms were not polled for half a second."""
    counts = [0]

    def is_resting() -> bool:
        counts.append(len(calls := server.calls("GetRecords")))
        has_begun = len(counts) > 50 and len({call.shard_id for call in calls}) == 2
        return has_begun and counts[-50] == counts[-1]

    eventually(is_resting, "no further poll")


def test_a_batch_that_is_asked_for_again_does_not_change(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["a", "b"])
    query = start_query()
    start = query.planner.initial_offset()
    wait_for_buffered(query.planner, 2)
    end = query.planner.latest_offset(start, NO_LIMIT)
    put(server, ["c", "d"])
    wait_for_buffered(query.planner, 2)
    assert query.planner.latest_offset(start, NO_LIMIT) == end
    first, second = (query.planner.partitions(start, end) for _ in range(2))
    assert first == second
    assert all(isinstance(one, PrefetchedPartition) for one in first)
    assert len(read(first)) == 2


def test_a_record_that_is_there_when_spark_asks_is_in_that_very_micro_batch(
    server: LocalKinesis, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for any machine: no poll goes by itself, and each is waited for.
    monkeypatch.setattr(tip_polls, "_HOLD_SECONDS", 600.0)
    monkeypatch.setattr(tip_polls, "_ANSWER_SECONDS", 600.0)
    query = start_query()
    for number in range(3):
        query.run_batch()
        wait_for_rest(server)
        put(server, [f"{number} {other}" for other in range(20)])
        assert query.run_batch()
        assert len(query.batches[-1].rows) == 20


def test_nothing_new_gives_the_same_offset_and_no_partition(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["a"])
    query = start_query("LATEST")
    query.run_batch()
    put(server, ["b"])
    query.run_until(1)
    start = query.last
    for _ in range(5):
        wait_for_polls(server, 4)
        assert query.planner.latest_offset(start, NO_LIMIT) is start
    query.restart()
    assert query.planner.partitions(start, start) == []


def test_no_call_is_spent_on_planning(server: LocalKinesis, start_query: StartQuery) -> None:
    query = start_query("LATEST", shard_getrecords_intervalmillis="60s")
    query.run_batch()
    eventually(lambda: len(server.calls("GetRecords")) == 2, "one poll for each shard")
    for _ in range(20):
        assert not query.run_batch()
    assert len(server.calls("GetRecords")) == len(server.calls("GetShardIterator")) == 2


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an idle query wait for records longer than a test may take."""
    monkeypatch.setattr(prefetch, "_PATIENCE_SECONDS", 600.0)
    monkeypatch.setattr(prefetch, "_ASKS_AGAIN_SECONDS", 600.0)
    monkeypatch.setattr(prefetch, "_RESTLESS_SECONDS", 0.0)


@pytest.mark.usefixtures("patience")
def test_a_question_of_an_idle_query_waits_for_records(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query("LATEST")
    query.run_batch()  # It is empty: Spark writes where a query begins.
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(query.run_batch)
        wait_for_polls(server, 4)
        assert not answer.done()
        put(server, ["a"])
        assert answer.result()
    assert len(query.rows) == 1


@pytest.mark.usefixtures("patience")
def test_a_question_of_an_idle_query_waits_for_a_failure(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query("LATEST")
    query.run_batch()
    server.add_fault(Fault("GetRecords", "error", code="AccessDeniedException", times=None))
    with pytest.raises(AccessDeniedError):
        query.run_batch()


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(
    ("name", "seconds"), [("_ASKS_AGAIN_SECONDS", 0.0), ("_RESTLESS_SECONDS", 600.0)]
)
def test_no_question_waits_for_records_while_spark_has_other_work(
    server: LocalKinesis,
    start_query: StartQuery,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    seconds: float,
) -> None:
    put(server, ["a"])
    query = start_query()
    monkeypatch.setattr(prefetch, name, seconds)
    query.run_until(1)
    for _ in range(5):
        assert not query.run_batch()


def _chunks() -> list[Chunk]:
    # Not isinstance(), which asks each object for its class: a dead proxy raises then.
    return [one for one in gc.get_objects() if type(one) is Chunk]


def test_commit_drops_what_the_batch_held(server: LocalKinesis, start_query: StartQuery) -> None:
    put(server, ["a" * 1000])
    gc.collect()
    others = set(map(id, _chunks()))  # what other tests have left
    query = start_query()
    start = query.planner.initial_offset()
    wait_for_buffered(query.planner, 1)
    end = query.planner.latest_offset(start, NO_LIMIT)
    (held,) = (weakref.ref(one) for one in _chunks() if id(one) not in others)
    query.planner.commit(start)
    assert held() is not None
    query.planner.commit(end)
    # The thread that fetches may still hold what it has just done.
    eventually(lambda: gc.collect() >= 0 and held() is None, "the chunk to go")


def test_a_batch_does_not_hold_the_session_that_planned_it(server: LocalKinesis) -> None:
    sessions: list[weakref.ref[Session]] = []

    def make(*args: Any) -> Session:
        session = make_session(*args)
        sessions.append(weakref.ref(session))
        return session

    put(server, ["a", "b"])
    one = MicroBatches(Properties.parse(options(server, spark_planner="prefetch")), make)
    start = one.initial_offset()
    wait_for_buffered(one, 2)
    end = one.latest_offset(start, NO_LIMIT)
    # Another place than where the session stands: it ends, with what it has fetched since.
    assert one.partitions(start, start) == []
    eventually(lambda: gc.collect() >= 0 and sessions[0]() is None, "the session to go")
    assert len(read(one.partitions(start, end))) == 2
    one.close()


def test_a_committed_batch_can_still_be_read_by_range(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, [f"{n}" for n in range(10)])
    query = start_query()
    query.run_until(10)
    batch = query.batches[-1]
    query.planner.commit(batch.end)
    again = query.planner.partitions(batch.start, batch.end)
    assert all(isinstance(one, RangePartition) for one in again)
    assert sorted(read(again)) == sorted(batch.rows)


@pytest.mark.parametrize("limit", [BatchLimit(records=7), BatchLimit(payload_bytes=70)])
def test_limits_hold_to_the_record(
    server: LocalKinesis, start_query: StartQuery, limit: BatchLimit
) -> None:
    expected = put(server, ["x" * 10] * 40)
    query = start_query()
    query.planner.initial_offset()
    wait_for_buffered(query.planner, 40)
    query.run_until(40, limit)
    assert [len(batch.rows) for batch in query.batches] == [7] * 5 + [5]
    assert sorted(query.rows) == sorted(expected)
    for shard_id in (FIRST_SHARD, "shardId-000000000001"):
        numbers = [int(number) for one, number, _ in query.rows if one == shard_id]
        assert numbers == sorted(numbers)


def test_a_refused_call_reaches_the_query(server: LocalKinesis, start_query: StartQuery) -> None:
    query = start_query()
    query.run_batch()
    server.add_fault(Fault("GetRecords", "error", code="AccessDeniedException", times=None))
    with pytest.raises(AccessDeniedError):
        eventually(lambda: query.run_batch() and False, "the error")
    # It stays an error; the source does not look idle afterwards.
    with pytest.raises(AccessDeniedError):
        query.run_batch()
    with pytest.raises(AccessDeniedError):
        query.planner.lag()


def test_a_stream_that_does_not_exist_fails_at_the_first_question(server: LocalKinesis) -> None:
    one = planner(server, "LATEST", streams="no-such-stream")
    try:
        for _ in range(2):
            with pytest.raises(StreamNotFoundError, match="no-such-stream"):
                one.initial_offset()
    finally:
        one.close()


def test_throttling_is_no_failure(server: LocalKinesis, start_query: StartQuery) -> None:
    server.add_fault(Fault("GetRecords", "throttle", times=8))
    expected = put(server, ["a", "b", "c"])
    query = start_query(shard_getrecords_backoff_base="10ms", shard_getrecords_backoff_max="20ms")
    query.run_until(3)
    assert sorted(query.rows) == sorted(expected)
