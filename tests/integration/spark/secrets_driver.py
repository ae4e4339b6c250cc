"""A driver that writes down all that Spark shows of its queries: ``secrets_driver.py <dir>``.

Standard input has the options of the source, as JSON.
"""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from contextlib import redirect_stdout
from pathlib import Path

from pyspark.sql import SparkSession

from kinesis_publishers_spark import register

_PAGES = ("", "/environment/", "/SQL/", "/SQL/execution/?id=0", "/StreamingQuery/", "/stages/")
_ENDPOINTS = ("environment", "sql?details=true", "jobs", "stages", "storage/rdd")


def _fetch(url: str) -> bytes:
    # No proxy of this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
        content: bytes = answer.read()
        return content


def main(directory: Path) -> None:
    """Run a stream with either planner and a batch, and look at them from all sides."""
    options = json.load(sys.stdin)
    (directory / "events").mkdir()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (directory / "events").as_uri())
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    register(spark)
    shown = io.StringIO()
    counts = []
    with redirect_stdout(shown):
        for planner in ("ranges", "prefetch"):
            stream = spark.readStream.format("kinesis").options(**options)
            frame = stream.option("kinesis.spark.planner", planner).load()
            query = (
                frame.writeStream.format("memory")
                .queryName(planner)
                .option("checkpointLocation", str(directory / "checkpoints" / planner))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(120)
            frame.explain(extended=True)
            query.explain(extended=True)
            print(json.dumps([one.json for one in query.recentProgress]), query.status)  # noqa: T201
            counts.append(spark.table(planner).count())
        batch = spark.read.format("kinesis").options(**options).load()
        batch.explain(mode="formatted")
        batch.createOrReplaceTempView("orders")
        counts.append(spark.sql("SELECT * FROM orders").count())
        spark.sql("DESCRIBE EXTENDED orders").show(100, truncate=False)
    (directory / "explained").write_text(shown.getvalue())
    ui = spark.sparkContext.uiWebUrl
    application = f"{ui}/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = [f"{ui}{one}" for one in _PAGES] + [f"{application}/{one}" for one in _ENDPOINTS]
    (directory / "pages").write_bytes(b"\n".join(map(_fetch, pages)))
    spark.stop()
    print(json.dumps(counts))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(Path(sys.argv[1]))
