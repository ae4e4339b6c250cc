"""A driver program for the kill test of the sink: one query that copies a stream to another one.

Arguments: the properties of the source as JSON, the checkpoint, and a folder that it does not use.
The stream that is written is the source's with ``-copy``.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from kinesis_publishers_spark import register


def main() -> None:
    properties, checkpoint = json.loads(sys.argv[1]), sys.argv[2]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{sys.argv[3]}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    connection = {key: one for key, one in properties.items() if key.startswith("aws.")}
    (
        spark.readStream.format("kinesis")
        .options(**properties)
        .load()
        .select("data", "partitionKey")
        # A row is in the same partition when its micro-batch is repeated.
        .repartition(2, "partitionKey")
        .writeStream.format("kinesis")
        .options(**connection)
        .option("streamName", properties["kinesis.streams"] + "-copy")
        .option("includeBatchMarker", "true")
        .option("checkpointLocation", checkpoint)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
