"""The options of the JVMs that tests start, and an archive of the classes that Spark loads.

A JVM that lives for seconds takes half of its CPU for loading classes out of jars. ``make_archive``
lets ``spark-submit`` run this file once in each environment: when it ends, Java writes the classes
that it has loaded into an archive, which all later JVMs of Spark map into their memory. Java
ignores an archive that is missing, or made by another Java or of other jars.
"""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Two thirds of the CPU go without the second compiler and the collector of large servers.
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
#: SPARK_SUBMIT_OPTS of every test.
SPARK_OPTIONS: Final = " ".join(
    (*SHORT_LIVED, f"-XX:SharedArchiveFile={_ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
)


@functools.cache
def make_archive() -> None:
    """Make the archive of this environment, unless it is there."""
    with _ARCHIVE.with_suffix(".lock").open("w") as lock, suppress(BlockingIOError):
        # Tests of another process go on without it while this one makes it.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _ARCHIVE.exists():
            partial = _ARCHIVE.with_suffix(".partial")
            options = " ".join((*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={partial}"))
            subprocess.run(
                [Path(sys.executable).with_name("spark-submit"), __file__],
                env=os.environ | {"SPARK_SUBMIT_OPTS": options},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            if partial.exists():  # Some builds of Java cannot.
                partial.replace(_ARCHIVE)


def _load_classes() -> None:
    """Run what loads the classes that most tests need."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()

    @F.udf("long")
    def same(number: int) -> int:
        return number

    with tempfile.TemporaryDirectory() as folder:

        def write(frame: DataFrame, number: int) -> None:
            frame.select(same("value")).write.parquet(f"{folder}/{number}")
            frame.groupBy("value").count().collect()

        source = spark.readStream.format("rate").load()
        writer = source.writeStream.foreachBatch(write).trigger(once=True)
        writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
        spark.read.parquet(f"{folder}/0").orderBy("same(value)").collect()


if __name__ == "__main__":
    _load_classes()
