"""How fast records go end to end into the sink that drops everything, with each planner.

A case is how the records come: all of them before the query starts (``backlog``), or while it runs,
at once (``burst``) or two pages a second (``flow``); with small or full pages, and records of 1 KiB
or 200 bytes. ``memory`` is the ceiling that Spark sets: rows that every worker has already.

A connector from a jar is measured with the others where these variables name one:
``BENCHMARK_CONNECTOR_JAR`` (paths, separated by commas), ``BENCHMARK_CONNECTOR_FORMAT`` and
``BENCHMARK_CONNECTOR_OPTIONS`` (JSON; ``{endpoint}`` and ``{stream}`` are filled in).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.canned_fanout import running_fanout_server
from benchmarks.canned_pages import Workload
from benchmarks.canned_server import release, served
from benchmarks.spark_queries import (
    APART,
    PLANNERS,
    MemoryPeak,
    SparkBench,
    batches_of,
    planner_options,
    running_spark,
    spark_cpu_seconds,
    triggers_of,
    wait_for,
)
from benchmarks.subscribers import Target, subscriber_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming import StreamingQuery

__all__ = ["CANDIDATES", "CASES", "CONNECTOR", "Case", "measure", "table"]

CONNECTOR = "connector"
CANDIDATES = ("memory", *PLANNERS, *APART, "prefetch-json", "prefetch-efo", CONNECTOR)
"""What is compared; the first is the ceiling. Payloads are random but for one."""

_CORES = 2
_SHARDS = 4
# As many rows of this size as a micro-batch of the ceiling has.
_MEMORY_BATCH_BYTES = 64 * 1024 * 1024
# A query that runs has done so before records come to it.
_IDLE_TRIGGERS = 5
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Case:
    """How records come; its name is ``arrival-pagerecords-recordbytes``."""

    arrival: str
    page_records: int
    record_bytes: int

    @classmethod
    def parse(cls, name: str) -> Case:
        """Return the case of this name."""
        arrival, page_records, record_bytes = name.split("-")
        if arrival not in ("backlog", "burst", "flow"):
            raise ValueError(f"records come as backlog, burst or flow, not as {arrival!r}")
        return cls(arrival, int(page_records), int(record_bytes))

    @property
    def name(self) -> str:
        return f"{self.arrival}-{self.page_records}-{self.record_bytes}"

    def workload(self, megabytes: int) -> Workload:
        """Return a stream of about this size."""
        page_bytes = self.record_bytes * self.page_records
        pages = max(2, megabytes * 1_000_000 // (page_bytes * _SHARDS))
        tip = "open" if self.arrival == "backlog" else self.arrival
        return Workload(self.record_bytes, _SHARDS, pages, self.page_records, tip)


CASES = tuple(
    map(
        Case.parse,
        (
            *("backlog-2000-1024", "backlog-10000-1024", "backlog-2000-200"),
            *("burst-2000-1024", "burst-10000-1024", "burst-2000-200", "flow-2000-1024"),
        ),
    )
)


def measure(
    megabytes: int,
    repetitions: int,
    candidates: Sequence[str] = CANDIDATES,
    cases: Sequence[Case] = CASES,
) -> list[dict[str, Any]]:
    """Let every candidate read every case, in an order that is rotated each time.

    Each candidate has an application of its own, in which it reads something else first: Java
    compiles what is hot, and the workers import what they need.
    """
    jar = os.environ.get("BENCHMARK_CONNECTOR_JAR", "")
    candidates = [one for one in candidates if one != CONNECTOR or jar]
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with running_fanout_server() as server:
        for repetition in range(repetitions):
            turn = repetition % len(candidates)
            for candidate in [*candidates[turn:], *candidates[:turn]]:
                with running_spark(jar if candidate == CONNECTOR else "") as bench:
                    warm_up = Case("backlog", 2_500, 1024)
                    read(bench, server.http_url, candidate, warm_up, megabytes, salt=0)
                    # All candidates read from one server.
                    salt = 1 + repetition * len(candidates) + candidates.index(candidate)
                    for case in cases:
                        one = read(bench, server.http_url, candidate, case, megabytes, salt=salt)
                        samples.setdefault((case.name, candidate), []).append(one)
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [summarised(*key, of_key, samples) for key, of_key in sorted(samples.items())]


def read(
    bench: SparkBench, url: str, candidate: str, case: Case, megabytes: int, *, salt: int
) -> dict[str, Any]:
    """Read a case once.

    A backlog counts from the end of the first micro-batch, by when the query has started, or from
    the start if that one had half of it; what comes later counts from its release.

    Args:
        salt: makes the stream another one than any before: what is released stays released. 0 is
            for warming up.
    """
    workload = case.workload(megabytes)
    workload = replace(
        workload,
        pages=workload.pages + salt * (case.arrival != "backlog"),
        content="json" if candidate == "prefetch-json" else "",
    )
    source, options = _source(url, candidate, workload)
    with ExitStack() as stack:
        marks = [_Mark(0, time.time(), spark_cpu_seconds(), served(url))]
        query = stack.enter_context(bench.running(source, options))
        peak = stack.enter_context(MemoryPeak())
        if case.arrival == "backlog" or candidate == "memory":
            wait_for(lambda: _rows(query) > 0, query=query, poll_seconds=_POLL_SECONDS)
        else:
            wait_for(lambda: len(triggers_of(query)) >= _IDLE_TRIGGERS, query=query)
            release(url, workload)
        ended = triggers_of(query)[-1].ended
        marks.append(_Mark(_rows(query), ended, spark_cpu_seconds(), served(url)))
        wait_for(lambda: _rows(query) >= workload.records, query=query, poll_seconds=_POLL_SECONDS)
        batches = batches_of(query)
        end = _Mark(_rows(query), batches[-1].ended, spark_cpu_seconds(), served(url))
    if end.rows != workload.records:
        raise AssertionError(f"{candidate}: {end.rows} rows, not {workload.records}")
    begin = marks[-1] if 2 * marks[-1].rows <= end.rows else marks[0]
    return _difference(begin, end, workload.record_bytes) | {
        "batches": len(batches),
        "peak_megabytes": peak.megabytes,
    }


class _Mark(NamedTuple):
    rows: int
    time: float
    cpu_seconds: dict[str, float]
    served: dict[str, Any]


def _difference(begin: _Mark, end: _Mark, record_bytes: int) -> dict[str, Any]:
    by_process = {name: spent - begin.cpu_seconds[name] for name, spent in end.cpu_seconds.items()}
    delivered = (end.rows - begin.rows) * record_bytes
    server = end.served["cpu_seconds"] - begin.served["cpu_seconds"]
    before = begin.served["calls"]
    return {
        "megabytes": delivered / 1e6,
        "wall_seconds": end.time - begin.time,
        "wall_seconds_without_server": end.time - begin.time - server / _CORES,
        "cpu_seconds": sum(by_process.values()),
        "cpu_seconds_by_process": by_process,
        "server_cpu_seconds": server,
        # What the first micro-batch of a backlog has fetched ahead is not counted.
        "fetched_per_delivered": (end.served["sent_bytes"] - begin.served["sent_bytes"])
        / delivered,
        "calls": {name: n - before.get(name, 0) for name, n in end.served["calls"].items()},
    }


def _rows(query: StreamingQuery) -> int:
    return sum(batch.rows for batch in batches_of(query))


def _source(url: str, candidate: str, workload: Workload) -> tuple[str, Mapping[str, str | int]]:
    if candidate in (*PLANNERS, *APART):
        return "kinesis", planner_options(url, workload, candidate)
    if candidate == "prefetch-json":
        return "kinesis", planner_options(url, workload, "prefetch")
    if candidate == "prefetch-efo":
        options = subscriber_properties(Target(url, None, workload))
        return "kinesis", options | {"kinesis.spark.planner": "prefetch"}
    if candidate == CONNECTOR:
        text = os.environ["BENCHMARK_CONNECTOR_OPTIONS"]
        named = text.replace("{endpoint}", url).replace("{stream}", workload.name)
        return os.environ["BENCHMARK_CONNECTOR_FORMAT"], json.loads(named)
    rows = {"rows": workload.records, "batchrows": _MEMORY_BATCH_BYTES // workload.record_bytes}
    return "benchmark-memory", rows | {"bytes": workload.record_bytes}


def summarised(
    case: str,
    candidate: str,
    samples: list[dict[str, Any]],
    every: dict[tuple[str, str], list[dict[str, Any]]],
) -> dict[str, Any]:
    """Return medians, and their ratios to the ceiling and the connector in the same run."""
    rates = _rates(samples)
    return {
        "case": case,
        "candidate": candidate,
        **rates,
        **{
            f"of_{other}": {name: rate / _rates(every[case, other])[name]}
            for other in ("memory", CONNECTOR)
            if (case, other) in every
            for name, rate in rates.items()
            if name == "mb_per_cpu_second"
        },
        "fetched_per_delivered": _median(samples, "fetched_per_delivered"),
        "peak_megabytes": _median(samples, "peak_megabytes"),
        "batches": _median(samples, "batches"),
        "cpu_ms_per_mb": {
            process: statistics.median(
                one["cpu_seconds_by_process"][process] / one["megabytes"] * 1000 for one in samples
            )
            for process in samples[0]["cpu_seconds_by_process"]
        },
        "samples": samples,
    }


def _rates(samples: list[dict[str, Any]]) -> dict[str, float]:
    return {
        name: statistics.median(one["megabytes"] / one[seconds] for one in samples)
        for name, seconds in (
            ("mb_per_cpu_second", "cpu_seconds"),
            ("mb_per_second", "wall_seconds"),
            ("mb_per_second_without_server", "wall_seconds_without_server"),
        )
    }


def _median(samples: list[dict[str, Any]], name: str) -> float:
    return statistics.median(one[name] for one in samples)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as a table."""
    lines = [
        (
            "| case | into `noop` | MB/CPU-s | of the ceiling | of the connector | MB/s "
            "| without the server | CPU ms per MB: JVM | source | workers | micro-batches "
            "| fetched per delivered | GetRecords | GetShardIterator | peak memory |"
        ),
        "|---" * 15 + "|",
    ]
    for row in rows:
        spent, calls = row["cpu_ms_per_mb"], row["samples"][-1]["calls"]
        ratios = (
            row.get(f"of_{one}", {}).get("mb_per_cpu_second") for one in ("memory", CONNECTOR)
        )
        shares = " | ".join("" if ratio is None else f"{ratio:.0%}" for ratio in ratios)
        lines.append(
            f"| {row['case']} | {row['candidate']} | {row['mb_per_cpu_second']:.0f} | {shares} "
            f"| {row['mb_per_second']:.0f} | {row['mb_per_second_without_server']:.0f} "
            f"| {spent['jvm']:.1f} | {spent['source']:.1f} | {spent['workers']:.1f} "
            f"| {row['batches']:.0f} | {row['fetched_per_delivered']:.2f} "
            f"| {calls.get('GetRecords', 0)} | {calls.get('GetShardIterator', 0)} "
            f"| {row['peak_megabytes']:,.0f} MB |"
        )
    return lines
