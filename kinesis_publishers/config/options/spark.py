"""Options that only the Spark source reads."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.choices import Planner
from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import Choice, Flag, Size, WholeNumber

_SECTION = "Spark"

PLANNER: Final = Option(
    key="spark.planner",
    parser=Choice(members=Planner),
    default=Planner.PREFETCH,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Who reads the records: the driver, ahead of the micro-batch (prefetch), or the executors, "
    "after the driver has found where it ends (ranges; with POLLING or EFO).",
)
PARALLELISM: Final[Option[int | None]] = Option(
    key="spark.parallelism",
    parser=WholeNumber(minimum=1),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The largest number of partitions in a micro-batch; if it is not set, the cores of the "
    "driver's machine, because a source learns nothing of the cluster's: set it there.",
)
MAX_RECORDS_PER_TRIGGER: Final[Option[int | None]] = Option(
    key="spark.maxrecordspertrigger",
    parser=WholeNumber(minimum=1),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The largest number of records in a micro-batch.",
)
MAX_BYTES_PER_TRIGGER: Final[Option[int | None]] = Option(
    key="spark.maxbytespertrigger",
    parser=Size(),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The largest size of a micro-batch.",
)
INCLUDE_METADATA: Final = Option(
    key="spark.includemetadata",
    parser=Flag(),
    default=False,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Whether the columns subSequenceNumber, explicitHashKey and encryptionType are there.",
)

OPTIONS: Final = (
    PLANNER,
    PARALLELISM,
    MAX_RECORDS_PER_TRIGGER,
    MAX_BYTES_PER_TRIGGER,
    INCLUDE_METADATA,
)
