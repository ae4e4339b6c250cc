"""Count the records of a stream by partition key with Spark, until Ctrl-C.

Start ``kinesis-publishers local``, copy the properties that it prints into a file, and run

    python examples/spark_stream.py FILE.properties
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from kinesis_publishers import Properties
from kinesis_publishers_spark import register


def main(path: str) -> None:
    # Before Spark starts: its workers must run the Python that has kinesis-publishers.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)  # 200 are far too many for two cores
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    records = (
        spark.readStream.format("kinesis").options(**Properties.from_file(path).to_dict()).load()
    )
    counts = records.groupBy("partitionKey").count()
    counts.writeStream.outputMode("update").format("console").start().awaitTermination()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
