"""All events there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, get_args

from kinesis_publishers.events.lifecycle import (
    DataLossTolerated,
    FetcherStarted,
    FetcherStopped,
    RangeRead,
    ShardEnded,
    ShardsDiscovered,
    ShardStarted,
    ShardStopped,
    StreamPrepared,
)
from kinesis_publishers.events.reading import (
    AggregatesExpanded,
    CheckpointsRefused,
    CheckpointsSaved,
    EventReceived,
    IteratorReplaced,
    ProcessingFailed,
    RecordsFetched,
    RecordsProcessed,
    RecordsSkipped,
    SubscriptionEnded,
    SubscriptionStarted,
)
from kinesis_publishers.events.service import (
    BackpressureBegan,
    BackpressureEnded,
    CallRetried,
    ConsumerAwaited,
    ConsumerDeregistered,
    ConsumerRegistered,
    PoolUsed,
    Throttled,
)

__all__ = ["EVENT_TYPES", "Event", "EventSink"]

Event: TypeAlias = (
    FetcherStarted
    | FetcherStopped
    | StreamPrepared
    | ShardsDiscovered
    | ShardStarted
    | ShardEnded
    | ShardStopped
    | RangeRead
    | RecordsFetched
    | IteratorReplaced
    | SubscriptionStarted
    | SubscriptionEnded
    | EventReceived
    | RecordsSkipped
    | AggregatesExpanded
    | RecordsProcessed
    | ProcessingFailed
    | CheckpointsSaved
    | CheckpointsRefused
    | BackpressureBegan
    | BackpressureEnded
    | PoolUsed
    | Throttled
    | CallRetried
    | ConsumerRegistered
    | ConsumerAwaited
    | ConsumerDeregistered
    | DataLossTolerated
)
"""One of the facts above."""

EventSink: TypeAlias = Callable[[Event], None]
"""What events are handed to: called at once, in the event loop, so it must not block."""

EVENT_TYPES: Final[tuple[type, ...]] = get_args(Event)
"""The classes of all events, in the order of the documentation."""
