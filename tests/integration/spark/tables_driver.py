"""A driver program for the kill test of tables: the queries of docs/cookbook-tables.md, as printed.

Arguments: settings as JSON, the folder for tables and checkpoints, the folder for signals. With
``hold`` in the settings a function of the page that has written its micro-batch never returns. With
``rows`` it waits until each table has so many, and writes them to ``rows.json``. A test kills it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyspark
from pyspark.sql.streaming import DataStreamWriter, StreamingQueryManager

from tests.docs.doc_pages import ROOT, blocks_of, is_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_PAGE = ROOT / "docs" / "cookbook-tables.md"
VERSION = ".".join(pyspark.__version__.split(".")[:2])
#: The jars of Delta and Iceberg for each version of PySpark, as the page lists them.
JARS = {
    version: jars
    for version, *jars in re.findall(
        r"^\| (4\.\d) \| `(io\.delta:\S+)` \| `(\S+)` \|$", _PAGE.read_text("utf-8"), re.MULTILINE
    )
}


def page_code() -> str:
    """Return the Python of the page, with the jars of this PySpark."""
    code = "\n".join(block.code for block in blocks_of(_PAGE) if is_python(block))
    for printed, needed in zip(JARS["4.0"], JARS[VERSION], strict=True):
        assert printed in code
        code = code.replace(printed, needed)
    return code


def rows_of(frame: DataFrame) -> list[list[str]]:
    return [[row.shardId, row.sequenceNumber, bytes(row.data).decode()] for row in frame.collect()]


def wait_for_rows(
    spark: SparkSession, count: int, pause: Callable[[], object]
) -> dict[str, list[list[str]]]:
    """Wait until each table has all records; return them by the function that has written them."""
    while True:
        for name in ("orders", "merged"):
            # A catalog keeps a table for half a minute after its last use; another session writes.
            spark.catalog.refreshTable(f"lake.shop.{name}")
        tables = {
            "append_to_delta": rows_of(spark.read.format("delta").load("orders-delta")),
            "append_to_iceberg": rows_of(spark.table("lake.shop.orders")),
            "merge_into_iceberg": rows_of(spark.table("lake.shop.merged")),
        }
        if all(len(rows) >= count for rows in tables.values()):
            return tables
        pause()


def main() -> None:
    # Not when a test imports this module: its process has sessions of its own.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
        # A loaded machine takes its time to accept a connection.
        " --conf spark.python.authenticate.socketTimeout=120s pyspark-shell"
    )
    settings, signals = json.loads(sys.argv[1]), Path(sys.argv[3])
    os.chdir(sys.argv[2])
    for_each_batch = DataStreamWriter.foreachBatch
    await_any_termination = StreamingQueryManager.awaitAnyTermination
    start = DataStreamWriter.start
    written: list[threading.Event] = []

    def watched(
        writer: DataStreamWriter, write: Callable[[DataFrame, int], None]
    ) -> DataStreamWriter:
        first = threading.Event()
        written.append(first)

        def run(rows: DataFrame, batch_id: int) -> None:
            with (signals / write.__name__).open("a") as file:
                file.write(f"begun {batch_id}\n")
            write(rows, batch_id)
            first.set()
            # The first one is empty or has rows: the chance of the first trigger.
            if "hold" in settings and batch_id > 0:
                (signals / f"{write.__name__}-held").write_text(str(batch_id))
                threading.Event().wait()

        return for_each_batch(writer, run)

    def start_and_wait(writer: DataStreamWriter, *arguments: Any) -> StreamingQuery:
        # One after the other: PySpark 4.0 gives the processes of a query ten seconds to start.
        query = start(writer, *arguments)
        while not written[-1].is_set():
            query.awaitTermination(0.1)
        return query

    def await_termination(queries: StreamingQueryManager) -> None:
        if "rows" not in settings:
            await_any_termination(queries)
            return
        # A query that has failed raises its error.
        rows = wait_for_rows(
            namespace["spark"],
            int(settings["rows"]),
            lambda: await_any_termination(queries, 0.5),
        )
        partial = signals / "rows.partial"
        partial.write_text(json.dumps(rows))
        partial.replace(signals / "rows.json")
        threading.Event().wait()

    namespace: dict[str, Any] = {"__name__": "page"}
    with (
        patch.object(DataStreamWriter, "foreachBatch", watched),
        patch.object(DataStreamWriter, "start", start_and_wait),
        patch.object(StreamingQueryManager, "awaitAnyTermination", await_termination),
    ):
        exec(compile(page_code(), str(_PAGE), "exec"), namespace)


if __name__ == "__main__":
    main()
