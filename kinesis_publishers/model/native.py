"""The functions in native code of ``kinesis-publishers-native``, and the columns that they return.

They are pure, and return ``None`` for what they do not expect: the code in Python, which is the
reference, then decides.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from attrs import define, evolve, field

SWITCH: Final = "KINESIS_PUBLISHERS_NATIVE"
# What the functions take and return; it changes together with them.
_INTERFACE: Final = 2
_DISTRIBUTION: Final = "kinesis-publishers-native"
_MODULE: Final = "kinesis_publishers_native"


Buffers: TypeAlias = tuple[bytes, bytes, bytes | None]
"""Offsets of 32 bits, data, and a bitmap of the values that are there, or ``None`` for all."""


@define(eq=False, repr=False)
class PackedColumn(Sequence[Any]):
    """Bytes or text that become objects only when they are asked for.

    Attributes:
        buffers: those of the whole column, also in a part of it.
        start: the index of the first value in the buffers.
        is_ascending: whether the values have one length, and each is greater than the one before.
        has_aggregates: whether a value of the whole column may begin like an aggregate.
    """

    buffers: Buffers
    _is_text: bool = field(kw_only=True)
    is_ascending: bool = field(default=False, kw_only=True)
    has_aggregates: bool = field(default=True, kw_only=True)
    start: int = field(default=0, kw_only=True)
    _stop: int = field(default=-1, kw_only=True)
    _offsets: memoryview[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._offsets = memoryview(self.buffers[0]).cast("i")
        if self._stop < 0:
            self._stop = len(self._offsets) - 1

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
            return evolve(self, start=self.start + start, stop=self.start + max(start, stop))
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


class NativeColumns(NamedTuple):
    """What is in an answer, in the order of the native code.

    Attributes:
        payloads, partition_keys, sequence_numbers: lists, or ``Buffers`` if they are packed.
        is_ascending: whether the sequence numbers have one length and ascend.
        has_aggregates: whether a payload may be an aggregate.
    """

    payloads: Any
    partition_keys: Any
    sequence_numbers: Any
    arrival_epoch_seconds: list[float]
    encryption_types: list[str | None] | None
    next_shard_iterator: str | None
    continuation: str | None
    millis_behind_latest: int | None
    is_ascending: bool
    has_aggregates: bool


class NativeFunctions(Protocol):
    __version__: str

    def columns(self, body: bytes, is_cbor: bool, is_packed: bool, /) -> tuple[Any, ...] | None:
        """Decode an answer of GetRecords, or the payload of an event."""

    def unpack(
        self, message: bytes, /
    ) -> tuple[list[bytes], list[str], list[str | None] | None] | None:
        """Return data, partition keys and explicit hash keys in the message of an aggregate."""

    def pack(
        self, payloads: list[bytes], keys: list[str], max_bytes: int, max_records: int, /
    ) -> tuple[bytes, int]:
        """Return the message of an aggregate of the first records, and how many these are."""

    def put_request(
        self, payloads: list[bytes], keys: list[str | None], name: str, value: str, /
    ) -> bytes | None:
        """Encode a PutRecords call in CBOR, with one more member."""

    def put_answer(self, body: bytes, /) -> tuple[list[str], list[str]] | None:
        """Return the shards and sequence numbers in an answer in CBOR that refuses no record."""

    def hash_keys(self, keys: Sequence[str], /) -> list[int]:
        """Return the MD5 of each partition key as a number."""

    def joined(self, values: Sequence[bytes | str | None], /) -> Buffers | None:
        """Return the offsets, the data and the bitmap of an Arrow array."""

    def microseconds(self, epoch_seconds: Sequence[float], /) -> bytes:
        """Return the values of an Arrow array of timestamps."""


@cache
def find_native() -> tuple[NativeFunctions | None, str]:
    """Return the functions, or ``None``; and what decodes records, as text for users."""
    if os.environ.get(SWITCH) == "0":
        return None, f"Python ({SWITCH} is 0)"
    try:
        found = import_module(_MODULE)
    except ModuleNotFoundError:
        return None, f"Python ({_DISTRIBUTION} is not installed)"
    except ImportError as error:
        return None, f"Python ({_DISTRIBUTION} cannot be loaded: {error})"
    name = f"{_DISTRIBUTION} {getattr(found, '__version__', '')}".rstrip()
    if getattr(found, "INTERFACE", None) != _INTERFACE:
        return None, f"Python ({name} belongs to another version)"
    return cast("NativeFunctions", found), f"native code ({name})"


def native() -> NativeFunctions | None:
    """Return the functions where they are installed, and not switched off."""
    return find_native()[0]
