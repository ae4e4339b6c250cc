"""How long a record takes from the beginning of its put to the consumer, against LocalKinesis.

Three processes: the server, a producer that puts one record into every shard at a time, and the
reader. Each record says when its put began; the clock is the one that all processes share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.clients import CREDENTIALS, REGION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers import RecordBatch, Shard

__all__ = ["STAMP_BYTES", "measure", "percentiles", "running", "table"]

_STREAM = "latency"
_CONSUMER = "benchmark"
_RECORD_BYTES = 1024
_PUT_PERIOD_SECONDS = 0.1
_PREPARE_SECONDS = 120.0
_HASH_KEYS = 2**128
#: A payload begins with the instant at which its put began, by the monotonic clock in ns.
STAMP_BYTES = 8


async def serve(shards: int, *, is_secure: bool) -> None:
    """Serve a stream until the standard input ends."""
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

    async with LocalKinesis(tls=is_secure) as server:
        server.create_stream(_STREAM, shards)
        print(json.dumps(server.properties(_STREAM)), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def produce(properties: dict[str, str], shards: int) -> None:
    """Put a record into every shard, ten times a second, until the standard input ends."""
    import boto3

    client = boto3.client(
        "kinesis",
        endpoint_url=properties["aws.endpoint"],
        region_name=REGION,
        verify=properties.get("aws.cabundle"),
        **CREDENTIALS,
    )
    # In the middle of the range of hash keys of each shard.
    keys = [str(_HASH_KEYS * (2 * shard + 1) // (2 * shards)) for shard in range(shards)]
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.buffer.read(1) is None:
        stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "big")
        data = stamp.ljust(_RECORD_BYTES, b"x")
        records = [{"Data": data, "PartitionKey": "p", "ExplicitHashKey": key} for key in keys]
        answer = client.put_records(StreamName=_STREAM, Records=records)
        if answer["FailedRecordCount"]:
            sys.exit(f"{answer['FailedRecordCount']} records were refused")
        elapsed = (time.monotonic_ns() - int.from_bytes(stamp, "big")) / 1e9
        time.sleep(max(0.0, _PUT_PERIOD_SECONDS - elapsed))


async def read(properties: dict[str, str], shards: int, seconds: float) -> list[float]:
    """Return the milliseconds that each record took, once every shard has delivered one."""
    from kinesis_publishers import KinesisDataFetcher

    milliseconds: list[float] = []
    waited_for = set(range(shards))
    ends_at = time.monotonic() + _PREPARE_SECONDS

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        nonlocal ends_at
        now_ns = time.monotonic_ns()
        if waited_for:
            waited_for.discard(int(shard.shard_id.rpartition("-")[2]))
            if not waited_for:
                ends_at = time.monotonic() + seconds
            return
        for record in batch:
            began_ns = int.from_bytes(record.data[:STAMP_BYTES], "big")
            milliseconds.append((now_ns - began_ns) / 1e6)
        if time.monotonic() >= ends_at:
            fetcher.stop()

    options = {
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.consumername": _CONSUMER,
        "kinesis.stream.initpos": "LATEST",
    }
    async with KinesisDataFetcher.from_properties(properties | options, on_batch) as fetcher:
        await fetcher.run()
    return milliseconds


def measure(shard_counts: list[int], seconds: float) -> list[dict[str, Any]]:
    """Measure the latency with so many shards, over either protocol."""
    return [
        _measure_one(shards, seconds, is_secure=is_secure)
        for is_secure in (False, True)
        for shards in shard_counts
    ]


def _measure_one(shards: int, seconds: float, *, is_secure: bool) -> dict[str, Any]:
    secure = ["--tls"] if is_secure else []
    with running("serve", "--shards", str(shards), *secure) as server:
        assert server.stdout is not None
        properties = server.stdout.readline()
        with running("produce", "--shards", str(shards), "--properties", properties):
            reader = _command("read", "--shards", str(shards), "--properties", properties)
            reader += ["--seconds", str(seconds)]
            finished = subprocess.run(reader, check=True, stdout=subprocess.PIPE, text=True)
    print(".", end="", file=sys.stderr, flush=True)
    milliseconds = json.loads(finished.stdout)
    protocol = "TLS, HTTP/2" if is_secure else "HTTP/1.1"
    return {"protocol": protocol, "shards": shards, **percentiles(milliseconds)}


def percentiles(milliseconds: list[float]) -> dict[str, float]:
    """Return how many records there were, and how long half of them, 99 % and all of them took."""
    hundredths = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return {
        "records": len(milliseconds),
        "p50_ms": hundredths[49],
        "p99_ms": hundredths[98],
        "longest_ms": max(milliseconds),
    }


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``serve`` or ``produce`` in a process of its own, until the context ends."""
    with subprocess.Popen(
        _command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.fanout_latency", *arguments]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the latencies as a table."""
    return [
        "| protocol | shards | records | put to received, p50 | p99 | longest |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['protocol']} | {row['shards']} | {row['records']:,} | {row['p50_ms']:.1f} ms "
            f"| {row['p99_ms']:.1f} ms | {row['longest_ms']:.0f} ms |"
            for row in rows
        ),
    ]


def main() -> None:
    """Run one of the processes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("role", choices=("serve", "produce", "read"))
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--properties", type=json.loads)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    if arguments.role == "serve":
        asyncio.run(serve(arguments.shards, is_secure=arguments.tls))
    elif arguments.role == "produce":
        produce(arguments.properties, arguments.shards)
    else:
        reading = read(arguments.properties, arguments.shards, arguments.seconds)
        print(json.dumps(asyncio.run(reading)), flush=True)


if __name__ == "__main__":
    main()
