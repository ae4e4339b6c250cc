"""Diagnostic events: facts about reading, as values, for logs, metrics and tests.

A component reports what happened to an :class:`EventSink`; what becomes of it is the sink's affair.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    from kinesis_publishers.model import ShardKey, StartingPosition

__all__ = [
    "Event",
    "EventSink",
    "ShardsDiscovered",
    "ShardStarted",
    "ShardEnded",
    "RecordsFetched",
    "SubscriptionStarted",
    "SubscriptionEnded",
    "EventReceived",
    "ConsumerRegistered",
    "ConsumerDeregistered",
    "Throttled",
    "IteratorReplaced",
    "RecordsSkipped",
    "AggregatesExpanded",
    "DataLossTolerated",
    "log_event",
]

_LOGGER = logging.getLogger("kinesis_publishers")


@frozen(kw_only=True)
class ShardsDiscovered:
    """ListShards showed shards that were not known before."""

    stream_arn: str
    shard_ids: tuple[str, ...]


@frozen(kw_only=True)
class ShardStarted:
    """Reading of a shard began."""

    shard: ShardKey
    position: StartingPosition


@frozen(kw_only=True)
class ShardEnded:
    """A shard was read to its end."""

    shard: ShardKey


@frozen(kw_only=True)
class RecordsFetched:
    """A GetRecords was answered.

    Attributes:
        loop_seconds: from the beginning of the previous call to the beginning of this one.
    """

    shard: ShardKey
    records: int
    payload_bytes: int
    millis_behind_latest: int | None
    limit: int
    loop_seconds: float | None


@frozen(kw_only=True)
class SubscriptionStarted:
    """SubscribeToShard was accepted."""

    shard: ShardKey
    position: StartingPosition
    consumer_arn: str


@frozen(kw_only=True)
class SubscriptionEnded:
    """A subscription is over; unless the shard has ended, another one follows.

    Attributes:
        reason: what ended it, in words.
        seconds: how long it lasted.
    """

    shard: ShardKey
    reason: str
    seconds: float


@frozen(kw_only=True)
class EventReceived:
    """A subscription delivered an event, which may have been a heartbeat without records."""

    shard: ShardKey
    records: int
    payload_bytes: int
    millis_behind_latest: int | None


@frozen(kw_only=True)
class ConsumerRegistered:
    """A stream consumer was registered by this process."""

    stream_arn: str
    consumer_arn: str


@frozen(kw_only=True)
class ConsumerDeregistered:
    """A stream consumer that this application had registered was removed."""

    consumer_arn: str


@frozen(kw_only=True)
class Throttled:
    """AWS refused a call because a rate is used up; it is repeated after a delay."""

    shard: ShardKey
    operation: str


@frozen(kw_only=True)
class IteratorReplaced:
    """An expired shard iterator was replaced from the stored position."""

    shard: ShardKey
    position: StartingPosition


@frozen(kw_only=True)
class RecordsSkipped:
    """Records at or before the processed position were dropped: they had been delivered already."""

    shard: ShardKey
    records: int


@frozen(kw_only=True)
class AggregatesExpanded:
    """A delivery had aggregates (of the KPL), or records that begin like one.

    Attributes:
        aggregates: how many were taken apart.
        user_records: how many records were in them.
        left_out: how many of these were not delivered, because their hash keys belong to another
            shard: after a reshard their producer puts them there again.
        corrupt: how many begin like an aggregate and are none: delivered as they are.
    """

    shard: ShardKey
    aggregates: int
    user_records: int
    left_out: int
    corrupt: int


@frozen(kw_only=True)
class DataLossTolerated:
    """Records may be missing, and the configuration says to go on."""

    shard: ShardKey
    message: str


Event: TypeAlias = (
    ShardsDiscovered
    | ShardStarted
    | ShardEnded
    | RecordsFetched
    | SubscriptionStarted
    | SubscriptionEnded
    | EventReceived
    | ConsumerRegistered
    | ConsumerDeregistered
    | Throttled
    | IteratorReplaced
    | RecordsSkipped
    | AggregatesExpanded
    | DataLossTolerated
)
"""One of the facts above."""
EventSink: TypeAlias = Callable[[Event], None]
"""What events are handed to: called at once, in the event loop, so it must not block."""

_LEVELS: dict[type, int] = {
    DataLossTolerated: logging.ERROR,
    RecordsFetched: logging.DEBUG,
    SubscriptionStarted: logging.DEBUG,
    SubscriptionEnded: logging.DEBUG,
    EventReceived: logging.DEBUG,
    RecordsSkipped: logging.DEBUG,
    AggregatesExpanded: logging.DEBUG,
    Throttled: logging.DEBUG,
}


def log_event(event: Event) -> None:
    """Write ``event`` to the logger ``kinesis_publishers``: the default sink."""
    level = _LEVELS.get(type(event), logging.INFO)
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", event)
