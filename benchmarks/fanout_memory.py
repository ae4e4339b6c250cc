"""What subscriptions hold in memory: idle ones, and those whose records are not taken.

``python -m benchmarks.fanout_memory idle --endpoint URL --stream NAME`` measures in this process
and prints one line of JSON; :mod:`benchmarks.fanout` runs it for every case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.canned_fanout import running_fanout_server
from benchmarks.canned_pages import Workload
from benchmarks.memory import peak_bytes, rss_bytes
from benchmarks.subscribers import Target, subscriber_properties
from kinesis_publishers import (
    Delivery,
    DeliverySink,
    KinesisDataFetcher,
    RecordBatch,
    Shard,
)
from kinesis_publishers.events import EventReceived, SubscriptionEnded

if TYPE_CHECKING:
    from benchmarks.canned_fanout import FanOutServer
__all__ = ["blocked_table", "idle_table", "measure_blocked", "measure_idle"]

_MIB = 1024 * 1024
_RECORD_BYTES = 1024
_EVENT_RECORDS = 500
_ENDLESS_PAGES = 999_999_999
_BLOCKED_SHARDS = 16
_SAMPLE_SECONDS = 0.25
# How long the application takes records before it blocks, so that what it needs anyway is there.
_READ_SECONDS = 3.0
_RECOVERY_SECONDS = 60.0
# The first event comes with the answer; with the second one a subscription has been idle.
_IDLE_EVENTS = 2


class Case(NamedTuple):
    """How subscriptions are carried."""

    name: str
    is_secure: bool


_CASES = (
    Case("HTTP/1.1", is_secure=False),
    Case("TLS, HTTP/2", is_secure=True),
)


async def idle(target: Target) -> dict[str, Any]:
    """Subscribe to empty shards and return what the process holds once all have been idle."""
    seen: Counter[str] = Counter()
    rss = 0

    def watch(event: object) -> None:
        nonlocal rss
        if isinstance(event, EventReceived):
            seen[event.shard.shard_id] += 1
            is_due = len(seen) == target.workload.shards and min(seen.values()) >= _IDLE_EVENTS
            if is_due and not rss:
                rss = rss_bytes()
                fetcher.stop()

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        raise AssertionError(f"{shard} is not empty")

    properties = subscriber_properties(target)
    async with KinesisDataFetcher.from_properties(properties, on_batch, events=watch) as fetcher:
        await fetcher.run()
    return {"subscriptions": target.workload.shards, "rss_mib": rss / _MIB}


class _BlockingApplication(DeliverySink):
    """Takes nothing while it blocks.

    For every second shard it buffers what it is given, as the Spark source does, until the pool is
    full; for the others it does not return, as a slow callback.
    """

    def __init__(self) -> None:
        self.endings = 0
        self._is_blocked = False
        self._held: list[Delivery] = []
        self._deliveries: Counter[str] = Counter()
        self._delivered = asyncio.Event()
        self._goes_on = asyncio.Event()

    async def deliver(self, delivery: Delivery) -> None:
        self._deliveries[delivery.shard.shard_id] += 1
        self._delivered.set()
        if not self._is_blocked:
            delivery.release()
            return
        self._held.append(delivery)
        if int(delivery.shard.shard_id[-1], 16) % 2:
            await self._goes_on.wait()

    def watch(self, event: object) -> None:
        self.endings += isinstance(event, SubscriptionEnded)

    def block(self) -> None:
        self._is_blocked = True

    async def read_on(self, shards: int) -> None:
        """Take everything out, and return when every shard delivers again."""
        self._is_blocked = False
        self._goes_on.set()
        self._deliveries.clear()
        while self._held:
            self._held.pop().release()
        while len(self._deliveries) < shards:
            self._delivered.clear()
            await self._delivered.wait()


async def blocked(target: Target, seconds: float) -> dict[str, Any]:
    """Block for ``seconds`` while every shard pushes as fast as it can; then read on."""
    application = _BlockingApplication()
    properties = subscriber_properties(target)
    async with KinesisDataFetcher.from_properties(
        properties, application, events=application.watch
    ) as fetcher:
        reading = asyncio.ensure_future(fetcher.run())
        measuring = asyncio.ensure_future(_block(application, fetcher, target, seconds))
        await asyncio.wait([reading, measuring], return_when=asyncio.FIRST_COMPLETED)
        if not measuring.done():
            measuring.cancel()
            await reading
            raise AssertionError("the fetcher ended before it was told to")
        await reading
    return await measuring


async def _block(
    application: _BlockingApplication, fetcher: KinesisDataFetcher, target: Target, seconds: float
) -> dict[str, Any]:
    await asyncio.sleep(_READ_SECONDS)
    reading_mib = rss_bytes() / _MIB
    application.block()
    peak_mib = await _highest_rss_mib(seconds)
    endings = application.endings
    async with asyncio.timeout(_RECOVERY_SECONDS):
        await application.read_on(target.workload.shards)
    fetcher.stop()
    return {
        "shards": target.workload.shards,
        "seconds": seconds,
        "reading_rss_mib": reading_mib,
        "blocked_peak_rss_mib": peak_mib,
        "subscriptions_closed": endings,
        "peak_rss_mib": peak_bytes() / _MIB,
    }


async def _highest_rss_mib(seconds: float) -> float:
    highest = 0
    for _ in range(max(1, round(seconds / _SAMPLE_SECONDS))):
        await asyncio.sleep(_SAMPLE_SECONDS)
        highest = max(highest, rss_bytes())
    return highest / _MIB


def measure_idle(numbers: list[int]) -> list[dict[str, Any]]:
    """Measure so many idle subscriptions; the first number is what the others are compared to."""
    rows = []
    with running_fanout_server() as server:
        for case in _CASES:
            measured = [
                _run(server, case, "idle", Workload(_RECORD_BYTES, number, 0)) for number in numbers
            ]
            rows += [_per_subscription(one, measured[0]) for one in measured]
    return rows


def _per_subscription(row: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    more = row["subscriptions"] - first["subscriptions"]
    kib = (row["rss_mib"] - first["rss_mib"]) * 1024
    return row | {"kib_per_subscription": kib / more if more else None}


def measure_blocked(seconds: float) -> list[dict[str, Any]]:
    """Measure an application that takes nothing for so long."""
    workload = Workload(_RECORD_BYTES, _BLOCKED_SHARDS, _ENDLESS_PAGES, _EVENT_RECORDS)
    with running_fanout_server() as server:
        return [
            _run(server, case, "blocked", workload, "--seconds", str(seconds)) for case in _CASES
        ]


def _run(
    server: FanOutServer, case: Case, part: str, workload: Workload, *options: str
) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.fanout_memory", part, *options]
    command += ["--stream", workload.name]
    command += server.arguments(is_secure=case.is_secure)
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print(".", end="", file=sys.stderr, flush=True)
    return {"carrier": case.name, **json.loads(finished.stdout)}


def idle_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the memory of idle subscriptions as a table."""
    return [
        "| carrier | idle subscriptions | RSS | per further subscription |",
        "|---|---|---|---|",
        *(
            f"| {row['carrier']} | {row['subscriptions']} | {row['rss_mib']:.0f} MiB "
            f"| {_kib(row['kib_per_subscription'])} |"
            for row in rows
        ),
    ]


def _kib(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} KiB"


def blocked_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the memory of a blocked application as a table."""
    return [
        "| carrier | shards | blocked for | RSS before | peak RSS while blocked | closed |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['carrier']} | {row['shards']} | {row['seconds']:.0f} s "
            f"| {row['reading_rss_mib']:.0f} MiB | {row['blocked_peak_rss_mib']:.0f} MiB "
            f"| {row['subscriptions_closed']} |"
            for row in rows
        ),
    ]


def main() -> None:
    """Measure one case and print it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("part", choices=("idle", "blocked"))
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--ca-bundle")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    arguments = parser.parse_args()
    workload = Workload.parse(arguments.stream)
    if workload is None:
        sys.exit(f"{arguments.stream!r} does not describe a workload")
    target = Target(arguments.endpoint, arguments.ca_bundle, workload)
    measured = idle(target) if arguments.part == "idle" else blocked(target, arguments.seconds)
    print(json.dumps(asyncio.run(measured)), flush=True)


if __name__ == "__main__":
    main()
