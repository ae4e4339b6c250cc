"""The interface between a fetcher and an assigner whose shards move between processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.config.plugins import with_overrides
from kinesis_publishers.model import ChildShard, ShardKey, ShardProgress


class SharedReading:
    """The optional methods of an assigner, in addition to ``ShardAssigner``; these do nothing.

    All are called from the event loop, and none may block.
    """

    @classmethod
    def of(cls, assigner: ShardAssigner) -> SharedReading:
        """Return what asks ``assigner``, as far as it has these methods."""
        return with_overrides(cls(), assigner)

    def known_progress(self) -> Mapping[ShardKey, ShardProgress]:
        """Return the progress of the shards that other processes read."""
        return {}

    def leaving(self) -> Collection[ShardKey]:
        """Return the shards that other processes wait for; finish their delivered records."""
        return ()

    async def release(self, shards: Collection[ShardKey]) -> None:
        """Release ``shards`` to other processes: their delivered records are finished."""

    def may_deliver(self, shard: ShardKey) -> bool:
        """Return whether records of a shard may be delivered now."""
        return True

    async def permission(self, shard: ShardKey) -> None:
        """Wait until records of a shard may be delivered; cancelled if the shard is taken away."""

    def note_delivery(self, shard: ShardKey, payload_bytes: int) -> None:
        """Count the payload bytes that were read from a shard."""

    def note_children(self, shard: ShardKey, children: Sequence[ChildShard]) -> None:
        """Receive the children of an ended shard before its end is recorded."""
