"""How many rows the windows of a query lose while it catches up with an hour of backlog.

Windows of a minute over the arrival times of four shards, with a watermark of one minute, in append
mode and against LocalKinesis; the count of each window is compared with what was put. The cells are
all combinations of what is asked for:

``python -m benchmarks.windows --shapes uneven --arrivals smooth --planners ranges``
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.backlogs import ARRIVALS, SHAPES, Backlog, count
from benchmarks.polling import environment, heading, publish
from benchmarks.spark_queries import PLANNERS, running_spark
from kinesis_publishers.testing.local_kinesis import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_PACKAGES = ("pyspark", "pyarrow", "botocore", "aiobotocore", "aiohttp", "orjson", "pybase64")
_STREAM = "windows"
_LIMITS = {
    "none": {},
    "records": {"maxRecordsPerTrigger": "10000"},
    "bytes": {"maxBytesPerTrigger": "1000000"},
}
_TRIGGERS: Mapping[str, Mapping[str, Any]] = {
    "processing-time": {"processingTime": "0 seconds"},
    "available-now": {"availableNow": True},
}
_HEAD = (
    (
        "| shards | arrival | planner | limit | trigger | rows put | in windows "
        "| missing | wrong windows | micro-batches | rows of each | wall |"
    ),
    "|---" * 12 + "|",
)
#: What a cell is made of, and the values that are run unless others are asked for.
_DIMENSIONS = {
    "shapes": (SHAPES, SHAPES),
    "arrivals": (ARRIVALS, ARRIVALS),
    "planners": (PLANNERS, PLANNERS),
    "limits": (tuple(_LIMITS), ("none",)),
    "triggers": (tuple(_TRIGGERS), ("processing-time",)),
}


def measure(
    spark: SparkSession, backlog: Backlog, options: Mapping[str, str], trigger: Mapping[str, Any]
) -> dict[str, Any]:
    """Put a backlog, read it in a query of its own, and compare the windows with what was put."""
    with LocalKinesis.in_thread() as server, tempfile.TemporaryDirectory() as checkpoint:
        windows = backlog.put(server, _STREAM)
        options = server.properties(_STREAM) | {"startingPosition": "TRIM_HORIZON", **options}
        frame = spark.readStream.format("kinesis").options(**options).load()
        began = time.monotonic()
        written, batch_rows = count(frame, windows, Path(checkpoint), trigger)
        seconds = time.monotonic() - began
    wrong = windows.wrong(written)
    return {
        "put": backlog.count,
        "in_windows": windows.closed.total(),
        "missing": sum(put - found for put, found in wrong.values()),
        "windows": len(windows.closed),
        "wrong_windows": len(wrong),
        "batch_rows": batch_rows,
        "seconds": seconds,
    }


def _line(row: dict[str, Any]) -> str:
    sizes = [f"{size:,}" for size in row["batch_rows"]]
    shown = " ".join(sizes if len(sizes) <= 12 else [*sizes[:8], "...", *sizes[-3:]])
    return (
        f"| {row['shapes']} | {row['arrivals']} | {row['planners']} | {row['limits']} "
        f"| {row['triggers']} | {row['put']:,} | {row['in_windows']:,} "
        f"| {row['missing'] / row['in_windows']:.1%} | {row['wrong_windows']} of {row['windows']} "
        f"| {len(sizes)} | {shown} | {row['seconds']:.1f} s |"
    )


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name, (known, usual) in _DIMENSIONS.items():
        text = f"of {', '.join(known)}; unless given, {', '.join(usual)}"
        parser.add_argument(f"--{name}", default=",".join(usual), help=text)
    parser.add_argument("--records", type=int, default=60_000, help="of each cell")
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--alignment", help="kinesis.spark.alignment; unset unless given")
    parser.add_argument("--output", type=Path, help="JSON; the table goes next to it as .md")
    arguments = parser.parse_args()
    for name, (known, _) in _DIMENSIONS.items():
        chosen = tuple(getattr(arguments, name).split(","))
        if unknown := set(chosen) - set(known):
            parser.error(f"no such {name}: {', '.join(sorted(unknown))}")
        setattr(arguments, name, chosen)
    return arguments


def main() -> None:
    """Run each combination, and print how many rows the windows lack."""
    arguments = _parse_arguments()
    alignment = {"kinesis.spark.alignment": arguments.alignment} if arguments.alignment else {}
    rows = []
    with running_spark() as bench:
        # Reports of idle triggers, a hundred a second, would be read over and over again.
        bench.spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        for cell in itertools.product(*(getattr(arguments, name) for name in _DIMENSIONS)):
            shape, arrival, planner, limit, trigger = cell
            backlog = Backlog(
                shape=shape,
                arrival=arrival,
                count=arguments.records,
                record_bytes=arguments.record_bytes,
            )
            options = {"kinesis.spark.planner": planner, **_LIMITS[limit], **alignment}
            found = measure(bench.spark, backlog, options, _TRIGGERS[trigger])
            rows.append(dict(zip(_DIMENSIONS, cell, strict=True)) | found)
            print(_line(rows[-1]), file=sys.stderr, flush=True)
    command = f"python -m benchmarks.windows {shlex.join(sys.argv[1:])}".strip()
    versions = environment(_PACKAGES)
    text = "\n".join([*heading("Windows", command, versions), *_HEAD, *map(_line, rows)]) + "\n"
    publish(text, {"command": command, "environment": versions, "cells": rows}, arguments.output)


if __name__ == "__main__":
    main()
