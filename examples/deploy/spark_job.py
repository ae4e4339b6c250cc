"""Write the records of a stream to Parquet files with Spark.

    spark-submit spark_job.py FILE.properties FOLDER

``FOLDER`` gets the files and the checkpoint; driver and executors all need it. With ``--once`` the
job ends when it has written what is in the stream now.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from kinesis_publishers import Properties
from kinesis_publishers_spark import register


def main(path: str, folder: str, *arguments: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    options = Properties.from_file(path).to_dict()
    writer = (
        spark.readStream.format("kinesis")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    if "--once" in arguments:
        writer = writer.trigger(availableNow=True)
    writer.start(f"{folder}/records").awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
