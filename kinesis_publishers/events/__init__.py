"""Diagnostic events: facts about reading, as values, for logs, metrics and tests.

A component reports what happened to an :class:`EventSink`; what becomes of it is the sink's affair.
"""

from kinesis_publishers.events.catalogue import EVENT_TYPES, Event, EventSink
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
from kinesis_publishers.events.sinks import (
    fan_out_events,
    guard_events,
    ignore_event,
    level_of,
    log_event,
)

__all__ = [
    "Event",
    "EventSink",
    "EVENT_TYPES",
    "FetcherStarted",
    "FetcherStopped",
    "StreamPrepared",
    "ShardsDiscovered",
    "ShardStarted",
    "ShardEnded",
    "ShardStopped",
    "RangeRead",
    "RecordsFetched",
    "IteratorReplaced",
    "SubscriptionStarted",
    "SubscriptionEnded",
    "EventReceived",
    "RecordsSkipped",
    "AggregatesExpanded",
    "RecordsProcessed",
    "ProcessingFailed",
    "CheckpointsSaved",
    "CheckpointsRefused",
    "BackpressureBegan",
    "BackpressureEnded",
    "PoolUsed",
    "Throttled",
    "CallRetried",
    "ConsumerRegistered",
    "ConsumerAwaited",
    "ConsumerDeregistered",
    "DataLossTolerated",
    "log_event",
    "level_of",
    "fan_out_events",
    "guard_events",
    "ignore_event",
]
