"""Frozen values: streams, shards, records, positions. No I/O, no clock, no AWS client."""

from kinesis_publishers.model.checkpoints import (
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    StoredCheckpoint,
)
from kinesis_publishers.model.positions import (
    PositionType,
    SequenceNumber,
    ShardProgress,
    ShardRange,
    StartingPosition,
    StreamProgress,
    continue_from,
    is_refresh_due,
    resume_after,
)
from kinesis_publishers.model.records import (
    Record,
    RecordBatch,
    RecordPage,
    RunResult,
    StreamConsumer,
    SubscriptionEvent,
    UserRecord,
)
from kinesis_publishers.model.shards import (
    ChildShard,
    HashRange,
    Shard,
    ShardKey,
    StreamIdentity,
    StreamSummary,
    hash_key_of,
)

__all__ = [
    "Checkpoint",
    "CheckpointVersion",
    "CheckpointWrite",
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
    "StoredCheckpoint",
    "StreamConsumer",
    "StreamIdentity",
    "StreamProgress",
    "StreamSummary",
    "SubscriptionEvent",
    "UserRecord",
    "continue_from",
    "hash_key_of",
    "is_refresh_due",
    "resume_after",
]
