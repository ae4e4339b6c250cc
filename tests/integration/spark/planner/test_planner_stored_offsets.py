"""An offset log of an earlier version is read: its last micro-batch again, and then what follows.

The text is written out here: what builds offsets today must not be what says how they looked.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kinesis_publishers_spark.offsets import Offset
from tests.integration.spark.planner.planner_harness import BOTH_ENDS, STREAM, Batch, put, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.integration.spark.planner.planner_harness import Query

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


def logged_offset(log: Path) -> Offset:
    return Offset.from_json(json.loads(log.read_text().splitlines()[-1]))


def micros(instant: datetime) -> int:
    return round(instant.timestamp() * 1000) * 1000


@BOTH_ENDS
def test_a_query_goes_on_from_an_offset_log_of_the_first_version(
    server: LocalKinesis, start_query: Callable[..., Query], tmp_path: Path
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
