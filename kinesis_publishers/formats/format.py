"""A format: values become payloads, and payloads values; the format JSON; records with values."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import orjson
from attrs import frozen

from kinesis_publishers.model import Record

if TYPE_CHECKING:
    import typing_extensions

    # Without a decoder that has a type, values are of any type.
    T = typing_extensions.TypeVar("T", default=Any)
else:
    T = TypeVar("T")

Decoder: TypeAlias = Callable[[bytes], T]
"""Makes the value of a payload; for one that it cannot decode, it may raise any exception."""

Encoder: TypeAlias = Callable[[Any], bytes]
"""Makes the payload of a value; for one that it cannot encode, it may raise any exception."""

_ZEROS: Final = b"0" * 19
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
# 19 digits are more than 64 bits behind a minus only.
_BEYOND_64_BITS: Final = re.compile(rb"(?:^|[\s:,\[])(?:-[0-9]{19}|[0-9]{20})")


@frozen
class Format(Generic[T]):
    """Both directions of a format, for ``encode=`` of producers and ``decode=`` of readers.

    Attributes:
        encode: makes the payload of a value, or raises what is wrong with the value.
        decode: makes the value of a payload, or raises what is wrong with the payload.
    """

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]


def imported(name: str, *, extra: str) -> Any:
    """Import what a format needs; the error of a missing package names its extra."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        text = f"{error.msg}: pip install 'kinesis-publishers[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from None


def unpacked(new: Callable[[], Any], data: bytes, max_bytes: int, where: str) -> bytes:
    """Return what a payload was compressed from; ``new`` makes a decompressor as of zlib.

    Raises:
        ValueError: the payload is not compressed so, is cut, has a rest, or becomes larger than
            ``max_bytes`` of ``where``: a writer could let a few kilobytes become gigabytes.
    """
    unpacking = new()
    try:
        found: bytes = unpacking.decompress(data, max_bytes + 1)
    except Exception as error:  # each library has its own
        raise ValueError(f"the payload cannot be unpacked: {error}") from error
    if len(found) > max_bytes or not unpacking.eof:
        raise ValueError(
            f"the payload is cut, or has more than {max_bytes:,} bytes unpacked: a larger "
            f"max_bytes of {where} allows more"
        )
    if unpacking.unused_data:
        raise ValueError(f"{len(unpacking.unused_data):,} bytes follow what is compressed")
    return found


def _encode_json(value: Any) -> bytes:
    # orjson writes null for NaN and Infinity, without a word.
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _decode_json(data: bytes) -> Any:
    """Return what JSON holds; orjson alone makes floats of whole numbers beyond 64 bits."""
    value = orjson.loads(data)
    # Each test is slower and leaves fewer payloads; of 19 digits, 4 in a row are fourth bytes.
    if (
        _ZEROS[:4] in data[::4].translate(_DIGITS_AS_ZEROS)
        and _ZEROS in data.translate(_DIGITS_AS_ZEROS)
        and _BEYOND_64_BITS.search(data)
    ):
        return json.loads(data)
    return value


JSON: Final = Format[Any](_encode_json, _decode_json)


_WithValue: Any = namedtuple("_WithValue", (*Record._fields, "value"))  # type: ignore[misc]


class DecodedRecord(_WithValue, Record, Generic[T]):  # type: ignore[misc]
    """A record with the value of its payload, which is a column of a data frame, too.

    Attributes:
        value: what ``decode`` has returned; there is none without it.
    """

    __slots__ = ()

    value: T

    def __hash__(self) -> int:
        # A value may be a dict.
        return hash(self[:-1])


def value_of(record: Record) -> Any:
    """Return the value of a record, ``None`` without one."""
    return record.value if isinstance(record, DecodedRecord) else None


def decoded(record: Record, decode: Decoder[T]) -> DecodedRecord[T]:
    """Return ``record`` with its value."""
    return tuple.__new__(DecodedRecord, (*record, decode(record.data)))
