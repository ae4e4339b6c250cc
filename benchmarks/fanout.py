"""Compares our subscriptions with aiobotocore's on the same events in the same run.

``python -m benchmarks.fanout --output benchmarks/results/fanout.json`` measures the throughput
(this module), the latency (:mod:`benchmarks.fanout_latency`) and the memory
(:mod:`benchmarks.fanout_memory`) of enhanced fan-out, and writes the figures as JSON and, beside
it, Markdown tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import fanout_latency, fanout_memory
from benchmarks.canned_fanout import running_fanout_server
from benchmarks.canned_pages import Workload
from benchmarks.canned_server import cpu_seconds
from benchmarks.polling import environment, heading, numbers, publish

if TYPE_CHECKING:
    from benchmarks.canned_fanout import FanOutServer

_PACKAGES = ("botocore", "aiobotocore", "aiohttp", "httpx", "h2", "hpack", "orjson", "pybase64")
_PARTS = ("throughput", "latency", "idle", "blocked")
_RECORD_BYTES = 1024
_ENDLESS_PAGES = 999_999_999
_WARM_UP_SECONDS = 0.1


@dataclass(frozen=True)
class Contest:
    """What is compared over one protocol; the first client is the baseline."""

    protocol: str
    is_secure: bool
    clients: tuple[str, ...]


_CONTESTS = (
    Contest("HTTP/1.1", is_secure=False, clients=("aiobotocore", "ours")),
    Contest("TLS, HTTP/2", is_secure=True, clients=("aiobotocore-http2", "ours")),
)


def throughput(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every client with every number of subscriptions."""
    rows = []
    with running_fanout_server() as server:
        for shards in numbers(arguments.subscriptions):
            workload = Workload(_RECORD_BYTES, shards, _ENDLESS_PAGES, arguments.event_records)
            # The records are made when they are first asked for: not while anything is measured.
            measure(server, _CONTESTS[0], "ours", workload, _WARM_UP_SECONDS)
            for contest in _CONTESTS:
                rows += _compare(server, contest, workload, arguments)
    print(file=sys.stderr)
    return rows


def _compare(
    server: FanOutServer, contest: Contest, workload: Workload, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Let the clients take turns, in an order that is rotated each time."""
    names = list(contest.clients)
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for repetition in range(arguments.repetitions):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(measure(server, contest, name, workload, arguments.seconds))
            print(".", end="", file=sys.stderr, flush=True)
    return summarised(contest, workload, samples)


def measure(
    server: FanOutServer, contest: Contest, client: str, workload: Workload, seconds: float
) -> dict[str, Any]:
    """Run ``client`` in a process of its own and return what it and the server have burnt."""
    before = cpu_seconds(server.http_url)
    command = [sys.executable, "-m", "benchmarks.subscribers", client, "--seconds", str(seconds)]
    command += ["--stream", workload.name, *server.arguments(is_secure=contest.is_secure)]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    # Opening the subscriptions is part of it: an upper bound.
    result["server_cpu_seconds"] = cpu_seconds(server.http_url) - before
    return result


def summarised(
    contest: Contest, workload: Workload, samples: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return a row per client: medians, and the ratio to the baseline of the same run."""
    cpu = {
        name: statistics.median(one["cpu_seconds"] / one["records"] for one in of_client)
        for name, of_client in samples.items()
    }
    return [
        {
            "protocol": contest.protocol,
            "subscriptions": workload.shards,
            "record_bytes": workload.record_bytes,
            "event_records": workload.page_records,
            "client": name,
            "mb_per_cpu_second": workload.record_bytes / 1e6 / cpu[name],
            "records_per_cpu_second": 1 / cpu[name],
            "times_baseline": cpu[contest.clients[0]] / cpu[name],
            "server_share": statistics.median(
                one["server_cpu_seconds"] / one["cpu_seconds"] for one in of_client
            ),
            "peak_rss_mib": statistics.median(one["peak_rss_kib"] for one in of_client) / 1024,
            "samples": of_client,
        }
        for name, of_client in samples.items()
    ]


def throughput_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as a table."""
    return [
        "| protocol | subscriptions | client | MB/CPU-s | x aiobotocore | server CPU | peak RSS |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['protocol']} | {row['subscriptions']} | {row['client']} "
            f"| {row['mb_per_cpu_second']:.0f} | {row['times_baseline']:.1f} "
            f"| {row['server_share']:.0%} | {row['peak_rss_mib']:.0f} MiB |"
            for row in rows
        ),
    ]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--parts", default=",".join(_PARTS), help="which, separated by commas")
    parser.add_argument("--repetitions", type=int, default=5, help="of the throughput")
    parser.add_argument("--seconds", type=float, default=5.0, help="per sample of the throughput")
    parser.add_argument("--subscriptions", default="1,8,64", help="for the throughput")
    parser.add_argument("--event-records", type=int, default=500, help="records of one event")
    parser.add_argument("--latency-shards", default="1,8,60")
    parser.add_argument("--latency-seconds", type=float, default=20.0)
    parser.add_argument("--idle", default="1,100,500", help="numbers of idle subscriptions")
    parser.add_argument("--blocked-seconds", type=float, default=120.0)
    parser.add_argument("--output", type=Path, help="JSON; the tables go next to it as .md")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts.split(",")) - set(_PARTS):
        parser.error(f"no such parts: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    """Measure, print the tables, and write them."""
    arguments = _parse_arguments()
    parts = arguments.parts.split(",")
    results: dict[str, Any] = {}
    tables: list[list[str]] = []
    if "throughput" in parts:
        results["throughput"] = throughput(arguments)
        tables.append(throughput_table(results["throughput"]))
    if "latency" in parts:
        shards = numbers(arguments.latency_shards)
        results["latency"] = fanout_latency.measure(shards, arguments.latency_seconds)
        tables.append(fanout_latency.table(results["latency"]))
    if "idle" in parts:
        results["idle"] = fanout_memory.measure_idle(numbers(arguments.idle))
        tables.append(fanout_memory.idle_table(results["idle"]))
    if "blocked" in parts:
        results["blocked"] = fanout_memory.measure_blocked(arguments.blocked_seconds)
        tables.append(fanout_memory.blocked_table(results["blocked"]))
    command = f"python -m benchmarks.fanout {shlex.join(sys.argv[1:])}".strip()
    versions = environment(_PACKAGES)
    lines = heading("Enhanced fan-out", command, versions)
    text = "\n".join(lines) + "\n" + "\n\n".join("\n".join(table) for table in tables) + "\n"
    publish(text, {"command": command, "environment": versions, **results}, arguments.output)


if __name__ == "__main__":
    main()
