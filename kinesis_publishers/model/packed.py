"""Columns in the buffers of Arrow arrays, of whose values no objects are made."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

Buffers: TypeAlias = tuple[bytes, bytes, bytes | None]
"""Offsets of 32 bits, data, and a bitmap of the values that are there, or ``None`` for all."""


class PackedColumn(Sequence[Any]):
    """Bytes or text that become objects only when they are asked for.

    Attributes:
        buffers: those of the whole column, also in a part of it.
        start: the index of the first value in the buffers.
        is_ascending: whether the values have one length, and each is greater than the one before.
        has_aggregates: whether a value of the whole column may begin like an aggregate.
    """

    __slots__ = (
        "_is_text",
        "_offsets",
        "_stop",
        "buffers",
        "has_aggregates",
        "is_ascending",
        "start",
    )

    def __init__(
        self,
        buffers: Buffers,
        *,
        is_text: bool,
        is_ascending: bool = False,
        has_aggregates: bool = True,
        part: tuple[int, int] | None = None,
    ) -> None:
        self.buffers = buffers
        self.is_ascending = is_ascending
        self.has_aggregates = has_aggregates
        self._is_text = is_text
        self._offsets = memoryview(buffers[0]).cast("i")
        self.start, self._stop = part or (0, len(self._offsets) - 1)

    @property
    def total_bytes(self) -> int:
        return self._offsets[self._stop] - self._offsets[self.start]

    def any_begins_with(self, first: bytes) -> bool:
        _, data, _ = self.buffers
        end, found = self._offsets[self._stop], self._offsets[self.start] - 1
        while (found := data.find(first, found + 1, end)) >= 0:
            index = bisect_left(self._offsets, found, self.start, self._stop)
            if self._offsets[index] == found:
                # Those before it are empty.
                return True
        return False

    def __len__(self) -> int:
        return self._stop - self.start

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return list(self)[index]
            return PackedColumn(
                self.buffers,
                is_text=self._is_text,
                is_ascending=self.is_ascending,
                has_aggregates=self.has_aggregates,
                part=(self.start + start, self.start + max(start, stop)),
            )
        at = range(self.start, self._stop)[index]
        return self._value(at, self._offsets[at], self._offsets[at + 1])

    def __iter__(self) -> Iterator[Any]:
        ends = islice(self._offsets, self.start + 1, self._stop + 1)
        starts = islice(self._offsets, self.start, self._stop)
        return map(self._value, range(self.start, self._stop), starts, ends)

    def _value(self, index: int, start: int, end: int) -> bytes | str | None:
        _, data, bitmap = self.buffers
        if bitmap is not None and not bitmap[index >> 3] >> (index & 7) & 1:
            return None
        value = data[start:end]
        return value.decode() if self._is_text else value
