"""A driver program on a cluster: runs one query per line of its input, as the line says.

Arguments: the URL of the master, a folder for the warehouse. A line is a :class:`Command` in JSON.
Tests talk to running tasks through files in the folder of signals.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import psutil
import pyarrow as pa
from attrs import asdict, frozen
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession

from kinesis_publishers_spark import register

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_DEADLINE_SECONDS = 300.0
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.executor.memory": "512m",
    # A loaded machine takes its time to accept a connection.
    "spark.python.authenticate.socketTimeout": "120s",
    # A copy of a task starts as soon as another one of its stage is done, or after half a second.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.task.duration.threshold": "500ms",
}

Rows: TypeAlias = list[list[str]]
Sink: TypeAlias = Callable[[DataFrame, Path], list[Rows]]
Batches: TypeAlias = Iterator[pa.RecordBatch]


@frozen(kw_only=True)
class Command:
    """What to run: ``sink`` names a function of this module; each of its actions gives rows."""

    properties: dict[str, str]
    checkpoint: str
    signals: str
    answer: str
    sink: str
    rows: int

    def to_line(self) -> str:
        return json.dumps(asdict(self))


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} was not written")
        time.sleep(0.02)


def _is_first(path: Path) -> bool:
    """Write ``path`` and say whether it was not there: one attempt of all tasks gets True."""
    try:
        with path.open("x"):
            return True
    except FileExistsError:
        return False


def _publish(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _executor_pid() -> int:
    """Return the process of the executor: it has started the daemon that forks the workers."""
    return psutil.Process(os.getppid()).ppid()


def _rows(frame: DataFrame) -> Rows:
    return [[row.shardId, row.sequenceNumber, bytes(row.data).decode()] for row in frame.collect()]


def _note_attempt(signals: Path) -> None:
    context = TaskContext.get()
    assert context is not None
    _is_first(signals / f"attempt-{context.stageId()}-{context.attemptNumber()}")


def _held(frame: DataFrame, signals: Path) -> DataFrame:
    """Let the first attempt that has read something never end by itself."""

    def hold(batches: Batches) -> Batches:
        _note_attempt(signals)
        for batch in batches:
            yield batch
            if _is_first(signals / "held"):
                _publish(signals / "holding", str(_executor_pid()))
                wait_for_file(signals / "never")

    return frame.mapInArrow(hold, frame.schema)


def _failing(frame: DataFrame, signals: Path) -> DataFrame:
    """Let the first attempt that has read something fail."""

    def fail(batches: Batches) -> Batches:
        _note_attempt(signals)
        for batch in batches:
            yield batch
            if _is_first(signals / "failed"):
                raise RuntimeError("the first attempt fails")

    return frame.mapInArrow(fail, frame.schema)


def _pause(signals: Path) -> None:
    """Let the test do something between two actions, once."""
    if _is_first(signals / "between"):
        wait_for_file(signals / "go")


def with_a_held_task(frame: DataFrame, signals: Path) -> list[Rows]:
    return [_rows(frame), _rows(_held(frame, signals)), _rows(frame)]


def with_a_failing_task(frame: DataFrame, signals: Path) -> list[Rows]:
    return [_rows(_failing(frame, signals)), _rows(frame)]


def with_a_cache(frame: DataFrame, signals: Path) -> list[Rows]:
    cached = frame.persist(StorageLevel.MEMORY_ONLY)
    first = _rows(cached)
    if first:
        _pause(signals)
    actions = [first, _rows(cached)]
    cached.unpersist()
    return actions


_SINKS: dict[str, Sink] = {
    one.__name__: one for one in (with_a_held_task, with_a_failing_task, with_a_cache)
}


def _wait_for_rows(query: StreamingQuery, actions: dict[int, list[Rows]], count: int) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while sum(len(one[0]) for one in actions.values()) < count:
        if query.awaitTermination(0.05) or time.monotonic() > deadline:
            raise TimeoutError(f"too few rows: {actions}")


def run(spark: SparkSession, command: Command) -> dict[str, Any]:
    """Run one query until it has the rows that the command expects; return all actions' rows."""
    actions: dict[int, list[Rows]] = {}

    def write(frame: DataFrame, batch_id: int) -> None:
        actions[batch_id] = _SINKS[command.sink](frame, Path(command.signals))

    frame = spark.readStream.format("kinesis").options(**command.properties).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", command.checkpoint)
    query = writer.start()
    try:
        _wait_for_rows(query, actions, command.rows)
    finally:
        query.stop()
    return {str(batch_id): rows for batch_id, rows in actions.items()}


def main() -> None:
    builder = SparkSession.builder.master(sys.argv[1])
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.warehouse.dir", sys.argv[2]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    for line in sys.stdin:
        command = Command(**json.loads(line))
        try:
            result = {"actions": run(spark, command)}
        except Exception as error:  # noqa: BLE001 - the test shows it
            result = {"error": repr(error)}
        _publish(Path(command.answer), json.dumps(result))


if __name__ == "__main__":
    main()
