"""Aggregates written byte by byte from the definition of the format."""

from __future__ import annotations

import hashlib

__all__ = ["MAGIC", "aggregate_of", "field_of", "number_of", "record_of", "wrapped"]

MAGIC = bytes.fromhex("f3899ac2")


def number_of(field: int, value: int) -> bytes:
    """Return a protobuf field with a number: tag, then seven bits at a time."""
    return _varint(field << 3) + _varint(value)


def field_of(field: int, value: bytes) -> bytes:
    """Return a protobuf field with bytes: tag, length, bytes."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def record_of(key: int, data: bytes, hash_key: int | None = None, *, tags: bytes = b"") -> bytes:
    """Return a ``Record`` message."""
    explicit = b"" if hash_key is None else number_of(2, hash_key)
    return number_of(1, key) + explicit + field_of(3, data) + tags


def aggregate_of(keys: list[str], hash_keys: list[str], records: list[bytes]) -> bytes:
    """Return an aggregate with these tables and ``Record`` messages."""
    message = b"".join(field_of(1, key.encode()) for key in keys)
    message += b"".join(field_of(2, key.encode()) for key in hash_keys)
    return wrapped(message + b"".join(field_of(3, record) for record in records))


def wrapped(message: bytes) -> bytes:
    """Return ``message`` between the magic bytes and its MD5."""
    return MAGIC + message + hashlib.md5(message).digest()


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
