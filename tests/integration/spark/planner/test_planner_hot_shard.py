"""A hot shard under ``ranges``: several tasks where they are asked for, and the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import UserRecord
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    NO_LIMIT,
    STREAM,
    Query,
    ShiftedClock,
    eventually,
    put,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_publishers_spark.partitions import RangePartition
    from tests.integration.spark.planner.planner_harness import Row

COUNT, INTERVAL_SECONDS = 600, 10
# A portion of the backlog is about half of it.
FAN_OUT = {
    "stream_recordpublisher": "EFO",
    "stream_efo_consumername": "app",
    "stream_efo_deregister": "never",
    "stream_describestreamconsumer_backoff_base": "50",
}
CUT = {"spark_maxrecordsperpartition": "80", "spark_targetbatchbytes": "30000"}


@pytest.fixture
def kind() -> str:
    return "ranges"


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few records be worth a task of their own."""
    monkeypatch.setattr("kinesis_publishers.readers.ranges.rules._PAGE_RECORDS", 20)


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock(-COUNT * INTERVAL_SECONDS)


@pytest.fixture
def server(late_end: bool, clock: ShiftedClock) -> Iterator[LocalKinesis]:
    """A server whose stream has one shard."""
    behaviour = Behaviour(late_shard_end=late_end)
    with LocalKinesis.in_thread(Limits.off(), clock, behaviour) as server:
        server.create_stream(STREAM, 1)
        yield server


@pytest.fixture
def write(server: LocalKinesis, clock: ShiftedClock) -> Callable[..., list[Row]]:
    """Return a function that lets records arrive in the past, one by one.

    It returns the rows that they become; each is an aggregate of so many records, 0 is a plain one.
    """

    def write(inside: int = 0) -> list[Row]:
        rows = []
        for number in range(COUNT):
            clock.seconds = (number - COUNT) * INTERVAL_SECONDS
            payloads = [f"{number}-{index}".encode().ljust(100) for index in range(inside or 1)]
            stored = _aggregate(payloads) if inside else payloads[0]
            ((shard_id, sequence_number),) = server.put_many(STREAM, [("hot", stored)])
            rows += [(shard_id, sequence_number, payload) for payload in payloads]
        clock.seconds = 0
        return rows

    return write


def _aggregate(payloads: list[bytes]) -> bytes:
    packed = pack_user_records([UserRecord(partition_key="hot", data=one) for one in payloads])
    return packed.data


def run_portion(query: Query) -> None:
    """Run the first micro-batch, which is small, and another."""
    query.run_batch()
    eventually(query.run_batch, "a portion")


def tasks_of(query: Query) -> list[RangePartition]:
    """Return the tasks of the last micro-batch, which is not committed."""
    return query.planner.partitions(query.batches[-1].start, query.last)


def test_a_hot_shard_is_read_by_several_tasks_and_each_record_once(
    write: Callable[..., list[Row]], start_query: Callable[..., Query]
) -> None:
    rows, query = write(), start_query(**CUT)
    run_portion(query)
    pieces = [read([task]) for task in tasks_of(query)]
    assert len(pieces) == 4
    assert all(60 <= len(piece) <= 120 for piece in pieces)
    assert [row for piece in pieces for row in piece] == query.batches[-1].rows
    query.run_until(COUNT)
    assert query.rows == rows


def test_under_auto_the_backlog_that_the_executors_read_is_cut(
    write: Callable[..., list[Row]], start_query: Callable[..., Query]
) -> None:
    rows, query = write(), start_query(kind="auto", pending_maxrecords="100", **CUT)
    most = 0
    while len(query.rows) < COUNT:
        if query.run_batch():
            last = query.batches[-1]
            most = max(most, len(query.planner.partitions(last.start, last.end)))
    assert most == 4
    assert query.rows == rows


def test_pieces_have_about_so_many_of_the_records_inside_aggregates_and_split_none(
    write: Callable[..., list[Row]], start_query: Callable[..., Query]
) -> None:
    more = {"spark_maxrecordsperpartition": "800", "spark_targetbatchbytes": "300000"}
    rows, query = write(10), start_query(**more)
    run_portion(query)
    pieces = [read([task]) for task in tasks_of(query)]
    assert len(pieces) == 4
    assert all(600 <= len(piece) <= 1200 for piece in pieces)
    places = [{row[:2] for row in piece} for piece in pieces]
    assert sum(map(len, places)) == len(set().union(*places)), "an aggregate is in two tasks"
    query.run_until(len(rows))
    assert query.rows == rows


def test_a_replay_knows_of_no_cuts_and_has_the_same_rows(
    write: Callable[..., list[Row]], start_query: Callable[..., Query]
) -> None:
    write()
    query = start_query(**CUT)
    run_portion(query)
    before = query.rows
    query.restart()
    query.replay_last()
    assert query.rows == before
    assert len(tasks_of(query)) == 1


@BOTH_ENDS
def test_the_children_of_a_closed_shard_follow_its_end(
    server: LocalKinesis, write: Callable[..., list[Row]], start_query: Callable[..., Query]
) -> None:
    rows = write()
    server.reshard(STREAM, 2)
    rows += put(server, [f"{number}" for number in range(10)])
    query = start_query(spark_maxrecordsperpartition="80")
    query.run_until(COUNT)
    assert query.rows == rows[:COUNT]
    query.run_until(len(rows))
    assert sorted(query.rows) == sorted(rows)


@pytest.mark.parametrize(
    "more",
    [{}, {"spark_maxrecordsperpartition": "10000"}, {**CUT, **FAN_OUT}],
    ids=["not asked for", "not that many", "fan-out"],
)
def test_otherwise_the_rows_of_a_shard_are_one_task(
    write: Callable[..., list[Row]], start_query: Callable[..., Query], more: dict[str, str]
) -> None:
    write()
    query = start_query(**{"spark_targetbatchbytes": "30000", **more})
    run_portion(query)
    assert len(query.rows) > 250
    assert len(tasks_of(query)) == 1


def test_shards_that_share_a_task_have_no_more_records_together(
    server: LocalKinesis, start_query: Callable[..., Query]
) -> None:
    server.create_stream("many", 4)
    server.put_many("many", [(f"key-{number}", b"data") for number in range(200)])
    query = start_query(parallelism=1, streams="many", spark_maxrecordsperpartition="120")
    while not query.rows:
        query.run_batch()
    last = query.batches[-1]
    tasks = query.planner.partitions(last.start, last.end)
    sizes = [len(read([task])) for task in tasks]
    assert sum(sizes) == 200
    assert 2 <= len(sizes) <= 3
    assert max(sizes) <= 120


@pytest.mark.parametrize("alignment", ["arrival", "none"])
def test_a_small_first_micro_batch_comes_at_once_and_the_next_is_a_portion(
    server: LocalKinesis,
    write: Callable[..., list[Row]],
    start_query: Callable[..., Query],
    alignment: str,
) -> None:
    rows, query = write(), start_query(spark_alignment=alignment)
    query.planner.latest_offset(query.planner.initial_offset(), NO_LIMIT)
    assert len(server.calls("GetRecords")) == 1, "what the first look shows is enough"
    query.run_batch()
    query.restart()
    query.run_until(COUNT)
    sizes = [len(batch.rows) for batch in query.batches if batch.rows]
    assert 0 < sizes[0] <= 20
    assert sizes[1] > COUNT / 2, "it was restarted: its trigger may be rare"
    assert query.rows == rows
    at_once = start_query()
    at_once.run_to_the_end()
    assert len(at_once.batches[0].rows) == COUNT, "with AvailableNow nobody waits for the first"
