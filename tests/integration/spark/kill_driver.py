"""A driver program for the kill tests: one query that writes each micro-batch to a file of its own.

Arguments: the properties as JSON, the checkpoint, the folder for the files. A file is replaced as a
whole, so that a micro-batch that is repeated after a crash leaves one file, not two. If the rows
have batch markers, each record is there once although it was written twice.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kinesis_publishers_spark import register


def main() -> None:
    properties, checkpoint, output = json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3])

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = [
            [row.shardId, row.sequenceNumber, row.partitionKey, bytes(row.data).decode()]
            for row in frame.collect()
        ]
        partial = output / f"{batch_id}.partial"
        partial.write_text(json.dumps(rows))
        partial.replace(output / f"{batch_id}.json")

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(output / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    frame = spark.readStream.format("kinesis").options(**properties).load()
    if "batchMarker" in frame.columns:
        frame = (
            frame.withColumn("seenAt", F.current_timestamp())
            .withWatermark("seenAt", "1 hour")
            .dropDuplicatesWithinWatermark(["batchMarker"])
        )
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
