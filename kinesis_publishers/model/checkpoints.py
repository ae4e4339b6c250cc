"""What a checkpoint store keeps: the progress of a shard, and which write stored it."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from kinesis_publishers.model.positions import ShardProgress
from kinesis_publishers.model.shards import ShardKey


@frozen(kw_only=True)
class Checkpoint:
    """How far one shard has been processed, regardless of the publisher that read it.

    Attributes:
        shard: which shard. The id ``*`` stands for the stream as a whole: where reading began.
        stream_created_at: when its stream was created; a stream that is created again under the
            same name has other records.
        progress: where reading continues.
    """

    shard: ShardKey
    stream_created_at: datetime
    progress: ShardProgress


@frozen(kw_only=True)
class CheckpointVersion:
    """Identifies one write of a checkpoint; no two writes of a checkpoint share a version.

    Attributes:
        number: grows with every write.
        writer: the store object that wrote it.
    """

    number: int
    writer: str

    def __str__(self) -> str:
        return f"{self.number} by {self.writer}"


@frozen(kw_only=True)
class StoredCheckpoint:
    """A checkpoint with the version that a store has given it."""

    checkpoint: Checkpoint
    version: CheckpointVersion


@frozen(kw_only=True)
class CheckpointWrite:
    """A checkpoint to write unless another reader has written it.

    Attributes:
        checkpoint: what to write.
        expected: the version to replace; ``None`` if none may exist.
    """

    checkpoint: Checkpoint
    expected: CheckpointVersion | None = None

    @property
    def shard(self) -> ShardKey:
        return self.checkpoint.shard
