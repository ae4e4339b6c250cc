"""Reads by fan-out in a process whose application is blocked until it is told to continue.

Reads the properties as JSON from the first line of standard input; prints its memory in bytes, once
a second while it is blocked; a second line lets the application continue. It ends after the given
number of records and prints how many came more than once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from kinesis_publishers import Delivery, DeliverySink, KinesisDataFetcher


def say(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class BlockedApplication(DeliverySink):
    """Takes what it is given and works on none of it until it is unblocked."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._waiting: list[Delivery] = []
        self._is_blocked = True
        self._seen: set[str] = set()
        self.repeated = 0
        self.done = asyncio.Event()

    @property
    def is_blocked(self) -> bool:
        return self._is_blocked

    def go_on(self) -> None:
        self._is_blocked = False
        for delivery in self._waiting:
            self._work_on(delivery)
        self._waiting.clear()

    async def deliver(self, delivery: Delivery) -> None:
        if self._is_blocked:
            self._waiting.append(delivery)
        else:
            self._work_on(delivery)

    def _work_on(self, delivery: Delivery) -> None:
        for record in delivery.batch:
            self.repeated += record.sequence_number in self._seen
            self._seen.add(record.sequence_number)
        delivery.release()
        if len(self._seen) >= self._expected:
            self.done.set()


async def main(expected: int) -> None:
    properties = json.loads(sys.stdin.readline())
    application = BlockedApplication(expected)

    async def watch() -> None:
        while application.is_blocked:
            say(resident_bytes())
            await asyncio.sleep(1)

    async with (
        KinesisDataFetcher.from_properties(properties, application) as fetcher,
        asyncio.TaskGroup() as tasks,
    ):
        # The first call loads an SDK, which is not what the memory of reading is measured for.
        await fetcher.prepare()
        tasks.create_task(fetcher.run())
        tasks.create_task(watch())
        await asyncio.to_thread(sys.stdin.readline)
        application.go_on()
        await application.done.wait()
        fetcher.stop()
    say(f"repeated {application.repeated}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
