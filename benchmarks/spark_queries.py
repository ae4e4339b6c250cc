"""Streaming queries of the Spark benchmarks: how they are started, and what they cost."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from benchmarks.clients import reader_properties
from kinesis_publishers_spark.demo.session import isolate_environment, open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from benchmarks.canned_pages import Workload

__all__ = [
    "APART",
    "PLANNERS",
    "Batch",
    "MemoryPeak",
    "SparkBench",
    "batches_of",
    "planner_options",
    "planner_properties",
    "running_spark",
    "source_process",
    "spark_cpu_seconds",
    "triggers_of",
    "wait_for",
]

PLANNERS = ("auto", "prefetch", "ranges")
APART = tuple(f"{planner}-apart" for planner in PLANNERS)
"""The planners without ``kinesis.spark.alignment``."""
_SOURCE_MODULE = "python_streaming_source_runner"
_PROGRESS_KEPT = 100_000
_POLL_SECONDS = 0.02
_SAMPLE_SECONDS = 0.5
_DEADLINE_SECONDS = 1800.0
# What is known already, by the run of a query.
_triggers: dict[str, list[Batch]] = {}


@dataclass(frozen=True)
class Batch:
    """What Spark says about one trigger.

    Attributes:
        rows: how many rows it had.
        began: when it began, in seconds since 1970.
        seconds: how long it took, by phase; ``triggerExecution`` is the whole.
    """

    rows: int
    began: float
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, progress: Any) -> Batch:
        """Return what a query's progress says, a Java object."""
        return cls(
            rows=progress.numInputRows(),
            began=datetime.fromisoformat(progress.timestamp()).timestamp(),
            # As text, "{addBatch=5, ...}": each entry of a Java map costs a dozen round trips.
            seconds={
                name: int(ms) / 1000
                for name, ms in re.findall(r"(\w+)=(\d+)", progress.durationMs().toString())
            },
        )

    @property
    def ended(self) -> float:
        return self.began + self.seconds["triggerExecution"]


class SparkBench:
    """A Spark on two cores that runs queries, each with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self._directory = directory

    @contextmanager
    def running(
        self,
        source: str,
        options: Mapping[str, str | int],
        *,
        write: Callable[[DataStreamWriter], DataStreamWriter] = lambda w: w.format("noop"),
        **trigger: Any,
    ) -> Iterator[StreamingQuery]:
        """Run a query, by default into the sink that drops everything and with no pause."""
        checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=self._directory)
        texts = {name: str(value) for name, value in options.items()}
        frame = self.spark.readStream.format(source).options(**texts).load()
        writer = write(frame.writeStream).option("checkpointLocation", checkpoint)
        query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
        try:
            yield query
        finally:
            query.stop()
            # A query before this one must not burn CPU time while the next one is measured.
            wait_for(lambda: source_process() is None)


@contextmanager
def running_spark(jars: str = "") -> Iterator[SparkBench]:
    """Start Spark with our source, the one that marks the ceiling, and those in ``jars``."""
    isolate_environment(os.environ)
    if jars:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
    with tempfile.TemporaryDirectory() as name, open_session(Path(name)) as spark:
        # Each progress is evaluated; by default an idle trigger reports only every ten seconds.
        spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", 0)
        # Before 4.2, which connectors in a jar may need, Spark has no admission control for it.
        if find_spec("pyspark.sql.streaming.datasource"):
            spark.dataSource.register(import_module("benchmarks.memory_source").MemorySource)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _PROGRESS_KEPT)
        yield SparkBench(spark, Path(name))


def triggers_of(query: StreamingQuery) -> list[Batch]:
    """Return every trigger of a query until now that Spark tells about.

    Not from ``query.recentProgress``, which is all of it as JSON: with many shards in each offset
    that would cost more than what is measured.
    """
    known = _triggers.setdefault(query.runId, [])
    every = query._jsq.recentProgress()
    known += [Batch.of(every[index]) for index in range(len(known), len(every))]
    return list(known)


def batches_of(query: StreamingQuery) -> list[Batch]:
    """Return the triggers of a query until now that had rows."""
    return [trigger for trigger in triggers_of(query) if trigger.rows]


def planner_options(url: str, workload: Workload, planner: str) -> dict[str, str | int]:
    """Return options with which our source reads a canned stream as fast as it can."""
    return reader_properties(url, workload) | planner_properties(planner)


def planner_properties(planner: str) -> dict[str, str | int]:
    """Return what selects one of :data:`PLANNERS` or :data:`APART`."""
    name, _, is_apart = planner.partition("-")
    options: dict[str, str | int] = {"kinesis.spark.planner": name}
    return options | ({"kinesis.spark.alignment": "none"} if is_apart else {})


def wait_for(
    condition: Callable[[], bool],
    *,
    query: StreamingQuery | None = None,
    poll_seconds: float = _POLL_SECONDS,
) -> None:
    """Wait until ``condition`` holds; the failure of ``query`` is raised."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if query is not None and not query.isActive:
            raise RuntimeError(f"the query has ended before it was measured: {query.exception()}")
        if time.monotonic() > deadline:
            raise TimeoutError("what is measured has not happened in time")
        time.sleep(poll_seconds)


class MemoryPeak:
    """Samples the memory of all of Spark's processes in a thread, until the context ends.

    Attributes:
        megabytes: the largest sum of their proportional set sizes (10^6 bytes).
    """

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            total = 0
            for process in _spark_processes():
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_full_info().pss
            self.megabytes = max(self.megabytes, total / 1e6)


def _spark_processes() -> list[psutil.Process]:
    """Return the JVM and everything below it."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        # Spark starts short-lived processes all the time, to change the mode of a file.
        with suppress(psutil.NoSuchProcess):
            if child.name() == "java":
                found += [child, *child.children(recursive=True)]
    return found


def source_process() -> psutil.Process | None:
    """Return the Python process that Spark keeps on the driver for the running query."""
    for process in _spark_processes():
        try:
            if any(_SOURCE_MODULE in argument for argument in process.cmdline()):
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def spark_cpu_seconds() -> dict[str, float]:
    """Return what Spark has burnt so far: the JVM, the source's process, and the tasks' workers.

    A process that has ended counts with the one that it belonged to. So the JVM's share includes
    the processes that Hadoop starts to change the modes of checkpoint files.
    """
    spent = {"jvm": 0.0, "source": 0.0, "workers": 0.0}
    for process in _spark_processes():
        with suppress(psutil.NoSuchProcess):
            user, system, *of_children = process.cpu_times()[:4]
            is_source = any(_SOURCE_MODULE in argument for argument in process.cmdline())
            kind = "source" if is_source else "workers"
            kind = "jvm" if process.name() == "java" else kind
            spent[kind] += user + system + sum(of_children)
    return spent
