"""How long a record takes from the beginning of its put to ``foreachBatch``, against LocalKinesis.

The server and the producer are those of :mod:`benchmarks.fanout_latency`, in processes of their
own: a record for every shard, ten times a second, each with the instant at which its put began.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.fanout_latency import STAMP_BYTES, percentiles, running
from benchmarks.spark_queries import (
    PLANNERS,
    SparkBench,
    planner_properties,
    running_spark,
    wait_for,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["measure", "table"]

# Java compiles what is hot meanwhile.
_WARM_UP_BATCHES = 20


class _Collector:
    """The function of a ``foreachBatch``: notes how old each record is."""

    def __init__(self) -> None:
        self.batches = 0
        self.called_ms: list[float] = []
        self.collected_ms: list[float] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        called_ns = time.monotonic_ns()
        rows = frame.select("data").collect()
        collected_ns = time.monotonic_ns()
        self.batches += bool(rows)
        if self.batches <= _WARM_UP_BATCHES:
            return
        for row in rows:
            put_ns = int.from_bytes(row.data[:STAMP_BYTES], "big")
            self.called_ms.append((called_ns - put_ns) / 1e6)
            self.collected_ms.append((collected_ns - put_ns) / 1e6)


def measure(
    shard_counts: list[int], seconds: float, planners: tuple[str, ...] = PLANNERS
) -> list[dict[str, Any]]:
    """Measure the latency with so many shards and each planner."""
    with running_spark() as bench:
        return [
            _measure_one(bench, planner, shards, seconds)
            for shards in shard_counts
            for planner in planners
        ]


def _measure_one(bench: SparkBench, planner: str, shards: int, seconds: float) -> dict[str, Any]:
    options = planner_properties(planner) | {"kinesis.stream.initpos": "LATEST"}
    collector = _Collector()
    with running("serve", "--shards", str(shards)) as server:
        assert server.stdout is not None
        properties = server.stdout.readline()
        producer = running("produce", "--shards", str(shards), "--properties", properties)
        options |= json.loads(properties)
        query = bench.running("kinesis", options, write=lambda w: w.foreachBatch(collector))
        with producer, query as running_query:
            wait_for(lambda: collector.batches > _WARM_UP_BATCHES, query=running_query)
            began, first = time.monotonic(), collector.batches
            wait_for(lambda: time.monotonic() >= began + seconds, query=running_query)
            elapsed, batches = time.monotonic() - began, collector.batches - first
    print(".", end="", file=sys.stderr, flush=True)
    return {
        "planner": planner,
        "shards": shards,
        "batches_per_second": batches / elapsed,
        "called": percentiles(collector.called_ms),
        "collected": percentiles(collector.collected_ms),
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the latencies as a table."""
    return [
        (
            "| planner | shards | records | micro-batches/s | put to `foreachBatch`, p50 | p99 "
            "| put to collected rows, p50 | p99 |"
        ),
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['planner']} | {row['shards']} | {row['called']['records']:,} "
            f"| {row['batches_per_second']:.1f} "
            f"| {row['called']['p50_ms']:.0f} ms | {row['called']['p99_ms']:.0f} ms "
            f"| {row['collected']['p50_ms']:.0f} ms | {row['collected']['p99_ms']:.0f} ms |"
            for row in rows
        ),
    ]
