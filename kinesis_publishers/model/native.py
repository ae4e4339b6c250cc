"""Finds the functions in native code of the distribution ``kinesis-publishers-native``.

They are pure, and return ``None`` for what they do not expect: the code in Python, which is the
reference, then decides.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, cast

from kinesis_publishers.model.packed import Buffers

SWITCH: Final = "KINESIS_PUBLISHERS_NATIVE"
# What the functions take and return; it changes together with them.
_INTERFACE: Final = 2
_DISTRIBUTION: Final = "kinesis-publishers-native"
_MODULE: Final = "kinesis_publishers_native"


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
    """The module ``kinesis_publishers_native``."""

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
