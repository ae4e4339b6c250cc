"""Formats that have names, and the functions that ``encode=`` and ``decode=`` stand for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kinesis_publishers.formats.cloud_events import CLOUD_EVENTS
from kinesis_publishers.formats.format import (
    JSON,
    Decoder,
    Encoder,
    Format,
    imported,
    unpacked,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

_M = TypeVar("_M", bound="Message")

# With the header of gzip, whose time is 0: equal values have equal payloads.
_GZIP: Final = 31
_MAX_UNPACKED: Final = 64 * 1024 * 1024


def protobuf(message: type[_M]) -> Format[_M]:
    """Return the format of Protobuf messages of a generated class."""

    def encode(value: _M) -> bytes:
        # Protobuf itself writes a message of any class.
        if not isinstance(value, message):
            raise TypeError(f"it must be a {message.__name__}")
        return value.SerializeToString()

    return Format(encode, message.FromString)


def gzip(inner: str | Format[Any] = "bytes", *, max_bytes: int = _MAX_UNPACKED) -> Format[Any]:
    """Return a format that compresses with gzip what ``inner``, a format or its name, encodes.

    A payload that becomes larger than ``max_bytes`` is an error of the record.
    """
    pack, new = partial(zlib.compress, wbits=_GZIP), partial(zlib.decompressobj, _GZIP)
    return _compressed(inner, pack, new, max_bytes, "gzip(...)")


def zstd(inner: str | Format[Any] = "bytes", *, max_bytes: int = _MAX_UNPACKED) -> Format[Any]:
    """As :func:`gzip`, with Zstandard; before Python 3.14 it needs the extra ``zstd``."""
    try:
        library = import_module("compression.zstd")
    except ModuleNotFoundError:
        library = imported("backports.zstd", extra="zstd")
    return _compressed(inner, library.compress, library.ZstdDecompressor, max_bytes, "zstd(...)")


def _compressed(
    inner: str | Format[Any], pack: Encoder, new: Callable[[], Any], max_bytes: int, where: str
) -> Format[Any]:
    form = inner if isinstance(inner, Format) else _named(inner, "inner")
    return Format(
        lambda value: pack(form.encode(value)),
        lambda data: form.decode(unpacked(new, data, max_bytes, where)),
    )


def _msgpack() -> Format[Any]:
    msgpack = imported("msgpack", extra="msgpack")
    return Format(msgpack.packb, msgpack.unpackb)


_BY_NAME: Final[Mapping[str, Callable[[], Format[Any]]]] = {
    "json": lambda: JSON,
    "text": lambda: Format[str](lambda text: text.encode(), lambda data: data.decode()),
    "bytes": lambda: Format[bytes](lambda data: data, lambda data: data),
    "msgpack": _msgpack,
    "gzip": gzip,
    "zstd": zstd,
    "cloudevents": lambda: CLOUD_EVENTS,
    "cloudwatch-logs": lambda: gzip("json"),
}


def _named(name: str, argument: str) -> Format[Any]:
    if name not in _BY_NAME:
        names = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"{argument}={name!r}: expected one of {names}, a Format, or a function")
    return _BY_NAME[name]()


def decoder_of(decode: str | Format[Any] | Decoder | None) -> Decoder | None:
    """Return the function that ``decode=`` stands for; raise if there is none."""
    return _function_of(decode, "decode")


def encoder_of(encode: str | Format[Any] | Encoder | None) -> Encoder | None:
    """Return the function that ``encode=`` stands for; raise if there is none."""
    return _function_of(encode, "encode")


def _function_of(given: Any, argument: str) -> Callable[[Any], Any] | None:
    if isinstance(given, str):
        given = _named(given, argument)
    if isinstance(given, Format):
        given = getattr(given, argument)
    if given is None or (callable(given) and not iscoroutinefunction(given)):
        return given  # type: ignore[no-any-return]
    raise TypeError(f"{argument} must be a plain function, a Format or a name, not {given!r}")
