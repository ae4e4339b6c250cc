"""Reads by fan-out in a process of its own whose application is blocked until it is told to go on.

Reads the properties as JSON from the first line of standard input; prints its memory in bytes, once
a second while it is blocked; a second line lets the application go on. It ends after the given
number of records and prints how many came more than once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from kinesis_publishers import KinesisDataFetcher, RecordBatch, Shard


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def say(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


async def main(expected: int) -> None:
    properties = json.loads(sys.stdin.readline())
    gate, done = asyncio.Event(), asyncio.Event()
    seen: set[str] = set()
    repeated = 0

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        nonlocal repeated
        await gate.wait()
        for record in batch:
            repeated += record.sequence_number in seen
            seen.add(record.sequence_number)
        if len(seen) >= expected:
            done.set()

    async def watch() -> None:
        while not gate.is_set():
            say(resident_bytes())
            await asyncio.sleep(1)

    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        running = asyncio.create_task(fetcher.run())
        watching = asyncio.create_task(watch())
        await asyncio.to_thread(sys.stdin.readline)
        gate.set()
        await asyncio.wait(
            [running, asyncio.create_task(done.wait())], return_when="FIRST_COMPLETED"
        )
        fetcher.stop()
        await running
        await watching
    say(f"repeated {repeated}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
