"""A program that uses the source over Spark Connect; a process has one kind of session.

Arguments: the properties as JSON, and a folder for all files.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from kinesis_publishers_spark import register
from kinesis_publishers_spark.metrics import KinesisMetricsListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDS_WITHIN_SECONDS = 240.0


def load(spark: SparkSession, name: str, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format(name).options(**options).load()


def run(frame: DataFrame, folder: Path, name: str, form: str, **options: str) -> None:
    """Write the records that exist, and wait for the end of the query."""
    query = (
        frame.writeStream.format(form)
        .options(**options)
        .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        .queryName(name)
        .trigger(availableNow=True)
        .start(str(folder / name))
    )
    if not query.awaitTermination(_ENDS_WITHIN_SECONDS):
        raise TimeoutError(f"the query has not ended: {query.status}")


def main() -> None:
    properties, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    # The listener runs here; the sink log is the default.
    logger, logged = logging.getLogger("kinesis_publishers"), list[str]()
    logger.setLevel(logging.DEBUG)
    logger.addFilter(lambda record: logged.append(record.getMessage()) or True)
    listener = KinesisMetricsListener()
    spark.streams.addListener(listener)
    frame = load(spark, "kinesis", properties)
    run(frame, folder, "registered", "parquet")
    copies = properties | {"kinesis.streams": "copies"}
    run(frame.select("data", "partitionKey"), folder, "copied", "kinesis", **copies)
    once = spark.sql("SELECT 'once' AS data")
    once.write.format("kinesis").options(**copies).mode("append").save()
    (folder / "count.json").write_text(
        json.dumps(spark.read.format("kinesis").options(**properties).load().count())
    )
    # A class without a module of its own: it reaches the server by value.
    register(spark, name="streams")
    with_metadata = load(spark, "streams", properties | {"includeMetadata": "true"})
    (folder / "session.json").write_text(json.dumps(type(spark).__module__))
    run(with_metadata, folder, "renamed", "parquet")
    spark.streams.removeListener(listener)
    listener.close()
    (folder / "logged.json").write_text(json.dumps(logged))
    spark.stop()


if __name__ == "__main__":
    main()
