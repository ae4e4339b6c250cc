"""Options of the polling publisher (GetRecords)."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.option import Option
from kinesis_publishers.config.parsers import Duration, Flag, WholeNumber

_SECTION = "Polling"

MAX_RECORDS: Final = Option(
    key="shard.getrecords.maxrecordcount",
    parser=WholeNumber(minimum=1, maximum=10_000),
    default=10_000,
    section=_SECTION,
    doc="The Limit of a GetRecords call.",
)
INTERVAL: Final = Option(
    key="shard.getrecords.intervalmillis",
    # A shard iterator is valid for five minutes: a longer pause would let every one expire.
    parser=Duration(below=300_000.0),
    default=200.0,
    section=_SECTION,
    doc="The period of the polling loop of a shard, processing included.",
)
ADAPTIVE_READS: Final = Option(
    key="shard.adaptivereads",
    parser=Flag(),
    default=False,
    section=_SECTION,
    doc="Whether the Limit is adapted to the shard's 2 MiB/s by the average size of a record.",
)

OPTIONS: Final = (MAX_RECORDS, INTERVAL, ADAPTIVE_READS)
