"""What our client holds in memory, and for how long it blocks its event loop.

``python -m benchmarks.memory --output benchmarks/results/memory.json``. Each part runs in a process
of its own, because a peak never goes down again.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import Workload
from benchmarks.canned_server import running_server
from benchmarks.clients import reader_properties
from benchmarks.polling import environment, heading, publish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import RecordBatch, Shard

_MIB = 1024 * 1024
_RECORD_BYTES = 1024
_MARKS_MB = (200, 1000, 2000)
_IDLE_SHARDS = (1, 500)
_IDLE_CALLS_PER_SHARD = 20
_PARTS = ("flat", "idle", "stall")


def rss_bytes() -> int:
    """Return the resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Return the highest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def flat(url: str) -> dict[str, Any]:
    """Read 2 GB record by record; memory must not depend on how much has been read."""
    from kinesis_publishers import KinesisDataFetcher

    page = Workload(_RECORD_BYTES, 1, 1).payload_bytes
    workload = Workload(_RECORD_BYTES, 1, -(-_MARKS_MB[-1] * 1_000_000 // page))
    read = 0
    marks = list(_MARKS_MB)
    samples: list[dict[str, float]] = []

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        nonlocal read
        read += sum(len(record.data) for record in batch)
        if marks and read >= marks[0] * 1_000_000:
            # The kernel brings the peak up to date a little later than the current size.
            rss = rss_bytes() / _MIB
            peak = max(rss, peak_bytes() / _MIB)
            samples.append({"megabytes": marks.pop(0), "rss_mib": rss, "peak_mib": peak})
        if read >= workload.payload_bytes:
            fetcher.stop()

    properties = reader_properties(url, workload)
    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        before = rss_bytes() / _MIB
        await fetcher.run()
    return {"before_mib": before, "samples": samples}


async def idle(url: str) -> dict[str, Any]:
    """Poll empty shards; what the first does not cost is the price of one more shard."""
    sizes = [await _idle_rss(url, shards) for shards in _IDLE_SHARDS]
    per_shard = (sizes[1] - sizes[0]) / (_IDLE_SHARDS[1] - _IDLE_SHARDS[0])
    return {
        "shards": _IDLE_SHARDS[1],
        "rss_mib": sizes[1] / _MIB,
        "kib_per_shard": per_shard / 1024,
    }


async def _idle_rss(url: str, shards: int) -> int:
    from kinesis_publishers import KinesisDataFetcher
    from kinesis_publishers.events import RecordsFetched

    calls = 0
    peak = 0

    def count(event: object) -> None:
        nonlocal calls, peak
        calls += isinstance(event, RecordsFetched)
        if calls >= shards * _IDLE_CALLS_PER_SHARD and not peak:
            peak = rss_bytes()
            fetcher.stop()

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        raise AssertionError(f"{shard} is not empty")

    properties = reader_properties(url, Workload(_RECORD_BYTES, shards, 0))
    async with KinesisDataFetcher.from_properties(properties, on_batch, events=count) as fetcher:
        await fetcher.run()
    return peak


async def stall(url: str) -> dict[str, Any]:
    """Read full pages and see for how long nothing else gets a turn in the event loop."""
    stalls = {
        str(size): await _longest_stall(url, Workload(size, 1, 100)) for size in (200, 1024, 102400)
    }
    return {"longest_ms_by_record_bytes": stalls}


async def _longest_stall(url: str, workload: Workload) -> dict[str, float]:
    from kinesis_publishers import KinesisDataFetcher

    records = 0

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        nonlocal records
        records += len(batch)
        if records >= workload.records:
            fetcher.stop()

    properties = reader_properties(url, workload)
    async with (
        KinesisDataFetcher.from_properties(properties, on_batch) as fetcher,
        _ticker() as stalls,
    ):
        await fetcher.run()
    return {name: max(values) * 1e3 for name, values in stalls.items()}


@asynccontextmanager
async def _ticker() -> AsyncIterator[dict[str, list[float]]]:
    """Take turns with the reader; yields how long each turn of the others took.

    ``wall`` includes what other processes took; ``cpu`` is what this one is to blame for, and
    ``without_gc`` leaves out the full collections of Python's garbage collector, whose length
    depends on everything that the process holds.
    """
    stalls: dict[str, list[float]] = {"wall": [0.0], "cpu": [0.0], "without_gc": [0.0]}
    collector = _CollectorTime()

    async def tick() -> None:
        while True:
            wall, cpu, collecting = time.perf_counter(), time.thread_time(), collector.seconds
            await asyncio.sleep(0)
            spent = time.thread_time() - cpu
            stalls["wall"].append(time.perf_counter() - wall)
            stalls["cpu"].append(spent)
            stalls["without_gc"].append(spent - (collector.seconds - collecting))

    gc.callbacks.append(collector)
    task = asyncio.create_task(tick())
    try:
        yield stalls
    finally:
        task.cancel()
        gc.callbacks.remove(collector)


class _CollectorTime:
    """Adds up the CPU time of full collections; a callback of ``gc.callbacks``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._started = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._started


def markdown(results: dict[str, Any], command: str, versions: dict[str, str]) -> str:
    """Return the results as tables."""
    idle_result = results["idle"]
    lines = [
        *heading("Memory and event loop", command, versions),
        "| read, records of 1 KiB | RSS | peak RSS |",
        "|---|---|---|",
        f"| nothing yet | {results['flat']['before_mib']:.0f} MiB | |",
        *(
            f"| {one['megabytes']:,} MB | {one['rss_mib']:.0f} MiB | {one['peak_mib']:.0f} MiB |"
            for one in results["flat"]["samples"]
        ),
        "",
        (
            f"{idle_result['shards']} idle shards: {idle_result['rss_mib']:.0f} MiB in all, "
            f"{idle_result['kib_per_shard']:.0f} KiB per shard."
        ),
        "",
        "| record | longest stall of the loop | in CPU time | without full garbage collections |",
        "|---|---|---|---|",
        *(
            f"| {int(size):,} B | {one['wall']:.0f} ms | {one['cpu']:.0f} ms "
            f"| {one['without_gc']:.0f} ms |"
            for size, one in results["stall"]["longest_ms_by_record_bytes"].items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _run_parts() -> dict[str, Any]:
    results = {}
    with running_server() as url:
        for part in _PARTS:
            command = [sys.executable, "-m", "benchmarks.memory", "--part", part, "--endpoint", url]
            finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results[part] = json.loads(finished.stdout)
    return results


def main() -> None:
    """Run every part, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=_PARTS, help="only this one, in this process")
    parser.add_argument("--endpoint", help="of a canned server; goes with --part")
    parser.add_argument("--output", type=Path, help="JSON; the tables go next to it as .md")
    arguments = parser.parse_args()
    if arguments.part is not None:
        part = {"flat": flat, "idle": idle, "stall": stall}[arguments.part]
        print(json.dumps(asyncio.run(part(arguments.endpoint))))
        return
    results = _run_parts()
    command = f"python -m benchmarks.memory {shlex.join(sys.argv[1:])}".strip()
    versions = environment()
    table = markdown(results, command, versions)
    publish(table, {"command": command, "environment": versions, **results}, arguments.output)


if __name__ == "__main__":
    main()
