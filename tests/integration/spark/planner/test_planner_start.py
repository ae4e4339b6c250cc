"""Where a query begins, that this place does not move, and how the first version wrote it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers_spark.offsets import Offset
from tests.integration.spark.planner.planner_harness import (
    BOTH_ENDS,
    STREAM,
    Batch,
    StartQuery,
    pass_a_moment,
    put,
    read,
)

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

# The text is written out: what builds offsets today must not be what says how they looked.
# What Spark writes: its version, metadata of the micro-batch, and a line for each source.
_START = """v1
{{"batchWatermarkMs":0,"batchTimestampMs":1767268800000,"conf":{{}},"sourceMetadataInfo":{{}}}}
{{"version": 1, "streams": {{"{arn}": {{"created": {created}, "shards": {{\
"shardId-000000000000": {{"after": "{third}", "asOf": {now}}}, \
"shardId-000000000001": {{"from": "TRIM_HORIZON"}}}}}}}}}}"""
_END = """v1
{{"batchWatermarkMs":0,"batchTimestampMs":1767268800000,"conf":{{}},"sourceMetadataInfo":{{}}}}
{{"version": 1, "streams": {{"{arn}": {{"created": {created}, "shards": {{\
"shardId-000000000000": {{"after": "{last}", "first": "{fourth}", "asOf": {now}, \
"ended": true}}, \
"shardId-000000000001": {{"after": "{second}", "first": "{other}", "asOf": {now}}}}}}}}}}}"""


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


@pytest.mark.parametrize("busy", [0, 1], ids=["all are idle", "one is busy"])
def test_an_idle_shard_keeps_its_pinned_place_over_a_restart(
    server: LocalKinesis, start_query: StartQuery, busy: int
) -> None:
    query = start_query("LATEST")
    assert query.run_batch()
    assert query.rows == []
    expected = put(server, ["busy"] * busy)
    query.run_until(len(expected))
    query.stop()
    expected += put(server, ["while it was down"] * 4)
    assert len({shard_id for shard_id, _, _ in expected}) == 2
    query.restart()
    query.run_until(len(expected))
    assert sorted(query.rows) == sorted(expected)


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


def logged_offset(log: Path) -> Offset:
    return Offset.from_json(json.loads(log.read_text().splitlines()[-1]))


def micros(instant: datetime) -> int:
    return round(instant.timestamp() * 1000) * 1000


@BOTH_ENDS
def test_a_query_goes_on_from_an_offset_log_of_the_first_version(
    server: LocalKinesis, start_query: StartQuery, tmp_path: Path
) -> None:
    before = put(server, [f"before-{number}" for number in range(40)])
    server.reshard(STREAM, 4)
    later = put(server, [f"later-{number}" for number in range(40)])
    first, second = (
        [row for row in before if row[0] == f"shardId-00000000000{number}"] for number in (0, 1)
    )
    arrival = server.records(STREAM)["shardId-000000000000"][0].arrival_time
    client = server.client()
    summary = client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]
    client.close()
    names = {
        "arn": summary["StreamARN"],
        "created": micros(summary["StreamCreationTimestamp"]),
        "now": micros(arrival),
        "third": first[2][1],
        "fourth": first[3][1],
        "last": first[-1][1],
        "other": second[0][1],
        "second": second[1][1],
    }
    logs = [tmp_path / "0", tmp_path / "1"]
    for log, text in zip(logs, (_START, _END), strict=True):
        log.write_text(text.format(**names))
    start, end = map(logged_offset, logs)

    query = start_query()
    rows = read(query.planner.partitions(start, end))
    assert sorted(rows) == sorted([*first[3:], *second[:2]])
    query.batches.append(Batch(start, end, rows))
    expected = [*first[3:], *second, *later]
    query.run_until(len(expected))
    assert sorted(query.rows) == sorted(expected)
