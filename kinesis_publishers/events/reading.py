"""Events of records on their way: answers, subscriptions, and what the application took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from kinesis_publishers.model import ShardKey, StartingPosition

__all__ = [
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
]


@frozen(kw_only=True)
class RecordsFetched:
    """A GetRecords was answered.

    Attributes:
        shard: which shard.
        records: how many records Kinesis had stored; an aggregate counts as one.
        payload_bytes: how large they are together.
        millis_behind_latest: how far behind the tip of the shard the answer ends.
        limit: the most records that were asked for.
        loop_seconds: from the beginning of the previous call to the beginning of this one; ``None``
            for the first call.
        sleep_seconds: how much of the time since the previous answer was slept, to keep the pace
            and to back off.
        call_seconds: how long the call took.
    """

    shard: ShardKey
    records: int
    payload_bytes: int
    millis_behind_latest: int | None
    limit: int
    loop_seconds: float | None
    sleep_seconds: float = 0.0
    call_seconds: float = 0.0


@frozen(kw_only=True)
class IteratorReplaced:
    """An expired shard iterator was replaced from the stored position."""

    shard: ShardKey
    position: StartingPosition


@frozen(kw_only=True)
class SubscriptionStarted:
    """SubscribeToShard was accepted.

    Attributes:
        shard: which shard.
        position: where it begins.
        consumer_arn: whose subscription it is.
        is_reopened: whether it continues one that has ended.
    """

    shard: ShardKey
    position: StartingPosition
    consumer_arn: str
    is_reopened: bool = False


@frozen(kw_only=True)
class SubscriptionEnded:
    """A subscription is over; unless the shard has ended, another one follows.

    Attributes:
        shard: which shard.
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
class RecordsSkipped:
    """Records were dropped: they had been delivered already, or came twice in one answer."""

    shard: ShardKey
    records: int


@frozen(kw_only=True)
class AggregatesExpanded:
    """A delivery had aggregates, or records that begin like one.

    Attributes:
        shard: which shard.
        aggregates: how many were deaggregated.
        user_records: how many records were in them.
        left_out: how many of these were not delivered, because their hash keys belong to another
            shard: after a reshard the KPL puts them there again.
        foreign: how many were delivered although their hash keys belong to another shard.
        corrupt: how many begin like an aggregate and are not valid ones: delivered as they are.
    """

    shard: ShardKey
    aggregates: int
    user_records: int
    left_out: int
    corrupt: int
    foreign: int = 0


@frozen(kw_only=True)
class RecordsProcessed:
    """The application has taken a delivery: its records count as processed.

    Attributes:
        shard: which shard.
        records: how many records it had.
        payload_bytes: how large they were together.
        seconds: how long the application took.
    """

    shard: ShardKey
    records: int
    payload_bytes: int
    seconds: float


@frozen(kw_only=True)
class ProcessingFailed:
    """The application raised an error: the records of the delivery do not count as processed.

    Attributes:
        shard: which shard.
        records: how many records the delivery had.
        error: what was raised, in words.
    """

    shard: ShardKey
    records: int
    error: str


@frozen(kw_only=True)
class CheckpointsSaved:
    """The store of checkpoints has written how far shards have been processed, or begin.

    Attributes:
        shards: how many shards.
        seconds: how long the store took.
    """

    shards: int
    seconds: float


@frozen(kw_only=True)
class CheckpointsRefused:
    """The store of checkpoints has refused a write: another reader has written in between.

    Attributes:
        message: which shard, and what to do.
    """

    message: str
