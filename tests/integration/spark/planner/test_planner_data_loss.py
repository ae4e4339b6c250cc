"""Records that are gone: an error that says what to do, or an exact note of what was skipped.

``tests/integration/readers`` has both planners' readers over days of simulated time; here is what
queries make of it, from their offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import DataLossError, StreamRecreatedError
from kinesis_publishers_spark.limits import BatchLimit
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    FIRST_SHARD,
    STREAM,
    Query,
    Row,
    StartQuery,
    create_again,
    eventually,
    put,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


_REMEDY = r"kinesis\.failondataloss = false; to begin again, remove the checkpoint"


def notes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged about lost records."""
    return [one.getMessage() for one in caplog.records if FIRST_SHARD in one.getMessage()]


def numbers_of(rows: list[Row], shard_id: str = FIRST_SHARD) -> list[str]:
    return [number for shard, number, _ in rows if shard == shard_id]


def lose_the_unread_records_of_a_live_shard(
    server: LocalKinesis, query: Query
) -> tuple[list[Row], list[Row]]:
    """Let a query stand in the middle of what is removed; return what it read and what is left."""
    first = put(server, ["x"] * 20)
    query.run_until(20)
    query.stop()
    lost = put(server, ["lost"] * 20)
    server.trim(STREAM, shard_id=FIRST_SHARD, through=numbers_of(lost)[-1])
    left = put(server, ["left"] * 20)
    return first, [row for row in lost if row[0] != FIRST_SHARD] + left


def test_what_is_left_is_read_where_loss_is_tolerated(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query(failondataloss="false")
    first, left = lose_the_unread_records_of_a_live_shard(server, query)
    query.restart()
    query.run_until(len(first) + len(left))
    assert sorted(query.rows) == sorted(first + left)


def lose_a_shard(server: LocalKinesis, query: Query) -> tuple[list[Row], list[Row]]:
    """Let a shard leave the stream before it was read to its end; return what is read in all."""
    first = put(server, ["x"] * 20)
    query.run_until(20)
    query.stop()
    lost = put(server, ["lost"] * 20)
    server.reshard(STREAM, 4)
    server.trim(STREAM, shard_id=FIRST_SHARD)
    left = put(server, ["left"] * 20)
    return first, [row for row in lost if row[0] != FIRST_SHARD] + left


@BOTH_ENDS
def test_a_shard_that_is_gone_fails_the_query_with_its_last_position(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query()
    first, _ = lose_a_shard(server, query)
    query.restart()
    last = numbers_of(first)[-1]
    with pytest.raises(DataLossError, match=f"{STREAM}/{FIRST_SHARD}.*{last}.*{_REMEDY}"):
        eventually(lambda: query.run_batch() and False, "the error")


@BOTH_ENDS
def test_what_a_shard_that_is_gone_has_left_is_read_where_loss_is_tolerated(
    server: LocalKinesis, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query = start_query(failondataloss="false")
    first, left = lose_a_shard(server, query)
    query.restart()
    query.run_until(len(first) + len(left))
    assert sorted(query.rows) == sorted(first + left)
    assert any(numbers_of(first)[-1] in note for note in notes(caplog))


def test_a_stream_that_is_created_again_under_a_query_fails_it(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query()
    put(server, ["x"] * 20)
    query.run_until(20)
    create_again(server)
    put(server, ["anew"] * 20)
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        eventually(lambda: query.run_batch() and False, "the error")


@pytest.mark.parametrize("is_down", [False, True], ids=["at work", "down"])
def test_where_loss_is_tolerated_a_query_goes_on_with_the_stream_that_was_created_again(
    server: LocalKinesis, start_query: StartQuery, is_down: bool
) -> None:
    query = start_query(failondataloss="false")
    expected = put(server, ["x"] * 20)
    query.run_until(20)
    if is_down:
        query.stop()
    create_again(server)
    expected += put(server, ["anew"] * 20)
    if is_down:
        query.restart()
    query.run_until(30, BatchLimit(records=3))
    query.replay_last()
    query.restart()
    query.run_until(40)
    assert sorted(query.rows) == sorted(expected)
