"""Options that say what is read, from where, and by which publisher."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.choices import (
    AggregationMode,
    InitialPosition,
    OnInvalidAggregate,
    ShardOrder,
)
from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import Choice, Flag, Scalar, Text
from kinesis_publishers.config.shard_positions import ShardPositions
from kinesis_publishers.config.timestamps import DEFAULT_FORMAT, TimestampPattern

_SECTION = "Source"
_PUBLISHER_NAME = Text(
    accepts="POLLING, EFO, module:Class or the name of an installed entry point",
    pattern=re.compile(r"[\w.-]+|[\w.]+:[\w.]+"),
)


class _PublisherName:
    """Upper-cases the built-in names, which match without regard to case; keeps all others."""

    accepts = _PUBLISHER_NAME.accepts
    unit = None

    def __call__(self, value: Scalar) -> str:
        name = _PUBLISHER_NAME(value)
        return name.upper() if name.upper() in {"POLLING", "EFO"} else name


STREAMS: Final[Option[str | None]] = Option(
    key="streams",
    parser=Text(accepts="names or ARNs of streams, separated by commas"),
    default=None,
    required=True,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The streams to read: names or ARNs, separated by commas.",
)
RECORD_PUBLISHER: Final[Option[str]] = Option(
    key="stream.recordpublisher",
    parser=_PublisherName(),
    default="POLLING",
    guarded=":",
    section=_SECTION,
    doc="How records are read: POLLING (GetRecords), EFO (SubscribeToShard), or a "
    "factory of your own as module:Class or entry point.",
)
INITIAL_POSITION: Final = Option(
    key="stream.initpos",
    parser=Choice(members=InitialPosition),
    default=InitialPosition.LATEST,
    section=_SECTION,
    doc="Where to begin in a stream that was not read before.",
)
INITIAL_TIMESTAMP: Final[Option[str | None]] = Option(
    key="stream.initpos.timestamp",
    parser=Text(accepts="a date as stream.initpos.timestamp.format describes, or epoch seconds"),
    default=None,
    section=_SECTION,
    doc="The instant of AT_TIMESTAMP: a date in the format below, epoch seconds, or ISO-8601.",
)
INITIAL_TIMESTAMP_FORMAT: Final = Option(
    key="stream.initpos.timestamp.format",
    parser=TimestampPattern(),
    default=DEFAULT_FORMAT,
    section=_SECTION,
    doc="The SimpleDateFormat pattern of the timestamp; without a zone it is UTC.",
)
INITIAL_SHARD_POSITIONS: Final = Option(
    key="stream.initpos.shards",
    parser=ShardPositions(),
    default=(),
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="JSON with a position per shard; the other shards begin at stream.initpos.",
)
SHARD_ORDER: Final = Option(
    key="shard.order",
    parser=Choice(members=ShardOrder),
    default=ShardOrder.PARENTS_FIRST,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Whether a shard waits until all that it descends from is read to its end.",
)
AGGREGATION: Final = Option(
    key="aggregation",
    parser=Choice(members=AggregationMode),
    default=AggregationMode.AUTO,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="What becomes of aggregates: deaggregated, where records that belong to another shard are "
    "left out of the KPL's after a reshard (auto), of all (kpl) or of none (unfiltered), or "
    "delivered whole (off).",
)
ON_INVALID_AGGREGATE: Final = Option(
    key="aggregation.on-invalid",
    parser=Choice(members=OnInvalidAggregate),
    default=OnInvalidAggregate.PLAIN,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="What becomes of a record that begins like an aggregate and is not a valid one: delivered "
    "as it is (plain), an error (fail), or given to the DeadLetter of scan (dead-letter).",
)
FAIL_ON_DATA_LOSS: Final = Option(
    key="failondataloss",
    parser=Flag(),
    default=True,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Whether a trimmed position or a re-created stream is an error.",
)

OPTIONS: Final = (
    STREAMS,
    RECORD_PUBLISHER,
    INITIAL_POSITION,
    INITIAL_TIMESTAMP,
    INITIAL_TIMESTAMP_FORMAT,
    INITIAL_SHARD_POSITIONS,
    SHARD_ORDER,
    AGGREGATION,
    ON_INVALID_AGGREGATE,
    FAIL_ON_DATA_LOSS,
)
