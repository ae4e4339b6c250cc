"""Which task reads which ranges: pure rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["balanced"]

_T = TypeVar("_T")

# Below this, another Python task costs more than it gains.
_MIN_TASK_BYTES = 2 * 1024 * 1024


def balanced(
    items: Sequence[_T], sizes: Sequence[int] | None, parallelism: int
) -> list[tuple[_T, ...]]:
    """Spread items over at most ``parallelism`` groups of about equal size, the largest first.

    Args:
        items: what is spread; each stays whole, in one group, in the order given.
        sizes: how many bytes each is expected to have; ``None`` if that is not known.
        parallelism: the most groups.
    """
    if not items:
        return []
    weights = [1] * len(items) if sizes is None else [max(1, size) for size in sizes]
    count = min(parallelism, len(items))
    if sizes is not None:
        count = min(count, max(1, -(-sum(weights) // _MIN_TASK_BYTES)))
    groups: list[list[int]] = [[] for _ in range(count)]
    filled = [0] * count
    for index in sorted(range(len(items)), key=lambda index: (-weights[index], index)):
        target = filled.index(min(filled))
        groups[target].append(index)
        filled[target] += weights[index]
    return [tuple(items[index] for index in sorted(group)) for group in groups if group]
