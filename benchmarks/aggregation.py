"""What aggregates cost: next to nothing where there are none, and little where there are.

``python -m benchmarks.aggregation --output benchmarks/results/aggregation.json`` writes the figures
as JSON and, next to it, Markdown tables. All of it is CPU time of this process, without a network.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from aws_kinesis_agg.aggregator import RecordAggregator as AwsAggregator
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from benchmarks.polling import environment, heading, publish
from kinesis_publishers import RecordBatch, UserRecord
from kinesis_publishers.aggregation import (
    decode_aggregate,
    expand,
    has_aggregates,
    pack_user_records,
)
from kinesis_publishers.aws.decoding import decode_get_records
from kinesis_publishers.model import HashRange
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PACKAGES = ("aws-kinesis-agg", "orjson", "protobuf")
# What one GetRecords returns at most (AWS service limits).
_PAGE_RECORDS, _PAGE_BYTES = 10_000, 10 * 1024 * 1024
_AGGREGATE_BYTES = 51_200
_SECONDS_PER_SAMPLE = 0.2


def compared(candidates: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Return the median CPU seconds that one call of each candidate takes; they take turns."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, work in candidates.items():
            samples[name].append(_cpu_seconds(work))
    return {name: statistics.median(times) for name, times in samples.items()}


def _cpu_seconds(work: Callable[[], object]) -> float:
    count, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < _SECONDS_PER_SAMPLE:
        work()
        count += 1
    return spent / count


def without_aggregates(repetitions: int) -> list[dict[str, Any]]:
    """Measure full pages that have none: reading them, and finding out that they have none."""
    makers = {"JSON": _json_payload, "random": random.Random(1).randbytes}
    rows = []
    for size in (200, 1024, 102_400):
        for kind, make in makers.items():
            count = min(_PAGE_RECORDS, _PAGE_BYTES // size)
            body = _page_body([make(size) for _ in range(count)])
            payloads = decode_get_records(body).payloads
            seconds = compared(
                {
                    "read": lambda body=body: _read(body),
                    "ask": lambda payloads=payloads: has_aggregates(payloads),
                },
                repetitions,
            )
            rows.append({"record_bytes": size, "payload": kind, "records": count, **seconds})
    return rows


def _json_payload(size: int) -> bytes:
    return json.dumps({"id": size, "text": "x" * (size - 30)}).encode()


def _page_body(payloads: Sequence[bytes]) -> bytes:
    records = [
        {
            "SequenceNumber": f"4959033827149025660855969253836157109592157598913658{index:04d}",
            "ApproximateArrivalTimestamp": 1.7e9 + index / 1000,
            "Data": base64.b64encode(payload).decode(),
            "PartitionKey": f"key-{index}",
        }
        for index, payload in enumerate(payloads)
    ]
    iterator = {"NextShardIterator": "x" * 200, "MillisBehindLatest": 0}
    return orjson.dumps({"Records": records, **iterator})


def _read(body: bytes) -> int:
    """Do the least that every reader does: decode a page and look at each record."""
    page, empty = decode_get_records(body), batch_of([])
    batch = RecordBatch.from_page(page, shard=empty.shard, requested_at=empty.requested_at)
    return sum(1 for _ in batch)


def with_aggregates(repetitions: int) -> list[dict[str, Any]]:
    """Measure aggregates of the KPL's default size, next to AWS's library for Python."""
    rows = []
    for size in (100, 1024):
        count = _AGGREGATE_BYTES // (size + 20)
        source = random.Random(size)
        records = [
            UserRecord(data=source.randbytes(size), partition_key=f"key-{index}")
            for index in range(count)
        ]
        data = _pack(records)
        batch = batch_of([one._replace(data=data) for one in sample_records(20)])
        outer = {
            "SequenceNumber": "1",
            "PartitionKey": "a",
            "ApproximateArrivalTimestamp": 1.0,
            "Data": data,
        }
        work = {
            "take apart": lambda data=data: decode_aggregate(data),
            "take apart, AWS": lambda outer=outer: list(iter_deaggregate_records([outer], "Boto3")),
            "pack": lambda records=records: _pack(records),
            "pack, AWS": lambda records=records: _pack_with_aws(records),
        }
        seconds = compared(work, repetitions)
        deliveries = {
            "delivery": lambda batch=batch: expand(batch),
            "delivery after a reshard": lambda batch=batch: expand(
                batch, HashRange.of(sample_shard())
            ),
        }
        for name, one in compared(deliveries, repetitions).items():
            seconds[name] = one / len(batch)
        rows += [
            {
                "record_bytes": size,
                "records": count,
                "what": name,
                "microseconds_per_record": one / count * 1e6,
                "mb_per_cpu_second": size * count / one / 1e6,
            }
            for name, one in seconds.items()
        ]
    return rows


def _pack(records: Sequence[UserRecord]) -> bytes:
    packed = pack_user_records(records, max_bytes=10**6)
    return packed.data


def _pack_with_aws(records: Sequence[UserRecord]) -> object:
    aggregator = AwsAggregator()
    for record in records:
        aggregator.add_user_record(record.partition_key, record.data)
    return aggregator.clear_and_get().get_contents()


def markdown(result: dict[str, Any]) -> str:
    """Return the result as tables."""
    lines = heading("Aggregates of the KPL", result["command"], result["environment"])
    lines += [
        "A full page without aggregates: decoded and iterated over, and asked whether it has any.",
        "",
        "| record | payload | records | read | asked | share |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['record_bytes']:,} B | {row['payload']} | {row['records']:,} "
        f"| {row['read'] * 1e3:.2f} ms | {row['ask'] * 1e3:.3f} ms "
        f"| {row['ask'] / row['read']:.1%} |"
        for row in result["without_aggregates"]
    ]
    lines += [
        "",
        "Aggregates of about 50 KiB. A delivery makes the columns of a batch of them.",
        "",
        "| user record | in one aggregate | | us per user record | MB/CPU-s |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['record_bytes']:,} B | {row['records']} | {row['what']} "
        f"| {row['microseconds_per_record']:.2f} | {row['mb_per_cpu_second']:.0f} |"
        for row in result["with_aggregates"]
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--output", type=Path, help="JSON; the tables go next to it as .md")
    arguments = parser.parse_args()
    result = {
        "command": f"python -m benchmarks.aggregation {shlex.join(sys.argv[1:])}".strip(),
        "environment": environment(_PACKAGES),
        "without_aggregates": without_aggregates(arguments.repetitions),
        "with_aggregates": with_aggregates(arguments.repetitions),
    }
    publish(markdown(result), result, arguments.output)


if __name__ == "__main__":
    main()
