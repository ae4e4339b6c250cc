"""The limits of micro-batches, and how work is spread over tasks. Pure, and without rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeVar

from attrs import frozen

from kinesis_publishers.readers import ReadLimit

#: Below this size, an additional Python task costs more than it saves.
MIN_PARTITION_BYTES = 2 * 1024 * 1024

_T = TypeVar("_T")


@frozen(kw_only=True)
class BatchLimit(ReadLimit):
    """The limits of one micro-batch; ``None`` is no limit."""

    def is_reached(self, records: int, payload_bytes: int) -> bool:
        """Return whether these records reach the limit of a micro-batch."""
        return (self.records is not None and records >= self.records) or (
            self.payload_bytes is not None and payload_bytes >= self.payload_bytes
        )

    def tightened(self, other: BatchLimit) -> BatchLimit:
        """Return the limit that satisfies both."""
        return BatchLimit(
            records=_least(self.records, other.records),
            payload_bytes=_least(self.payload_bytes, other.payload_bytes),
            min_records=max(self.min_records, other.min_records),
        )


def _least(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


def balanced(
    items: Sequence[_T],
    sizes: Sequence[int] | None,
    parallelism: int,
    *,
    capacity: int = sys.maxsize,
) -> list[tuple[_T, ...]]:
    """Spread items over groups of about equal size, the largest first; the same groups each time.

    Args:
        items: each stays whole in one group; a group keeps their order.
        sizes: the expected bytes of each; ``None`` if they are not known.
        parallelism: the maximum number of groups, except where these would exceed ``capacity``.
        capacity: the most bytes of a group, except of a single item.
    """
    if not items:
        return []
    weights = [1] * len(items) if sizes is None else [max(1, size) for size in sizes]
    count = min(parallelism, len(items))
    if sizes is not None:
        count = min(count, -(-sum(weights) // MIN_PARTITION_BYTES))
    count = max(count, -(-sum(weights) // capacity))
    groups: list[list[int]] = [[] for _ in range(count)]
    filled = [0] * count
    for index in sorted(range(len(items)), key=lambda index: (-weights[index], index)):
        target = filled.index(min(filled))
        if filled[target] and filled[target] + weights[index] > capacity:
            target = len(groups)
            groups.append([])
            filled.append(0)
        groups[target].append(index)
        filled[target] += weights[index]
    return [tuple(items[index] for index in sorted(group)) for group in groups if group]
