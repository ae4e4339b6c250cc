"""The frames of ``application/vnd.amazon.eventstream``, as the service writes them."""

from __future__ import annotations

import orjson

from kinesis_publishers.aws.event_stream import encode_frame

__all__ = ["INITIAL_RESPONSE", "event_frame", "exception_frame", "with_bad_crc"]


def _headers(message_type: str, name: str) -> dict[str, str]:
    return {
        f":{message_type}-type": name,
        ":content-type": "application/x-amz-json-1.1",
        ":message-type": message_type,
    }


_EVENT_HEADERS = _headers("event", "SubscribeToShardEvent")

#: The frame that every accepted subscription begins with.
INITIAL_RESPONSE = encode_frame(_headers("event", "initial-response"), b"{}")


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
    return encode_frame(_EVENT_HEADERS, b"%b%b]}" % (head, b",".join(fragments)))


def exception_frame(code: str, message: str) -> bytes:
    """Return the frame with which a subscription fails after it was accepted."""
    return encode_frame(_headers("exception", code), orjson.dumps({"message": message}))


def with_bad_crc(frame: bytes) -> bytes:
    """Return the frame with a checksum that does not match its contents."""
    return frame[:-1] + bytes([frame[-1] ^ 0xFF])
