"""Cuts a sequence into parts that one call takes: a limit in number and one in bytes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["batched_by_size"]

_T = TypeVar("_T")


def batched_by_size(
    items: Iterable[_T], size_of: Callable[[_T], int], *, max_items: int, max_bytes: int
) -> Iterator[list[_T]]:
    """Yield ``items`` in their order, as many together as the limits admit.

    An item that alone exceeds the limit in bytes comes alone.
    """
    batch: list[_T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == max_items or total + size > max_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
