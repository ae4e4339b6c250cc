"""Compares our polling with its peers on the same pages in the same run.

``python -m benchmarks.polling --output benchmarks/results/polling.json`` writes the figures as JSON
and, next to it, a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import Workload
from benchmarks.canned_server import cpu_seconds, running_server
from benchmarks.clients import CLIENTS
from kinesis_publishers.model.native import find_native

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PACKAGES = ("botocore", "aiobotocore", "aiohttp", "orjson", "pybase64", "cbor2", "async-kinesis")
_BASELINE = "boto3"
_MANY_SHARDS = 4


def measure(url: str, client: str, workload: Workload) -> dict[str, Any]:
    """Run ``client`` in a process of its own and return what it and the server have burnt."""
    before = cpu_seconds(url)
    command = [sys.executable, "-m", "benchmarks.clients", client]
    command += ["--endpoint", url, "--stream", workload.name]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    result["server_cpu_seconds"] = cpu_seconds(url) - before
    return result


def workloads(sizes: list[int], pages: int) -> list[Workload]:
    """Return what is read: ``pages`` of each size from one shard, and spread over several."""
    return [
        Workload(size, shards, max(2, pages // shards))
        for size in sizes
        for shards in (1, _MANY_SHARDS)
    ]


def run(
    plan: list[Workload],
    repetitions: int,
    names: Sequence[str] = tuple(CLIENTS),
    baseline: str = _BASELINE,
) -> list[dict[str, Any]]:
    """Measure clients on every workload, in an order that is rotated each time."""
    names = list(names)
    rows = []
    with running_server() as url:
        for workload in plan:
            samples: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
            # The pages are made when they are first asked for: not while anything is measured.
            for name in ("ours-cbor", "ours-json"):
                measure(url, name, Workload(workload.record_bytes, workload.shards, 1))
            for repetition in range(repetitions):
                turn = repetition % len(names)
                for name in names[turn:] + names[:turn]:
                    samples[name].append(measure(url, name, workload))
                    print(".", end="", file=sys.stderr, flush=True)
            rows += summarised(workload, samples, baseline)
    print(file=sys.stderr)
    return rows


def summarised(
    workload: Workload, samples: dict[str, list[dict[str, Any]]], baseline: str
) -> list[dict[str, Any]]:
    """Return a row per client: medians, and the ratio to ``baseline`` of the same run."""
    # Seconds per record, because the uncounted first page is not the same for everybody.
    cpu = {
        name: statistics.median(one["cpu_seconds"] / one["records"] for one in of_client)
        for name, of_client in samples.items()
    }
    return [
        {
            "record_bytes": workload.record_bytes,
            "shards": workload.shards,
            "pages_per_shard": workload.pages,
            "client": name,
            "mb_per_cpu_second": workload.record_bytes / 1e6 / cpu[name],
            "records_per_cpu_second": 1 / cpu[name],
            f"times_{baseline}": cpu[baseline] / cpu[name],
            "server_share": statistics.median(
                one["server_cpu_seconds"] / one["cpu_seconds"] for one in of_client
            ),
            "peak_rss_mib": statistics.median(one["peak_rss_kib"] for one in of_client) / 1024,
            "samples": of_client,
        }
        for name, of_client in samples.items()
    ]


def environment(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Return what the figures depend on."""
    versions = {name: version(name) for name in packages}
    machine = f"{len(os.sched_getaffinity(0))} cores, loopback"
    decoder = find_native()[1]
    return {
        "python": platform.python_version(),
        **versions,
        "decoder": decoder,
        "machine": machine,
    }


def heading(title: str, command: str, versions: dict[str, str]) -> list[str]:
    """Return the first lines of a page of results."""
    listed = ", ".join(f"{name} {value}" for name, value in versions.items())
    return [f"# {title}", "", f"`{command}`", "", listed, ""]


def publish(table: str, result: dict[str, Any], output: Path | None) -> None:
    """Print the table; write the JSON to ``output`` and the table next to it."""
    print(table)
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")
        output.with_suffix(".md").write_text(table)


def numbers(text: str) -> list[int]:
    """Return the numbers of an argument that separates them by commas."""
    return [int(number) for number in text.split(",")]


def markdown(
    rows: list[dict[str, Any]], command: str, versions: dict[str, str], baseline: str
) -> str:
    """Return the rows as a table."""
    columns = f"MB/CPU-s | records/CPU-s | x {baseline} | server CPU | peak RSS"
    lines = [
        *heading("Polling", command, versions),
        f"| record | shards | client | {columns} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['record_bytes']:,} B | {row['shards']} | {row['client']} "
        f"| {row['mb_per_cpu_second']:.0f} | {row['records_per_cpu_second']:,.0f} "
        f"| {row[f'times_{baseline}']:.2f} | {row['server_share']:.0%} "
        f"| {row['peak_rss_mib']:.0f} MiB |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="200,1024,102400", help="payload sizes in bytes")
    parser.add_argument("--pages", type=int, default=32, help="what each client reads")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--clients", default=",".join(CLIENTS), help="the baseline must be among them"
    )
    parser.add_argument("--baseline", default=_BASELINE, help="the others are compared with it")
    parser.add_argument("--output", type=Path, help="JSON; the table goes next to it as .md")
    arguments = parser.parse_args()
    plan = workloads(numbers(arguments.sizes), arguments.pages)
    names = arguments.clients.split(",")
    rows = run(plan, arguments.repetitions, names, arguments.baseline)
    command = f"python -m benchmarks.polling {shlex.join(sys.argv[1:])}".strip()
    versions = environment(name for name in _PACKAGES if name != "async-kinesis" or name in names)
    table = markdown(rows, command, versions, arguments.baseline)
    result = {"command": command, "environment": versions, "rows": rows}
    publish(table, result, arguments.output)


if __name__ == "__main__":
    main()
