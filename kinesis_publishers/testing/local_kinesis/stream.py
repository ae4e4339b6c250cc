"""One stream: its settings, its shards, and which of them are open, listed or gone."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

from attrs import define, field

from kinesis_publishers.testing.local_kinesis.consumers import StreamConsumers
from kinesis_publishers.testing.local_kinesis.errors import resource_not_found
from kinesis_publishers.testing.local_kinesis.hash_keys import HASH_KEY_COUNT, even_starts
from kinesis_publishers.testing.local_kinesis.sequence_numbers import (
    CreationSeconds,
    SequenceSpace,
)
from kinesis_publishers.testing.local_kinesis.shard import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Stream", "StreamMode", "StreamStatus"]

_HOUR_MS = 3_600_000

StreamMode = Literal["PROVISIONED", "ON_DEMAND"]
StreamStatus = Literal["CREATING", "DELETING", "ACTIVE", "UPDATING"]


@define(eq=False)
class Stream:
    """A stream, its shards and its consumers.

    Times are in milliseconds since the epoch and passed in: a stream has no clock. A change that
    takes a while is held in ``_pending`` and happens when a caller settles the stream.
    """

    name: str
    arn: str
    account_id: str
    mode: StreamMode
    created_ms: int
    creation_seconds: CreationSeconds
    active_ms: int
    max_record_kib: int | None = None
    retention_hours: int = 24
    deleted_ms: int | None = None
    tags: dict[str, str] = field(factory=dict)
    shards: dict[str, Shard] = field(factory=dict)
    consumers: StreamConsumers = field(factory=StreamConsumers)
    _next_index: int = 0
    _pending: tuple[int, Callable[[int], object]] | None = None
    _open: list[Shard] = field(factory=list)
    _open_starts: list[int] = field(factory=list)

    @property
    def retention_ms(self) -> int:
        return self.retention_hours * _HOUR_MS

    @property
    def open_shards(self) -> list[Shard]:
        """The open shards in the order of their hash key ranges."""
        return self._open

    def status(self, now_ms: int) -> StreamStatus:
        if self.deleted_ms is not None:
            return "DELETING"
        if now_ms < self.active_ms:
            return "CREATING"
        return "UPDATING" if self._pending else "ACTIVE"

    def add_initial_shards(self, count: int, now_ms: int) -> None:
        second = self.creation_seconds.next(now_ms)
        starts = even_starts(count)
        for first, following in zip(starts, [*starts[1:], HASH_KEY_COUNT], strict=True):
            self.add_shard(second, (first, following - 1), now_ms)
        self.index_open_shards()

    def add_shard(
        self, second: int, hash_keys: tuple[int, int], now_ms: int, parents: tuple[str, ...] = ()
    ) -> Shard:
        """Append an open shard; the caller calls ``index_open_shards`` once it is done."""
        shard = Shard(
            SequenceSpace(self._next_index, second), hash_keys[0], hash_keys[1], now_ms, parents
        )
        self._next_index += 1
        self.shards[shard.shard_id] = shard
        return shard

    def index_open_shards(self) -> None:
        open_shards = (shard for shard in self.shards.values() if shard.is_open)
        self._open = sorted(open_shards, key=lambda shard: shard.first_hash_key)
        self._open_starts = [shard.first_hash_key for shard in self._open]

    def route(self, hash_key: int) -> Shard:
        """Return the open shard whose range contains ``hash_key``."""
        return self._open[bisect_right(self._open_starts, hash_key) - 1]

    @property
    def pending_due_ms(self) -> int | None:
        """When the change that it is UPDATING for happens, if there is one."""
        return self._pending[0] if self._pending is not None else None

    def change_later(self, due_ms: int, change: Callable[[int], object]) -> None:
        """Keep the stream UPDATING until ``due_ms`` and call ``change(due_ms)`` then."""
        self._pending = (due_ms, change)
        # Whoever waits for records looks again: the change may close the shard.
        for shard in self.shards.values():
            shard.ring()

    def settle(self, now_ms: int) -> None:
        """Apply a change that is due."""
        if self._pending is not None and self._pending[0] <= now_ms:
            due_ms, change = self._pending
            self._pending = None
            change(due_ms)

    def shard(self, shard_id: str, now_ms: int) -> Shard:
        """Return a shard with its expired records removed.

        Raises:
            ApiError: ResourceNotFoundException if it never was or has left the retention.
        """
        shard = self.shards.get(shard_id)
        if shard is None or self._expire_shard(shard, now_ms):
            raise resource_not_found(
                f"Shard {shard_id} in stream {self.name} under account {self.account_id} "
                "does not exist"
            )
        return shard

    def retained_shards(self, now_ms: int) -> list[Shard]:
        """Return all shards within the retention, in the order of their ids."""
        for shard in list(self.shards.values()):
            self._expire_shard(shard, now_ms)
        return list(self.shards.values())

    def drop_shard(self, shard_id: str) -> None:
        """Forget a closed shard, as when its last record has left the retention."""
        del self.shards[shard_id]

    def _expire_shard(self, shard: Shard, now_ms: int) -> bool:
        horizon_ms = now_ms - self.retention_ms
        shard.trim_arrived_before(horizon_ms)
        if shard.closed_ms is None or shard.closed_ms > horizon_ms:
            return False
        # Data that arrived in the very millisecond of the reshard is still within the retention.
        if shard.record_count:
            return False
        self.drop_shard(shard.shard_id)
        return True
