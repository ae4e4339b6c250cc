"""The options that only Spark reads, and the rules between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Final

from kinesis_publishers.config import (
    Choice,
    Duration,
    Flag,
    Lookup,
    Namespace,
    Option,
    OptionSet,
    Section,
    Size,
    SourceConfig,
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
    """By what the shards of a query stay together."""

    ARRIVAL = "arrival"
    NONE = "none"


class SparkConfig(Section, section="Spark", namespace=Namespace.OURS):
    """How micro-batches are planned and what they contain."""

    planner: Option[Planner] = Option(
        key="spark.planner",
        parser=Choice(members=Planner),
        default=Planner.AUTO,
        doc="Which processes read the records: the driver's, ahead of the micro-batch (prefetch), "
        "or the executors', after the driver has found its end (ranges; with POLLING or EFO). auto "
        "is prefetch at the tip, and ranges while more waits than the pool should hold.",
    )
    alignment: Option[Alignment] = Option(
        key="spark.alignment",
        parser=Choice(members=Alignment),
        default=Alignment.ARRIVAL,
        doc="Whether a micro-batch ends at one instant for all shards, by the arrival times of "
        "their records (arrival), so that withWatermark drops no row of a shard that is behind. "
        "none reads each shard as fast as it can.",
    )
    alignment_patience_seconds: Option[float] = Option(
        key="spark.alignment.patience",
        parser=Duration(),
        default=30_000.0,
        doc="How long a shard that cannot be read holds the others back before they go on without "
        "it, with a warning.",
    )
    parallelism: Option[int | None] = Option(
        key="spark.parallelism",
        parser=WholeNumber(minimum=1),
        doc="The largest number of partitions in a micro-batch. The default is the number of "
        "cores of the driver's machine; set it on a cluster, whose cores a source does not know.",
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
        parser=Duration(),
        default=10_000.0,
        doc="How long a micro-batch of a backlog is to take under ranges, by the rate of those "
        "before: a failure repeats so much. It has 32 MiB of each shard in any case. Set it to "
        "the interval of a trigger that comes seldom.",
    )
    target_batch_bytes: Option[int | None] = Option(
        key="spark.targetbatchbytes",
        parser=Size(),
        doc="About how much it has at most, in place of the 32 MiB too; the default is 256 MiB "
        "for each of spark.parallelism. A query that would fall behind takes more. "
        "spark.maxbytespertrigger is exact, and costs counting.",
    )
    min_records_per_trigger: Option[int | None] = Option(
        key="spark.minrecordspertrigger",
        parser=WholeNumber(minimum=1),
        doc="While fewer records wait there is no micro-batch, for spark.maxtriggerdelay at most. "
        "Half of the pending pool is enough in any case; ranges estimates the number.",
    )
    max_trigger_delay_seconds: Option[float] = Option(
        key="spark.maxtriggerdelay",
        parser=Duration(),
        default=900_000.0,
        doc="How long after the last micro-batch the next may wait for spark.minrecordspertrigger.",
    )
    max_records_per_partition: Option[int | None] = Option(
        key="spark.maxrecordsperpartition",
        parser=WholeNumber(minimum=1),
        doc="The largest number of records in a partition, with more partitions than "
        "spark.parallelism if need be. Under ranges an estimate: a polled shard with more is cut "
        "into up to four tasks, none below 10,000 records or 10 MiB; a repeated batch is not cut.",
    )
    include_metadata: Option[bool] = Option(
        key="spark.includemetadata",
        parser=Flag(),
        default=False,
        doc="Whether rows have the columns subSequenceNumber, explicitHashKey, encryptionType and "
        "recordId, by which a store has each record once.",
    )
    include_batch_marker: Option[bool] = Option(
        key="spark.includebatchmarker",
        parser=Flag(),
        default=False,
        doc="Whether the sink marks each record with its micro-batch, and whether rows of the "
        "source have the column batchMarker, by which dropDuplicates recognizes what was written "
        "twice.",
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
            f"{lookup.written_key(most)} ({lookup.get(most)}): no micro-batch could have so many"
        )


OPTION_SET: Final = OptionSet(sections=(SparkConfig,), rules=(_unknown_ends, _trigger_problems))
"""What the framework finds here by name: see ``config/catalogue.py``."""
