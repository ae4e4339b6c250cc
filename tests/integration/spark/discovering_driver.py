"""A program that registers nothing, and prints what ``format("kinesis")`` then is.

Argument: the options as JSON.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession


def main() -> None:
    options = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    discovered = spark.readStream.format("kinesis").options(**options).load().columns
    assert "kinesis_publishers_spark" not in sys.modules

    from kinesis_publishers_spark import register

    register(spark)
    register(spark)
    registered = spark.newSession().readStream.format("kinesis").options(**options).load().columns
    sys.stdout.write(json.dumps([discovered, registered]))
    spark.stop()


if __name__ == "__main__":
    main()
