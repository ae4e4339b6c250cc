"""The same range gives the same rows at every reading; if it cannot, that is an error."""

from __future__ import annotations

import json
import pickle
from itertools import product
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.errors import (
    CheckpointError,
    DataLossError,
    PositionTrimmedError,
    ReplayMismatchError,
    StreamRecreatedError,
)
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import RangePartition
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    FIRST_SHARD,
    STREAM,
    Batch,
    Query,
    StartQuery,
    create_again,
    eventually,
    planner,
    put,
    read,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

REMEDY = "kinesis.failondataloss = false"


def replay(server: LocalKinesis, batch: Batch, **more: str) -> list[tuple[str, str, bytes]]:
    """Read a batch as the executors do after a restart."""
    partitions = planner(server, "TRIM_HORIZON", parallelism=2, **more).partitions(
        batch.start, batch.end
    )
    assert all(isinstance(partition, RangePartition) for partition in partitions)
    return read(pickle.loads(pickle.dumps(partitions)))


def in_shard_order(rows: list[tuple[str, str, bytes]]) -> list[tuple[str, str, bytes]]:
    """Return rows sorted by shard only: the order within a shard stays, and counts."""
    return sorted(rows, key=lambda row: row[0])


@BOTH_ENDS
@pytest.mark.parametrize("position", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_a_replay_gives_the_rows_of_the_first_time(
    server: LocalKinesis, start_query: StartQuery, position: str
) -> None:
    more = {"stream_initpos_timestamp": "2020-01-01T00:00:00.000Z"}
    query = start_query(position, **(more if position == "AT_TIMESTAMP" else {}))
    query.run_batch()
    expected = put(server, [f"{n}" * (n % 5) for n in range(60)])
    query.run_until(30, BatchLimit(records=13))
    server.reshard(STREAM, 4)
    expected += put(server, [f"after {n}" for n in range(40)])
    query.run_until(70, BatchLimit(records=17))
    query.restart()
    server.reshard(STREAM, 2)
    expected += put(server, [f"merged {n}" for n in range(30)])
    query.run_until(130, BatchLimit(payload_bytes=150))
    assert sorted(query.rows) == sorted(expected)
    for batch in query.batches:
        assert in_shard_order(replay(server, batch)) == in_shard_order(batch.rows)


def test_a_replay_gives_the_same_however_many_partitions(
    server: LocalKinesis, start_query: StartQuery, kind: str
) -> None:
    put(server, [f"{n}" for n in range(20)])
    query = start_query()
    query.run_until(20)
    for batch, parallelism in product(query.batches, (1, 2, 5)):
        one = planner(server, kind=kind, parallelism=parallelism)
        partitions = one.partitions(batch.start, batch.end)
        assert len(partitions) <= min(parallelism, 2)
        assert in_shard_order(read(partitions)) == in_shard_order(batch.rows)
        one.close()


def test_a_replay_whose_first_record_is_gone_says_so_and_what_to_do(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    stored = [number for shard, number, _ in put(server, ["x"] * 30) if shard == FIRST_SHARD]
    query = start_query()
    query.run_until(30)
    batch = query.batch_with(stored[0])
    server.trim(STREAM, shard_id=FIRST_SHARD, through=stored[0])
    with pytest.raises(PositionTrimmedError, match=f"{FIRST_SHARD}.*{REMEDY}") as raised:
        replay(server, batch)
    assert stored[0] in str(raised.value)
    left = [row for row in batch.rows if row[1] != stored[0]]
    tolerant = replay(server, batch, failondataloss="false")
    assert in_shard_order(tolerant) == in_shard_order(left)


def test_a_replay_of_a_shard_whose_records_are_all_gone_says_so(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    stored = [number for shard, number, _ in put(server, ["x"] * 30) if shard == FIRST_SHARD]
    query = start_query()
    query.run_until(30)
    server.trim(STREAM, shard_id=FIRST_SHARD)
    with pytest.raises((PositionTrimmedError, ReplayMismatchError), match=REMEDY):
        replay(server, query.batch_with(stored[0]))


def aged(offset: Offset, days: int) -> Offset:
    """Return an offset as it would stand in a log that was written ``days`` ago."""
    text = offset.to_json()
    for stream in text["streams"].values():
        for shard in stream["shards"].values():
            if "asOf" in shard:
                shard["asOf"] -= days * 86_400 * 1_000_000
    return Offset.from_json(json.loads(json.dumps(text)))


def resume_at(query: Query, offset: Offset) -> None:
    query.batches.append(Batch(query.last, offset, []))
    query.restart()


def test_a_position_older_than_the_retention_fails_the_query(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["x"] * 10)
    query = start_query()
    query.run_until(10)
    server.trim(STREAM)
    put(server, ["y"] * 10)
    resume_at(query, aged(query.last, days=2))
    with pytest.raises(PositionTrimmedError, match=f"keeps records for 24 hours.*{REMEDY}"):
        eventually(lambda: query.run_batch() and False, "the error")


@pytest.mark.parametrize(("days", "fails"), [(0, "true"), (2, "false")], ids=["idle", "tolerant"])
def test_what_is_left_is_read_and_replayed_if_nothing_is_lost_or_loss_is_tolerated(
    server: LocalKinesis, start_query: StartQuery, days: int, fails: str
) -> None:
    put(server, ["x"] * 10)
    query = start_query(failondataloss=fails)
    query.run_until(10)
    server.trim(STREAM)
    left = put(server, ["y"] * 10)
    resume_at(query, aged(query.last, days=days))
    query.run_until(20)
    assert sorted(query.rows[10:]) == sorted(left)
    batch = query.batches[-1]
    assert in_shard_order(replay(server, batch)) == in_shard_order(batch.rows)


def test_a_stream_that_was_created_again_fails_a_replay_and_the_query(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["x"] * 10)
    query = start_query()
    query.run_until(10)
    query.stop()
    create_again(server)
    put(server, ["y"] * 10)
    with pytest.raises(DataLossError, match=REMEDY):
        replay(server, query.batches[-1])
    query.restart()
    with pytest.raises(StreamRecreatedError, match=f"deleted and created again.*{REMEDY}"):
        query.run_batch()


def test_a_checkpoint_of_another_stream_is_refused_by_a_replay_and_by_reading_on(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["x"] * 10)
    query = start_query()
    query.run_until(10)
    batch = query.batches[-1]
    server.create_stream("payments", 1)
    other = planner(server, streams="payments")
    try:
        with pytest.raises(CheckpointError, match=r"orders.*payments"):
            other.partitions(batch.start, batch.end)
        with pytest.raises(CheckpointError, match=r"orders.*payments"):
            other.latest_offset(batch.end, BatchLimit())
    finally:
        other.close()
