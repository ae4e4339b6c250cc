"""Runs programs one after the other in one Spark session, and shows of each what Python shows.

Arguments: the programs. Each begins below a line with its name.
"""

from __future__ import annotations

import runpy
import sys
import warnings

from pyspark.sql import SparkSession


def main() -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    # What the JVM logs is Spark's, and so is what pyspark warns of. What this package says comes
    # from Python, and is not affected.
    spark.sparkContext.setLogLevel("OFF")
    warnings.filterwarnings("ignore", module="pyspark")
    for program in sys.argv[1:]:
        sys.stderr.write(f"===== {program}\n")
        try:
            runpy.run_path(program, run_name="__main__")
        except Exception as error:  # noqa: BLE001 - as at the end of any program
            frames = error.__traceback__
            # This program is not there when a person runs theirs.
            while frames is not None and frames.tb_frame.f_code.co_filename != program:
                frames = frames.tb_next
            sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.stderr.flush()
    sys.stderr.write("===== end\n")
    spark.stop()


if __name__ == "__main__":
    main()
