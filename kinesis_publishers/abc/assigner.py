"""Decides which shards of the streams this process reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

from kinesis_publishers.config import Properties
from kinesis_publishers.config.plugins import with_overrides
from kinesis_publishers.model import ChildShard, Shard, ShardKey, ShardProgress


class ShardAssigner:
    """Decides which shards this process reads.

    ``kinesis.shard.assigner`` names one: ALL, MANUAL, LEASES, an entry point, or ``module:Class``.
    A subclass overrides :meth:`reads` if the choice never changes, or else :meth:`mine`. All are
    called from the event loop, and none may block.
    """

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        """Return an assigner; unless overridden, made without arguments.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """
        return cls()

    def check_listing(self, listed: Sequence[Shard]) -> None:
        """Check the first listing of a stream.

        Raises:
            ConfigError: the configuration names shards that are not there.
        """

    def reads(self, shard: Shard) -> bool:
        """Return whether a shard exists for this process; the answer never changes.

        The children of one that does not exist for it do not wait for their parent.
        """
        return True

    def mine(self, startable: Sequence[Shard]) -> Collection[ShardKey]:
        """Return which shards may be read now, of those whose parents were read to their ends.

        It is asked whenever a listing has come, a shard has ended, or the function that
        :meth:`on_change` was given is called. What it no longer returns is read no further.
        """
        return {shard.key for shard in startable}

    def on_change(self, wake: Callable[[], None]) -> None:
        """Keep a function to call when :meth:`mine` would give another answer."""


class SharedReading:
    """The optional methods of a ``ShardAssigner``, called like the others; these do nothing."""

    @classmethod
    def of(cls, assigner: ShardAssigner) -> SharedReading:
        """Return the methods that ``assigner`` has, which must fit."""
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
