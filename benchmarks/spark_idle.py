"""What a query costs that has nothing to do, or next to nothing, with one shard and with many.

The canned streams are empty, but for a record every 200 ms in the first shard where the smallest
micro-batches are measured. Shards are polled as they are by default.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import Workload
from benchmarks.canned_server import cpu_seconds, running_server
from benchmarks.spark_queries import (
    PLANNERS,
    Batch,
    SparkBench,
    planner_options,
    running_spark,
    spark_cpu_seconds,
    triggers_of,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["measure", "table"]

_RECORD_BYTES = 1024
_POLL_MILLIS = 200
# The first micro-batches of a query are slower.
_WARM_UP_TRIGGERS = 5
# Polls of idle shards have slowed down to one a second by then.
_SLOW_DOWN_SECONDS = 20.0
_LEAST_TRIGGERS = 3


def measure(
    shard_counts: list[int], seconds: float, planners: tuple[str, ...] = PLANNERS
) -> list[dict[str, Any]]:
    """Measure each planner with so many shards."""
    with running_server() as url, running_spark() as bench:
        return [
            _measure_one(bench, url, planner, shards, seconds)
            for planner in planners
            for shards in shard_counts
        ]


def _measure_one(
    bench: SparkBench, url: str, planner: str, shards: int, seconds: float
) -> dict[str, Any]:
    empty = Workload(_RECORD_BYTES, shards, 0)
    idle, spent = _observe(bench, url, planner, empty, seconds)
    trickle = Workload(_RECORD_BYTES, shards, 0, records_per_page=1, tip="trickle")
    busy, _ = _observe(bench, url, planner, trickle, seconds)
    smallest = [batch for batch in busy if batch.rows]
    print(".", end="", file=sys.stderr, flush=True)
    return {
        "planner": planner,
        "shards": shards,
        "triggers_per_second": len(idle) / seconds,
        **{f"{name}_cpu_seconds_per_minute": cost * 60 / seconds for name, cost in spent.items()},
        "empty_trigger_ms": _medians(idle),
        "smallest_batch_ms": _medians(smallest),
        "smallest_batches": len(smallest),
    }


def _observe(
    bench: SparkBench, url: str, planner: str, workload: Workload, seconds: float
) -> tuple[list[Batch], dict[str, float]]:
    """Run a query for a while; return its triggers, and what Spark and the server have burnt."""
    options = planner_options(url, workload, planner)
    options["kinesis.shard.limits"] = "aws"
    options["kinesis.shard.getrecords.intervalmillis"] = _POLL_MILLIS
    with bench.running("kinesis", options) as query:
        begun = time.monotonic() + (0.0 if workload.tip else _SLOW_DOWN_SECONDS)
        wait_for(
            lambda: time.monotonic() >= begun and len(triggers_of(query)) >= _WARM_UP_TRIGGERS,
            query=query,
            poll_seconds=0.5,
        )
        first, before = len(triggers_of(query)), _spent(url)
        until = time.monotonic() + seconds
        wait_for(
            lambda: (
                time.monotonic() >= until and len(triggers_of(query)) >= first + _LEAST_TRIGGERS
            ),
            query=query,
            poll_seconds=0.5,
        )
        spent = {name: total - before[name] for name, total in _spent(url).items()}
        return triggers_of(query)[first:], spent


def _spent(url: str) -> dict[str, float]:
    return spark_cpu_seconds() | {"server": cpu_seconds(url)}


def _medians(triggers: Iterable[Batch]) -> dict[str, float]:
    every = list(triggers)
    phases = {phase for trigger in every for phase in trigger.seconds}
    return {
        phase: 1000 * statistics.median(trigger.seconds.get(phase, 0.0) for trigger in every)
        for phase in sorted(phases)
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a row per planner and number of shards."""
    lines = [
        (
            "| planner | shards | empty trigger | of it latestOffset | with one record "
            "| of it latestOffset | source CPU s/min, idle | JVM | server |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        empty, smallest = row["empty_trigger_ms"], row["smallest_batch_ms"]
        times = " | ".join(
            f"{one.get(phase, float('nan')):.0f} ms"
            for one in (empty, smallest)
            for phase in ("triggerExecution", "latestOffset")
        )
        lines.append(
            f"| {row['planner']} | {row['shards']} | {times} "
            f"| {row['source_cpu_seconds_per_minute']:.1f} "
            f"| {row['jvm_cpu_seconds_per_minute']:.1f} "
            f"| {row['server_cpu_seconds_per_minute']:.1f} |"
        )
    return lines
