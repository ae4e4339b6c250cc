"""What a checkpoint store keeps: the progress of one shard, and who wrote it when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model.positions import ShardProgress
    from kinesis_publishers.model.shards import ShardKey

__all__ = ["Checkpoint", "CheckpointVersion", "CheckpointWrite", "StoredCheckpoint"]


@frozen(kw_only=True)
class Checkpoint:
    """How far one shard has been processed; the same whichever publisher read it.

    Attributes:
        shard: which shard. The id ``*`` stands for the stream as a whole: where it began.
        stream_created_at: when its stream was created: one of the same name that was created again
            has other records.
        progress: where reading goes on.
    """

    shard: ShardKey
    stream_created_at: datetime
    progress: ShardProgress


@frozen(kw_only=True)
class CheckpointVersion:
    """Which write of a checkpoint it is; no two writes of one checkpoint have the same.

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
    """A checkpoint as it is in a store."""

    checkpoint: Checkpoint
    version: CheckpointVersion


@frozen(kw_only=True)
class CheckpointWrite:
    """A checkpoint to be written if nobody else has written it.

    Attributes:
        checkpoint: what to write.
        expected: the version that is replaced; ``None`` if there must not be any.
    """

    checkpoint: Checkpoint
    expected: CheckpointVersion | None = None

    @property
    def shard(self) -> ShardKey:
        return self.checkpoint.shard
