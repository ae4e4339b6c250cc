"""The frames of ``application/vnd.amazon.eventstream``, as the service writes them.

Layout: total length 4 | length of the headers 4 | CRC32 of these eight bytes 4 | headers | payload
| CRC32 of everything before 4. A header: length of the name 1 | name | type 1 (7 is a string) |
length of the value 2 | value. All numbers are big-endian.
"""

from __future__ import annotations

import struct
import zlib

import orjson

__all__ = ["INITIAL_RESPONSE", "event_frame", "exception_frame", "with_bad_crc"]

_STRING = 7
_OVERHEAD_BYTES = 16
_CONTENT_TYPE = "application/x-amz-json-1.1"


def _headers(**values: str) -> bytes:
    encoded = bytearray()
    for name, value in values.items():
        raw_name = f":{name.replace('_', '-')}".encode()
        raw_value = value.encode()
        encoded += struct.pack(">B", len(raw_name)) + raw_name
        encoded += struct.pack(">BH", _STRING, len(raw_value)) + raw_value
    return bytes(encoded)


def _event_headers(event_type: str) -> bytes:
    return _headers(event_type=event_type, content_type=_CONTENT_TYPE, message_type="event")


def _frame(headers: bytes, *payload: bytes) -> bytes:
    length = _OVERHEAD_BYTES + len(headers) + sum(map(len, payload))
    lengths = struct.pack(">II", length, len(headers))
    pieces = [lengths, struct.pack(">I", zlib.crc32(lengths)), headers, *payload]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return b"".join((*pieces, struct.pack(">I", checksum)))


_EVENT_HEADERS = _event_headers("SubscribeToShardEvent")

#: The frame that every accepted subscription begins with.
INITIAL_RESPONSE = _frame(_event_headers("initial-response"), b"{}")


def event_frame(
    fragments: list[bytes],
    continuation: int | None,
    millis_behind: int,
    child_shards: list[dict[str, object]] | None = None,
) -> bytes:
    """Return a SubscribeToShardEvent.

    Args:
        fragments: the records, each as the JSON object that goes into the event.
        continuation: the ContinuationSequenceNumber; None at the end of a shard.
        millis_behind: MillisBehindLatest.
        child_shards: ChildShards, at the end of a shard only.
    """
    number = b"null" if continuation is None else b'"%d"' % continuation
    children = b"" if child_shards is None else b'"ChildShards":%s,' % orjson.dumps(child_shards)
    head = b'{"ContinuationSequenceNumber":%s,"MillisBehindLatest":%d,%s"Records":[' % (
        number,
        millis_behind,
        children,
    )
    return _frame(_EVENT_HEADERS, head, b",".join(fragments), b"]}")


def exception_frame(code: str, message: str) -> bytes:
    """Return the frame with which a subscription fails after it was accepted."""
    headers = _headers(exception_type=code, content_type=_CONTENT_TYPE, message_type="exception")
    return _frame(headers, orjson.dumps({"message": message}))


def with_bad_crc(frame: bytes) -> bytes:
    """Return the frame with a checksum that does not match its contents."""
    return frame[:-1] + bytes([frame[-1] ^ 0xFF])
