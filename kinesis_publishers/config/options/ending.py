"""Options that say where a batch read ends."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.config.choices import EndingPosition
from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import Choice, Text
from kinesis_publishers.config.shard_positions import ShardPositions
from kinesis_publishers.config.timestamps import DEFAULT_FORMAT, TimestampPattern

_SECTION = "Batch"

ENDING_POSITION: Final = Option(
    key="stream.endpos",
    parser=Choice(members=EndingPosition),
    default=EndingPosition.LATEST,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Where a batch read ends: LATEST is what has arrived when the DataFrame is loaded.",
)
ENDING_TIMESTAMP: Final[Option[str | None]] = Option(
    key="stream.endpos.timestamp",
    parser=Text(accepts="a date as stream.endpos.timestamp.format describes, or epoch seconds"),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The instant of AT_TIMESTAMP, itself not included: a date in the format below, epoch "
    "seconds, or ISO-8601.",
)
ENDING_TIMESTAMP_FORMAT: Final = Option(
    key="stream.endpos.timestamp.format",
    parser=TimestampPattern(),
    default=DEFAULT_FORMAT,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The SimpleDateFormat pattern of the timestamp; without a zone it is UTC.",
)
ENDING_SHARD_POSITIONS: Final = Option(
    key="stream.endpos.shards",
    parser=ShardPositions(),
    default=(),
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="JSON with a position per shard, before which its last record stands; the other shards end "
    "at stream.endpos.",
)

OPTIONS: Final = (
    ENDING_POSITION,
    ENDING_TIMESTAMP,
    ENDING_TIMESTAMP_FORMAT,
    ENDING_SHARD_POSITIONS,
)
