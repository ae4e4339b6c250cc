"""Whether the process that Spark keeps on the driver grows with the number of micro-batches.

An hour of one micro-batch a second in compressed time, with the reader called as Spark calls it but
without Spark; and some hundred micro-batches through Spark itself.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import spark_reader
from benchmarks.canned_pages import Workload
from benchmarks.canned_server import running_server
from benchmarks.spark_queries import (
    PLANNERS,
    SparkBench,
    batches_of,
    planner_options,
    running_spark,
    source_process,
    wait_for,
)

__all__ = ["measure", "table"]

_RECORD_BYTES = 1024
_SHARDS = 8
_PAGE_RECORDS = 500
_BATCH_RECORDS = 500


def measure(
    batches: int, spark_batches: int, planners: tuple[str, ...] = PLANNERS
) -> list[dict[str, Any]]:
    """Run so many micro-batches without Spark, and so many with it, with each planner."""
    rows = []
    with running_server() as url:
        for planner in planners:
            result = spark_reader.measure(url, planner, _workload(batches), _BATCH_RECORDS)
            rows.append({"planner": planner, "runner": "reader alone", **result})
            print(".", end="", file=sys.stderr, flush=True)
        with running_spark() as bench:
            for planner in planners:
                row = _measure_spark(bench, url, planner, spark_batches)
                rows.append({"planner": planner, "runner": "Spark", **row})
                print(".", end="", file=sys.stderr, flush=True)
    return rows


def _workload(batches: int) -> Workload:
    records = (batches + 2) * _BATCH_RECORDS
    pages = -(-records // (_SHARDS * _PAGE_RECORDS))
    return Workload(_RECORD_BYTES, _SHARDS, pages, _PAGE_RECORDS, "open")


def _measure_spark(bench: SparkBench, url: str, planner: str, batches: int) -> dict[str, Any]:
    options = planner_options(url, _workload(batches), planner)
    options["kinesis.spark.maxrecordspertrigger"] = _BATCH_RECORDS
    rss: dict[str, float] = {}
    with bench.running("kinesis", options) as query:
        for percent, until in spark_reader.marks(batches).items():
            wait_for(lambda until=until: len(batches_of(query)) >= until, query=query)
            process = source_process()
            if process is None:
                raise RuntimeError("Spark keeps no process for the source")
            rss[percent] = process.memory_info().rss / 2**20
    return {"batches": batches, "rss_mib": rss}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a row per planner and runner."""
    return [
        "| planner | called by | micro-batches | RSS after 10 % | 50 % | 100 % |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['planner']} | {row['runner']} | {row['batches']:,} | "
            + " | ".join(f"{rss:.0f} MiB" for rss in row["rss_mib"].values())
            + " |"
            for row in rows
        ),
    ]
