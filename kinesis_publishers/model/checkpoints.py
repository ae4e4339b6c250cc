"""What a checkpoint store keeps: the progress of a shard, and which write stored it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from attrs import frozen

from kinesis_publishers.model.positions import ShardProgress, StartingPosition
from kinesis_publishers.model.shards import HashRange, ShardKey

KCL_WRITER: Final = "KCL "
"""What the writer begins with where a worker of the Kinesis Client Library has written a row."""

WHOLE_STREAM: Final = "*"
"""The id of the row that marks a stream's first checkpoint as complete.

A single reader owns the stream by writing this mark. Its ``as_of`` is set for a while after that
reader took over from one that may have been running; ``is_ended`` says that it has stopped.
"""

FOUND_LATER: Final = ShardProgress(position=StartingPosition.trim_horizon())
"""Where shards begin that have no row although their stream has its mark."""


@frozen(kw_only=True)
class Lease:
    """Which worker of an application reads a shard, and what the workers know of the shard.

    Attributes:
        owner: the worker that reads the shard, or will read it next; ``None`` if none does.
        leaving: the worker that still reads the shard, and hands it over to ``owner``.
        switches: how often the owner has changed since the last checkpoint.
        parents: the ids of the shards that this one continues.
        children: the ids of the shards that continue this one, once it has ended.
        hash_range: the hash keys of the shard; ``None`` while unknown.
        bytes_per_second: the moving average of what is read; ``None`` while unknown.
        settle_seconds: how long the next reader waits before it subscribes to the shard, because
            its former reader has subscribed shortly before it left.
        consumer_arn: the stream consumer that a worker of the application has registered: the last
            one removes it. ``None`` if this shard's workers know of none.
        watermark: the watermark of the shard as its last reader left it; ``None`` while unknown,
            or without watermarks.
        is_idle: whether the shard is idle, and holds back no watermark; ``None`` means ``False``.
        is_at_tip: whether the shard is at its tip, and no other shard waits for it
            (``watermark.lookahead.millis``); ``None`` means ``False``.
    """

    owner: str | None = None
    leaving: str | None = None
    switches: int = 0
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    hash_range: HashRange | None = None
    bytes_per_second: int | None = None
    settle_seconds: int = 0
    consumer_arn: str | None = None
    watermark: datetime | None = None
    is_idle: bool | None = None
    is_at_tip: bool | None = None

    @property
    def holder(self) -> str | None:
        """The worker that may read the shard now."""
        return self.leaving or self.owner


@frozen(kw_only=True)
class Checkpoint:
    """How far one shard has been processed, regardless of the publisher that read it.

    Attributes:
        shard: its id is :data:`WHOLE_STREAM` for the stream as a whole.
        stream_created_at: a stream that is created again under the same name has other records.
        lease: who reads the shard; ``None`` in an application with one reader.
    """

    shard: ShardKey
    stream_created_at: datetime
    progress: ShardProgress
    lease: Lease | None = None

    @classmethod
    def mark(cls, arn: str, created_at: datetime, *, is_ended: bool = False) -> Checkpoint:
        """Return the row :data:`WHOLE_STREAM` of a stream."""
        progress = FOUND_LATER.ended() if is_ended else FOUND_LATER
        key = ShardKey(arn, WHOLE_STREAM)
        return cls(shard=key, stream_created_at=created_at, progress=progress)


@frozen(kw_only=True)
class CheckpointVersion:
    """Identifies one write of a checkpoint, by one store object; ``number`` grows with each."""

    number: int
    writer: str

    @property
    def is_foreign(self) -> bool:
        """Whether a worker of the Kinesis Client Library wrote it, in a table that both use."""
        return self.writer.startswith(KCL_WRITER)

    def __str__(self) -> str:
        return f"{self.number} by {self.writer}"


@frozen(kw_only=True)
class StoredCheckpoint:
    """A checkpoint with the version that a store has given it."""

    checkpoint: Checkpoint
    version: CheckpointVersion


@frozen(kw_only=True)
class CheckpointWrite:
    """A checkpoint to write if it replaces the ``expected`` version (``None``: no checkpoint)."""

    checkpoint: Checkpoint
    expected: CheckpointVersion | None = None

    @classmethod
    def over(cls, rows: Mapping[ShardKey, StoredCheckpoint], new: Checkpoint) -> CheckpointWrite:
        """Return what writes ``new`` over the row of its shard, if there is one."""
        known = rows.get(new.shard)
        return cls(checkpoint=new, expected=None if known is None else known.version)

    @property
    def shard(self) -> ShardKey:
        return self.checkpoint.shard
