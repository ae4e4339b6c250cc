"""Calls our stream reader as Spark's runner does, without Spark.

``python -m benchmarks.spark_reader --planner NAME --endpoint URL --stream NAME`` reads some
micro-batches in this process and prints what they cost as one line of JSON. The tasks' work is left
out: what is measured is the process that Spark keeps on the driver.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import Workload
from benchmarks.memory import rss_bytes
from benchmarks.spark_queries import PLANNERS, planner_options

if TYPE_CHECKING:
    from kinesis_publishers_spark.stream_reader import KinesisStreamReader

__all__ = ["ReaderCalls", "marks", "measure", "open_reader", "run"]

# When the resident memory is looked at, in percent of the micro-batches.
_MARKS = (10, 50, 100)
_DEADLINE_SECONDS = 600.0


class ReaderCalls:
    """The calls of one query: offsets travel as JSON, partitions as pickles."""

    def __init__(self, reader: KinesisStreamReader) -> None:
        self._reader = reader
        self._limit = reader.getDefaultReadLimit()
        self._start = json.dumps(reader.initialOffset())
        self._planned: str | None = None

    def trigger(self) -> int | None:
        """Plan the available records; return the bytes of the partitions, None for no batch."""
        end = json.dumps(self._reader.latestOffset(json.loads(self._start), self._limit))
        if end == self._start:
            return None
        if self._planned is not None:
            self._reader.commit(json.loads(self._planned))
        partitions = self._reader.partitions(json.loads(self._start), json.loads(end))
        size = sum(len(pickle.dumps(partition)) for partition in partitions)
        json.dumps(self._reader.reportLatestOffset())
        self._start = self._planned = end
        return size

    def next_batch(self) -> int:
        """Plan until there is a micro-batch; return how many bytes its partitions have."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            size = self.trigger()
            if size is not None:
                return size
        raise TimeoutError("there is nothing new")


def marks(batches: int) -> dict[str, int]:
    """Return after how many micro-batches memory is looked at, by percentage."""
    return {str(percent): max(1, batches * percent // 100) for percent in _MARKS}


def open_reader(options: dict[str, str | int]) -> KinesisStreamReader:
    """Return the reader that Spark would get."""
    from pyspark.sql.types import StructType

    from kinesis_publishers_spark import KinesisDataSource

    source = KinesisDataSource({name: str(value) for name, value in options.items()})
    return source.streamReader(StructType())


def run(options: dict[str, str | int], batches: int) -> dict[str, Any]:
    """Plan so many micro-batches as fast as they come."""
    reader = open_reader(options)
    try:
        calls = ReaderCalls(reader)
        calls.next_batch()
        cpu, wall = time.process_time(), time.perf_counter()
        size = 0
        rss: dict[str, float] = {}
        for number in range(1, batches + 1):
            size += calls.next_batch()
            for percent, mark in marks(batches).items():
                if number == mark:
                    rss[percent] = rss_bytes() / 2**20
        return {
            "batches": batches,
            "partition_megabytes": size / 1e6,
            "cpu_seconds": time.process_time() - cpu,
            "wall_seconds": time.perf_counter() - wall,
            "rss_mib": rss,
        }
    finally:
        reader.stop()


def measure(url: str, planner: str, workload: Workload, batch_records: int) -> dict[str, Any]:
    """Read a stream in micro-batches of so many records, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.spark_reader", "--planner", planner]
    command += ["--endpoint", url, "--stream", workload.name]
    # The last ones may be smaller, and a few more would be waited for in vain.
    batches = workload.records // batch_records - 2
    command += ["--batches", str(batches), "--batch-records", str(batch_records)]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def main() -> None:
    """Read and print what it cost."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--planner", choices=PLANNERS, default=PLANNERS[0])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--batch-records", type=int, help="maxRecordsPerTrigger")
    arguments = parser.parse_args()
    workload = Workload.parse(arguments.stream)
    if workload is None:
        sys.exit(f"{arguments.stream!r} does not describe a workload")
    options = planner_options(arguments.endpoint, workload, arguments.planner)
    if arguments.batch_records is not None:
        options["kinesis.spark.maxrecordspertrigger"] = arguments.batch_records
    print(json.dumps(run(options, arguments.batches)), flush=True)


if __name__ == "__main__":
    main()
