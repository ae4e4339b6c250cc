"""How a limit for all shards together is shared out among them: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReadLimit", "Weight", "shares"]


class Weight(NamedTuple):
    """What one Kinesis record counts for: an aggregate is several, and is admitted whole."""

    payload_bytes: int
    records: int = 1


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

    def take(self, weights: Sequence[Weight], most: int) -> int:
        """Return how many of these fit, at most ``most``; they count from now on."""
        count = 0
        for weight in weights[:most]:
            if not self._admits(weight):
                break
            self._spend(weight)
            count += 1
        return count

    def _admits(self, weight: Weight) -> bool:
        # One that alone exceeds the limit goes through, alone: otherwise nothing ever would.
        return self._is_untouched or (
            (self._records is None or self._records >= weight.records)
            and (self._bytes is None or self._bytes >= weight.payload_bytes)
        )

    def _spend(self, weight: Weight) -> None:
        self._is_untouched = False
        if self._records is not None:
            self._records -= weight.records
        if self._bytes is not None:
            self._bytes -= weight.payload_bytes


def shares(weights: Sequence[Sequence[Weight]], limit: ReadLimit, *, first: int = 0) -> list[int]:
    """Return how many Kinesis records of each shard are admitted: evenly, then what is left.

    Args:
        weights: per shard, what the records that wait count for, in their order.
        limit: the limit for all of them together; it holds to the record.
        first: which shard is served first. Changing it from round to round lets every shard
            have its turn, however small the limit.
    """
    count = len(weights)
    order = [(first + step) % count for step in range(count)] if count else []
    admitted = [0] * count
    budget = _Budget(limit)
    even = max(1, limit.records // count) if limit.records is not None and count else None
    even_bytes = limit.payload_bytes // count if limit.payload_bytes is not None and count else None
    for index in order:
        most = _even_share(weights[index], even, even_bytes)
        admitted[index] = budget.take(weights[index], most)
    for index in order:
        rest = weights[index][admitted[index] :]
        admitted[index] += budget.take(rest, len(rest))
    return admitted


def _even_share(weights: Sequence[Weight], records: int | None, payload_bytes: int | None) -> int:
    total_records = total_bytes = 0
    for index, weight in enumerate(weights):
        total_records += weight.records
        total_bytes += weight.payload_bytes
        has_too_many = records is not None and total_records > records
        if has_too_many or (payload_bytes is not None and total_bytes > payload_bytes):
            return max(1, index)
    return len(weights)
