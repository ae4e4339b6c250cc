"""How well the workers of a scan fill their time with calls that wait for something else.

``python -m benchmarks.parallel --output benchmarks/results/parallel.json`` reads one shard of a
local Kinesis in a process of its own, with a hundred keys, and calls a function that waits 10 ms
for each record. It writes the rate as a share of what the workers could do, and that of a pool of
threads that waits as often.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from benchmarks.polling import environment, heading, publish
from kinesis_publishers import ScanResult, scan

if TYPE_CHECKING:
    from kinesis_publishers import Record

_POOL = "a pool of threads"
# By name: the order, and whether the function is async.
_CALLS: dict[str, tuple[Any, bool]] = {
    "by key, in threads": ("partition_key", False),
    "by key, async": ("partition_key", True),
    "without order, in threads": (None, False),
}
_KEYS, _WAIT_SECONDS, _EACH = 100, 0.01, 300


def measured(url: str, workers: int, order: Any, *, is_async: bool) -> float:
    """Return the share of the workers' time that calls fill."""
    count, stream = workers * _EACH, f"s{workers}{order}{is_async}"
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    client = boto3.client("kinesis", "us-east-1", endpoint_url=url, **keys)
    client.create_stream(StreamName=stream, ShardCount=1)
    client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})
    for first in range(0, count, 500):
        records = [
            {"Data": b"x" * 200, "PartitionKey": f"key-{one % _KEYS}"}
            for one in range(first, min(first + 500, count))
        ]
        client.put_records(StreamName=stream, Records=records)
    times: list[float] = []
    lock = threading.Lock()

    def note() -> ScanResult | None:
        with lock:
            times.append(time.monotonic())
            return ScanResult.STOP if len(times) == count else None

    def process(record: Record) -> ScanResult | None:
        time.sleep(_WAIT_SECONDS)  # What is measured: a call that waits.
        return note()

    async def process_async(record: Record) -> ScanResult | None:
        await asyncio.sleep(_WAIT_SECONDS)
        return note()

    scan(
        stream=stream,
        region="us-east-1",
        start="TRIM_HORIZON",
        process=process_async if is_async else process,
        workers=workers,
        ordered_by=order,
        properties={
            "aws.endpoint": url,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": "local",
            "aws.credentials.provider.basic.secretkey": "local",
            "kinesis.shard.limits": "off",
        },
    )
    return (count - 1) * _WAIT_SECONDS / (times[-1] - times[0]) / workers


def of_a_pool(workers: int) -> float:
    """Return the same of a pool of threads."""
    count = workers * _EACH
    with ThreadPoolExecutor(workers) as pool:
        began_at = time.monotonic()
        list(pool.map(time.sleep, [_WAIT_SECONDS] * count))
        return count * _WAIT_SECONDS / (time.monotonic() - began_at) / workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    command = [sys.executable, "-m", "kinesis_publishers.cli.main", "local", "--port", "0"]
    rows: list[dict[str, Any]] = []
    with subprocess.Popen(
        [*command, "--limits", "off"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith("aws.endpoint"))
        url = line.partition("=")[2].strip()
        for workers in options.workers:
            rows.append({"calls": _POOL, "workers": workers, "share": of_a_pool(workers)})
            for name, (order, is_async) in _CALLS.items():
                share = measured(url, workers, order, is_async=is_async)
                rows.append({"calls": name, "workers": workers, "share": share})
        server.terminate()
    lines = ["| calls | workers | share |", "|---|---|---|"]
    lines += [f"| {one['calls']} | {one['workers']} | {one['share']:.2f} |" for one in rows]
    command_line = f"python -m benchmarks.parallel {shlex.join(sys.argv[1:])}"
    head = heading("Calls that wait, in parallel", command_line, environment(()))
    about = (
        "The share of the workers' time that calls fill which wait 10 ms each, with a hundred keys."
    )
    publish("\n".join([*head, about, "", *lines, ""]), {"parallel": rows}, options.output)


if __name__ == "__main__":
    main()
