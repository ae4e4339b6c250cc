"""Runs all benchmarks, and draws the charts: ``python -m benchmarks`` takes hours on idle cores.

``python -m benchmarks --smoke`` takes a minute, also on busy ones. It measures a few ratios of CPU
time, with both sides in one run, and fails if one is below half of what ``results/`` has.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import decoding, polling, producing
from benchmarks.canned_pages import Workload
from benchmarks.canned_server import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESULTS = Path(__file__).parent / "results"
# Of module and file of results.
_ALL = (
    "decoding",
    "polling",
    "calls",
    "memory",
    "fanout",
    "aggregation",
    "producing",
    "batch_planning",
    "spark",
)
_BASELINE = "boto3"
# What the short form measures beside it: clients, for producing with the size of records.
_POLLING = ("ours-batches", "native-batches")
_PRODUCING = (
    ("ours", 1024),
    ("native", 1024),
    ("ours-aggregated", 200),
    ("native-aggregated", 200),
)


def _run_all() -> None:
    for name in _ALL:
        output = _RESULTS / f"{name.replace('_', '-')}.json"
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--output", str(output)], check=True
        )
    subprocess.run([sys.executable, "-m", "docs.pictures"], check=True)


def _stored(name: str, part: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((_RESULTS / f"{name}.json").read_text())[part]
    return rows


def _decoding(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    for row in rows:
        size, encoding = row["record_bytes"], row["encoding"]
        for of in ("", "_arrow"):
            name = f"native code, {encoding} of {size} B{of.replace('_', ', ')}"
            yield name, row[f"python{of}"] / row[f"native{of}"]


def _polling(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    for row in rows:
        client, *workload = row["client"], row["record_bytes"], row["shards"]
        if client in _POLLING and workload == [1024, 1]:
            yield f"polling 1,024 B, {client}", row[f"times_{_BASELINE}"]


def _producing(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    cpu = {(row["client"], row["record_bytes"]): statistics.median(row["cpu_us"]) for row in rows}
    for client, size in _PRODUCING:
        yield f"producing {size:,} B, {client}", cpu[_BASELINE, size] / cpu[client, size]


def _smoke() -> int:
    clients = [_BASELINE, *(client for client, _ in _PRODUCING)]
    with running_server() as url:
        written = producing.measure_throughput(url, [200, 1024], 40_000, 3, clients)
    read = polling.run([Workload(1024, 1, 6)], 3, [_BASELINE, *_POLLING])
    found = {
        **dict(_decoding(decoding.measure([200, 1024], 3))),
        **dict(_polling(read)),
        **dict(_producing(written)),
    }
    stored = {
        **dict(_decoding(_stored("decoding", "rows"))),
        **dict(_polling(_stored("polling", "rows"))),
        **dict(_producing(_stored("producing", "throughput"))),
    }
    slow = [name for name, ratio in found.items() if ratio < stored[name] / 2]
    for name, ratio in found.items():
        print(f"{name}: {ratio:.1f} times, {stored[name]:.1f} stored{' !' * (name in slow)}")
    return len(slow)


def main() -> None:
    """Run everything, or the short form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="compare a few ratios with the stored")
    if parser.parse_args().smoke:
        sys.exit(1 if _smoke() else 0)
    _run_all()


if __name__ == "__main__":
    main()
