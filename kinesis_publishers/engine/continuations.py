"""What reading a range leaves: records and a publisher with which a range that follows begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

if TYPE_CHECKING:
    from kinesis_publishers.abc import RecordPublisher
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import (
        RecordBatch,
        SequenceNumber,
        ShardKey,
        ShardRange,
    )

__all__ = ["Leftover", "Leftovers"]

# A shard iterator expires after five minutes (AWS API reference); older than this, what is left
# would be likely to need a new one anyway.
_MAX_AGE_SECONDS = 240.0
_MAX_COUNT = 1000
_MAX_BYTES = 16 * 1024 * 1024
# What a record takes beside its payload: the objects and texts of the columns, and the publisher.
_RECORD_BYTES = 300
_PUBLISHER_BYTES = 4096


@frozen(kw_only=True, eq=False)
class Leftover:
    """What comes after the last record of a range that has been read.

    Attributes:
        end: the last record of the range.
        rest: the records behind it that were fetched with it; ``None`` if there are none.
        publisher: goes on behind the rest; ``None`` if it was interrupted.
        is_complete: whether the shard ends with the rest.
    """

    end: SequenceNumber
    rest: RecordBatch | None = None
    publisher: RecordPublisher | None = None
    is_complete: bool = False

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        rest = self.rest
        held = 0 if rest is None else rest.payload_bytes + _RECORD_BYTES * len(rest)
        return held + _PUBLISHER_BYTES


@frozen(kw_only=True, eq=False)
class _Kept:
    leftover: Leftover
    kept_at: float


@define(eq=False)
class Leftovers:
    """Keeps what ranges have left, the latest of it, for the ranges that follow them.

    Each is taken once. One that is missing costs a GetShardIterator, never a record: ranges say
    themselves where they begin.

    Args:
        clock: the source of time.
        max_count: how many are kept.
        max_bytes: how much memory they may take together.
        max_age_seconds: after which time one is not taken any more.
    """

    _clock: Clock
    _max_count: int = _MAX_COUNT
    _max_bytes: int = _MAX_BYTES
    _max_age_seconds: float = _MAX_AGE_SECONDS
    # The oldest first.
    _kept: dict[tuple[ShardKey, SequenceNumber], _Kept] = field(factory=dict, init=False)
    _bytes: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """About how much memory all of it takes, in bytes."""
        return self._bytes

    def keep(self, shard: ShardKey, leftover: Leftover) -> None:
        """Keep what reading a range of ``shard`` has left."""
        key = shard, leftover.end
        self._remove(key)
        # It would drive out everything else, and itself.
        if leftover.size > self._max_bytes:
            return
        self._kept[key] = _Kept(leftover=leftover, kept_at=self._clock.monotonic())
        self._bytes += leftover.size
        while len(self._kept) > self._max_count or self._bytes > self._max_bytes:
            self._remove(next(iter(self._kept)))

    def take(self, wanted: ShardRange) -> Leftover | None:
        """Return what was left where ``wanted`` begins, and keep it no longer."""
        self._drop_old()
        return None if wanted.follows is None else self._remove((wanted.shard, wanted.follows))

    def _drop_old(self) -> None:
        oldest = self._clock.monotonic() - self._max_age_seconds
        while self._kept and next(iter(self._kept.values())).kept_at < oldest:
            self._remove(next(iter(self._kept)))

    def _remove(self, key: tuple[ShardKey, SequenceNumber]) -> Leftover | None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._bytes -= kept.leftover.size
        return kept.leftover
