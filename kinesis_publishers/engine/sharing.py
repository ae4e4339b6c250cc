"""What a fetcher asks, and tells, an assigner whose shards move between processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.config.plugins import with_overrides
from kinesis_publishers.model import ChildShard, ShardKey, ShardProgress


class SharedReading:
    """What an assigner may have beside the interface ``ShardAssigner``; these do nothing.

    All are called from the event loop, and none may block.
    """

    @classmethod
    def of(cls, assigner: ShardAssigner) -> SharedReading:
        """Return what asks ``assigner``, as far as it has these methods."""
        return with_overrides(cls(), assigner)

    def known_progress(self) -> Mapping[ShardKey, ShardProgress]:
        """Return how far shards have been processed that other processes read."""
        return {}

    def leaving(self) -> Collection[ShardKey]:
        """Return what another process waits for: it finishes what has been handed out."""
        return ()

    async def release(self, shards: Collection[ShardKey]) -> None:
        """Let others read ``shards``: this process has finished what it had handed out."""

    def may_deliver(self, shard: ShardKey) -> bool:
        """Say whether records of a shard may be handed out at this moment."""
        return True

    async def permission(self, shard: ShardKey) -> None:
        """Wait until records of a shard may be handed out; cancelled if it is taken away."""

    def note_delivery(self, shard: ShardKey, payload_bytes: int) -> None:
        """Learn how much was read from a shard."""

    def note_children(self, shard: ShardKey, children: Sequence[ChildShard]) -> None:
        """Learn what continues a shard that has ended, before its end is recorded."""
