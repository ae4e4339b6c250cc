"""A driver program for the kill test: one query that writes each micro-batch to a file of its own.

Arguments: the properties as JSON, the checkpoint, the folder for the files. A file is replaced as a
whole, so that a micro-batch that is repeated after a crash leaves one file, not two.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession

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
        # It lives for seconds.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.warehouse.dir", str(output / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    query = (
        spark.readStream.format("kinesis")
        .options(**properties)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
