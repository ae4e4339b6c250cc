"""Measures the Spark source end to end, with both planners, on two cores.

``python -m benchmarks.spark --output benchmarks/results/spark.json`` measures the throughput
(:mod:`benchmarks.spark_throughput`), the latency (:mod:`benchmarks.spark_latency`), what an idle
query costs (:mod:`benchmarks.spark_idle`), planning with many shards
(:mod:`benchmarks.spark_planning`) and the memory of the driver (:mod:`benchmarks.spark_memory`),
and writes the figures as JSON and, next to it, Markdown tables.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import (
    spark_idle,
    spark_latency,
    spark_memory,
    spark_planning,
    spark_throughput,
)
from benchmarks.polling import environment, heading, numbers, publish
from benchmarks.spark_queries import APART, PLANNERS

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = ("pyspark", "pyarrow", "botocore", "aiobotocore", "aiohttp", "orjson", "pybase64")


def _throughput(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    cases = [spark_throughput.Case.parse(name) for name in arguments.cases.split(",")]
    candidates = [
        name for name in spark_throughput.CANDIDATES if name in arguments.candidates.split(",")
    ]
    rows = spark_throughput.measure(arguments.megabytes, arguments.repetitions, candidates, cases)
    return rows, spark_throughput.table(rows)


def _latency(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    rows = spark_latency.measure(
        numbers(arguments.latency_shards), arguments.latency_seconds, arguments.planners
    )
    return rows, spark_latency.table(rows)


def _idle(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    rows = spark_idle.measure(
        numbers(arguments.idle_shards), arguments.idle_seconds, arguments.planners
    )
    return rows, spark_idle.table(rows)


def _planning(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    rows = spark_planning.measure(numbers(arguments.planning_shards), arguments.planning_times)
    return rows, spark_planning.table(rows)


def _memory(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    rows = spark_memory.measure(
        arguments.memory_batches, arguments.memory_spark_batches, arguments.planners
    )
    return rows, spark_memory.table(rows)


_PARTS: dict[str, Callable[[argparse.Namespace], tuple[list[dict[str, Any]], list[str]]]] = {
    "throughput": _throughput,
    "latency": _latency,
    "idle": _idle,
    "planning": _planning,
    "memory": _memory,
}


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--parts", default=",".join(_PARTS), help="which, separated by commas")
    parser.add_argument("--planners", default=",".join(PLANNERS), help="the same")
    parser.add_argument("--megabytes", type=int, default=800, help="of each case of throughput")
    cases = ",".join(case.name for case in spark_throughput.CASES)
    every = ",".join(spark_throughput.CANDIDATES)
    parser.add_argument("--candidates", default=every, help="of the throughput")
    parser.add_argument("--cases", default=cases, help="arrival-pagerecords-recordbytes, ...")
    parser.add_argument("--repetitions", type=int, default=3, help="of the throughput")
    parser.add_argument("--latency-shards", default="1,8")
    parser.add_argument("--latency-seconds", type=float, default=60.0)
    parser.add_argument("--idle-shards", default="1,500")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--planning-shards", default="1,100,1000")
    parser.add_argument("--planning-times", type=int, default=15, help="of which the median is")
    parser.add_argument("--memory-batches", type=int, default=3600)
    parser.add_argument("--memory-spark-batches", type=int, default=300)
    parser.add_argument("--output", type=Path, help="JSON; the tables go next to it as .md")
    arguments = parser.parse_args()
    for name, known in (("parts", _PARTS), ("planners", (*PLANNERS, *APART))):
        chosen = tuple(getattr(arguments, name).split(","))
        if unknown := set(chosen) - set(known):
            parser.error(f"no such {name}: {', '.join(sorted(unknown))}")
        setattr(arguments, name, chosen)
    return arguments


def main() -> None:
    """Measure, print the tables, and write them."""
    arguments = _parse_arguments()
    results: dict[str, Any] = {}
    tables = []
    for part in arguments.parts:
        results[part], lines = _PARTS[part](arguments)
        print(f"\n{part} is done", file=sys.stderr, flush=True)
        tables.append("\n".join(lines))
    command = f"python -m benchmarks.spark {shlex.join(sys.argv[1:])}".strip()
    versions = environment(_PACKAGES)
    text = "\n".join(heading("Spark", command, versions)) + "\n" + "\n\n".join(tables) + "\n"
    publish(text, {"command": command, "environment": versions, **results}, arguments.output)


if __name__ == "__main__":
    main()
