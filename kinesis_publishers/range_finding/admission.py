"""How a limit for all shards together is shared out among them: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReadLimit", "shares"]


@frozen(kw_only=True)
class ReadLimit:
    """The most that the ranges of one round may have together; ``None`` is no limit."""

    records: int | None = None
    payload_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.records is None and self.payload_bytes is None


class _Budget:
    def __init__(self, limit: ReadLimit) -> None:
        self._records = limit.records
        self._bytes = limit.payload_bytes
        self._is_untouched = True

    def take(self, sizes: Sequence[int], most: int) -> int:
        """Return how many records of these sizes fit, at most ``most``; they count from now on."""
        count = 0
        for size in sizes[:most]:
            if not self._admits(size):
                break
            self._spend(size)
            count += 1
        return count

    def _admits(self, size: int) -> bool:
        if self._records is not None and self._records < 1:
            return False
        # One that alone exceeds the limit goes through, alone: otherwise nothing ever would.
        return self._bytes is None or self._bytes >= size or self._is_untouched

    def _spend(self, size: int) -> None:
        self._is_untouched = False
        if self._records is not None:
            self._records -= 1
        if self._bytes is not None:
            self._bytes -= size


def shares(sizes: Sequence[Sequence[int]], limit: ReadLimit, *, first: int = 0) -> list[int]:
    """Return how many records of each shard are admitted: evenly at first, then what is left.

    Args:
        sizes: per shard, the payload bytes of the records that wait, in their order.
        limit: the limit for all of them together; it holds to the record.
        first: which shard is served first. Whoever changes it from round to round lets every shard
            have its turn, however small the limit.
    """
    count = len(sizes)
    order = [(first + step) % count for step in range(count)] if count else []
    admitted = [0] * count
    budget = _Budget(limit)
    even = max(1, limit.records // count) if limit.records is not None and count else None
    even_bytes = limit.payload_bytes // count if limit.payload_bytes is not None and count else None
    for index in order:
        most = _even_share(sizes[index], even, even_bytes)
        admitted[index] = budget.take(sizes[index], most)
    for index in order:
        rest = sizes[index][admitted[index] :]
        admitted[index] += budget.take(rest, len(rest))
    return admitted


def _even_share(sizes: Sequence[int], records: int | None, payload_bytes: int | None) -> int:
    most = len(sizes) if records is None else min(records, len(sizes))
    if payload_bytes is None:
        return most
    total = 0
    for index, size in enumerate(sizes[:most]):
        total += size
        if total > payload_bytes:
            return max(1, index)
    return most
