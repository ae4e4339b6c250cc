"""How fast a backlog goes end to end into the sink that drops everything, with each planner."""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.canned_fanout import running_fanout_server
from benchmarks.canned_pages import Workload
from benchmarks.canned_server import cpu_seconds
from benchmarks.spark_queries import (
    PLANNERS,
    SparkBench,
    batches_of,
    planner_options,
    running_spark,
    spark_cpu_seconds,
    wait_for,
)
from benchmarks.subscribers import Target, subscriber_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CANDIDATES", "measure", "table"]

CANDIDATES = ("memory", "prefetch", "prefetch-json", "prefetch-efo", "ranges")
"""What is compared; the first is the ceiling that Spark sets. Payloads are random but for one."""

_RECORD_BYTES = 1024
# What a shard gives in a second.
_PAGE_RECORDS = 2_000
# As many rows of this size as the prefetch planner puts into a micro-batch by default.
_MEMORY_BATCH_ROWS = 64 * 1024 * 1024 // _RECORD_BYTES
_CORES = 2
_LEAST_BATCHES = 2
_POLL_SECONDS = 0.1


def measure(
    megabytes: int, shards: int, repetitions: int, candidates: tuple[str, ...] = CANDIDATES
) -> list[dict[str, Any]]:
    """Let every candidate read the same backlog, in an order that is rotated each time.

    Each time in an application of its own: a worker process that has served other sources before
    is slower.
    """
    page_bytes = _RECORD_BYTES * _PAGE_RECORDS
    pages = max(2, megabytes * 1_000_000 // (page_bytes * shards))
    workload = Workload(_RECORD_BYTES, shards, pages, _PAGE_RECORDS, "open")
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in candidates}
    with running_fanout_server() as server:
        with running_spark() as bench:
            for name in candidates:
                # Java compiles what is hot, the server makes its pages: not while it is measured.
                read_backlog(bench, server.http_url, name, workload)
        for repetition in range(repetitions):
            turn = repetition % len(candidates)
            for name in candidates[turn:] + candidates[:turn]:
                with running_spark() as bench:
                    samples[name].append(read_backlog(bench, server.http_url, name, workload))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [summarised(name, of_candidate, samples) for name, of_candidate in samples.items()]


def read_backlog(bench: SparkBench, url: str, candidate: str, workload: Workload) -> dict[str, Any]:
    """Read a backlog; count from the end of the first micro-batch to the end of the last."""
    source, options = _source(url, candidate, workload)
    with bench.running(source, options) as query:

        def read_rows() -> int:
            return sum(batch.rows for batch in batches_of(query))

        wait_for(lambda: read_rows() > 0, query=query, poll_seconds=_POLL_SECONDS)
        cpu, server_cpu = spark_cpu_seconds(), cpu_seconds(url)
        wait_for(lambda: read_rows() >= workload.records, query=query, poll_seconds=_POLL_SECONDS)
        by_process = {name: total - cpu[name] for name, total in spark_cpu_seconds().items()}
        server = cpu_seconds(url) - server_cpu
        batches = batches_of(query)
    rows = sum(batch.rows for batch in batches)
    if rows != workload.records or len(batches) < _LEAST_BATCHES:
        raise AssertionError(f"{candidate}: {rows} rows in {len(batches)} micro-batches")
    first, *others = batches
    wall = batches[-1].ended - first.ended
    return {
        "batches": len(others),
        "megabytes": (rows - first.rows) * workload.record_bytes / 1e6,
        "wall_seconds": wall,
        "wall_seconds_without_server": wall - server / _CORES,
        "cpu_seconds": sum(by_process.values()),
        "cpu_seconds_by_process": by_process,
        "server_cpu_seconds": server,
        "phases": {
            phase: statistics.median(batch.seconds.get(phase, 0.0) for batch in others)
            for phase in first.seconds
        },
    }


def _source(url: str, candidate: str, workload: Workload) -> tuple[str, Mapping[str, str | int]]:
    if candidate in PLANNERS:
        return "kinesis", planner_options(url, workload, candidate)
    if candidate == "prefetch-json":
        return "kinesis", planner_options(url, replace(workload, content="json"), "prefetch")
    if candidate == "prefetch-efo":
        return "kinesis", subscriber_properties(Target(url, None, workload))
    rows = {"rows": workload.records, "batchrows": _MEMORY_BATCH_ROWS}
    return "benchmark-memory", rows | {"bytes": workload.record_bytes}


def summarised(
    name: str, samples: list[dict[str, Any]], every: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return medians, and the share of the ceiling in the same run."""
    ceiling = next(iter(every.values()))
    return {
        "candidate": name,
        "mb_per_second": _median_rate(samples, "wall_seconds"),
        "mb_per_second_without_server": _median_rate(samples, "wall_seconds_without_server"),
        "mb_per_cpu_second": _median_rate(samples, "cpu_seconds"),
        "share_of_ceiling": _median_rate(samples, "wall_seconds")
        / _median_rate(ceiling, "wall_seconds"),
        "server_share": statistics.median(
            one["server_cpu_seconds"] / one["cpu_seconds"] for one in samples
        ),
        "cpu_ms_per_mb": {
            process: statistics.median(
                one["cpu_seconds_by_process"][process] / one["megabytes"] * 1000 for one in samples
            )
            for process in samples[0]["cpu_seconds_by_process"]
        },
        "samples": samples,
    }


def _median_rate(samples: list[dict[str, Any]], seconds: str) -> float:
    return statistics.median(one["megabytes"] / one[seconds] for one in samples)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as a table."""
    lines = [
        (
            "| into `noop` | MB/s | without the server | MB/CPU-s | of the ceiling | server CPU "
            "| CPU ms per MB: JVM | source | workers |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spent = row["cpu_ms_per_mb"]
        lines.append(
            f"| {row['candidate']} | {row['mb_per_second']:.0f} "
            f"| {row['mb_per_second_without_server']:.0f} | {row['mb_per_cpu_second']:.0f} "
            f"| {row['share_of_ceiling']:.0%} | {row['server_share']:.0%} "
            f"| {spent['jvm']:.1f} | {spent['source']:.1f} | {spent['workers']:.1f} |"
        )
    return lines
