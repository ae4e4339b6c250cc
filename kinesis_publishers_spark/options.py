"""The options that only Spark reads, and the rules between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Final

from kinesis_publishers.config import (
    Lookup,
    Option,
    Section,
    Size,
    SourceConfig,
    Text,
    WholeNumber,
    built_in_publisher,
)
from kinesis_publishers.errors import ConfigError, InvalidOptionError


class Planner(Enum):
    """How the end of a micro-batch is found."""

    AUTO = "auto"
    PREFETCH = "prefetch"
    RANGES = "ranges"


class Alignment(Enum):
    """How the shards of a query are aligned."""

    ARRIVAL = "arrival"
    NONE = "none"


class SparkConfig(Section, section="Spark"):
    """How micro-batches are planned and what they contain."""

    planner: Option[Planner] = Option(
        key="spark.planner",
        default=Planner.AUTO,
        doc="Which processes read the records: the driver, ahead of the micro-batch (prefetch), "
        "or the executors, after the driver has found its end (ranges). auto uses prefetch at "
        "the tip, and ranges while the backlog is larger than the pool should hold.",
    )
    alignment: Option[Alignment] = Option(
        key="spark.alignment",
        default=Alignment.ARRIVAL,
        doc="With arrival, a micro-batch ends at the same arrival time in all shards, so that "
        "withWatermark drops no row of a shard that is behind. With none, each shard is read "
        "as fast as possible.",
    )
    alignment_patience_seconds: Option[float] = Option(
        key="spark.alignment.patience",
        default=30_000.0,
        doc="How long the other shards wait for a shard that cannot be read. After that they "
        "continue without it, with a warning.",
    )
    parallelism: Option[int | None] = Option(
        key="spark.parallelism",
        parser=WholeNumber(minimum=1),
        doc="The largest number of partitions in a micro-batch. The default is the number of "
        "cores of the driver's machine. Set it on a cluster: a source cannot see the cores of "
        "the executors.",
    )
    max_records_per_trigger: Option[int | None] = Option(
        key="spark.maxrecordspertrigger",
        parser=WholeNumber(minimum=1),
        doc="The largest number of records in a micro-batch.",
    )
    max_bytes_per_trigger: Option[int | None] = Option(
        key="spark.maxbytespertrigger", parser=Size(), doc="The largest size of a micro-batch."
    )
    target_batch_seconds: Option[float] = Option(
        key="spark.targetbatchduration",
        default=10_000.0,
        doc="The target duration of a backlog micro-batch under ranges. A failed one repeats that "
        "much work. A micro-batch has at least 32 MiB of each shard. Set this option to the "
        "interval of a trigger that fires rarely.",
    )
    target_batch_bytes: Option[int | None] = Option(
        key="spark.targetbatchbytes",
        parser=Size(),
        doc="The approximate maximum size of a backlog micro-batch. It overrides the 32 MiB "
        "minimum. The default is 256 MiB times spark.parallelism. A query that would fall behind "
        "exceeds it. spark.maxbytespertrigger is exact, but the driver has to count the bytes.",
    )
    min_records_per_trigger: Option[int | None] = Option(
        key="spark.minrecordspertrigger",
        parser=WholeNumber(minimum=1),
        doc="The smallest number of records in a micro-batch, which ranges estimates. A "
        "micro-batch waits for them for spark.maxtriggerdelay at most, and no longer once "
        "they fill half of the pending pool.",
    )
    max_trigger_delay_seconds: Option[float] = Option(
        key="spark.maxtriggerdelay",
        default=900_000.0,
        doc="How long the next micro-batch may wait for spark.minrecordspertrigger, counted from "
        "the last one.",
    )
    max_records_per_partition: Option[int | None] = Option(
        key="spark.maxrecordsperpartition",
        parser=WholeNumber(minimum=1),
        doc="The largest number of records in a partition. If necessary, a micro-batch has more "
        "partitions than spark.parallelism. Under ranges the number is an estimate: a polled "
        "shard is divided into up to four tasks of at least 10,000 records or 10 MiB.",
    )
    include_metadata: Option[bool] = Option(
        key="spark.includemetadata",
        default=False,
        doc="Whether rows have the columns subSequenceNumber, explicitHashKey, encryptionType and "
        "recordId, with which a store can deduplicate records.",
    )
    include_batch_marker: Option[bool] = Option(
        key="spark.includebatchmarker",
        default=False,
        doc="Whether the sink marks each record with its micro-batch, and rows of the source have "
        "the column batchMarker, by which dropDuplicates removes records that were written "
        "twice.",
    )
    compression: Option[str | None] = Option(
        key="spark.compression",
        parser=Text(accepts="gzip or zstd", pattern="gzip|zstd"),
        doc="How the sink compresses each value of the column data. zstd needs the extra of that "
        "name where the tasks run, before Python 3.14.",
    )


def _unknown_ends(lookup: Lookup) -> Iterator[ConfigError]:
    planner, publisher = SparkConfig.planner, SourceConfig.record_publisher
    known = built_in_publisher(lookup)
    if lookup.get(planner) is Planner.RANGES and not (known and known.reads_ranges):
        yield InvalidOptionError(
            f"{lookup.written_key(planner)} is ranges, which finds the ends of micro-batches "
            f"with GetRecords, and {lookup.written_key(publisher)} is {lookup.get(publisher)}, "
            "which need not deliver the same records: use prefetch, or POLLING or EFO"
        )


def _trigger_problems(lookup: Lookup) -> Iterator[ConfigError]:
    least, most = SparkConfig.min_records_per_trigger, SparkConfig.max_records_per_trigger
    if (lookup.get(least) or 0) > (lookup.get(most) or math.inf):
        yield InvalidOptionError(
            f"{lookup.written_key(least)} ({lookup.get(least)}) is more than "
            f"{lookup.written_key(most)} ({lookup.get(most)}): no micro-batch could satisfy both"
        )


RULES: Final = (_unknown_ends, _trigger_problems)
"""The rules between options; ``config/catalogue.py`` finds them, and the sections, by name."""
