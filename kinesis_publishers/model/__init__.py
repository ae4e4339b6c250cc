"""Frozen values: streams, shards, records, positions. No I/O, no clock, no AWS client."""

from kinesis_publishers.model.hash_keys import HashRange, hash_key_of
from kinesis_publishers.model.positions import (
    PositionType,
    SequenceNumber,
    ShardProgress,
    StartingPosition,
    continue_from,
    resume_after,
)
from kinesis_publishers.model.progress import ShardRange, StreamProgress
from kinesis_publishers.model.records import Record, RecordBatch, RecordPage
from kinesis_publishers.model.results import RunResult
from kinesis_publishers.model.shards import (
    ChildShard,
    Shard,
    ShardKey,
    StreamIdentity,
    StreamSummary,
)
from kinesis_publishers.model.subscriptions import StreamConsumer, SubscriptionEvent
from kinesis_publishers.model.user_records import UserRecord

__all__ = [
    "ChildShard",
    "HashRange",
    "PositionType",
    "Record",
    "RecordBatch",
    "RecordPage",
    "RunResult",
    "SequenceNumber",
    "Shard",
    "ShardKey",
    "ShardProgress",
    "ShardRange",
    "StartingPosition",
    "StreamConsumer",
    "StreamIdentity",
    "StreamProgress",
    "StreamSummary",
    "SubscriptionEvent",
    "UserRecord",
    "continue_from",
    "hash_key_of",
    "resume_after",
]
