"""Kinesis' own form of CBOR (``application/x-amz-cbor-1.1``).

It differs from JSON in two ways: payloads are bytes, and a timestamp is a whole number of
milliseconds under the tag 1, where RFC 8949 has seconds.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Callable
from typing import Any

import cbor2

CONTENT_TYPE = "application/x-amz-cbor-1.1"
_TIMESTAMP_TAG = 1


# Of the two kinds of decoders this one costs half: for the other, cbor2 looks in vain for an
# attribute of its own each time, which Python before 3.13 does by raising an error.
@cbor2.shareable_decoder(name="timestamp")
def _timestamp(_: bool) -> tuple[None, Callable[[Any], Any]]:
    return None, operator.pos


def loads(body: bytes) -> Any:
    """Return what ``body`` says; a timestamp is the number of its milliseconds.

    Raises:
        ValueError: it is not one item of CBOR, or a map has a key twice.
    """
    stream = io.BytesIO(body)
    decoder = cbor2.CBORDecoder(
        stream,
        # Takes the body in one piece, which is not copied then.
        read_size=max(1, len(body)),
        semantic_decoders={_TIMESTAMP_TAG: _timestamp},
        allow_duplicate_keys=False,
    )
    try:
        value = decoder.decode()
    except cbor2.CBORDecodeError as error:
        raise ValueError(f"not CBOR: {error}") from error
    if stream.tell() != len(body):
        raise ValueError(f"more than one item: {len(body) - stream.tell()} bytes follow the first")
    return value


def dumps(members: dict[str, Any], timestamp_millis: int | None = None) -> bytes:
    """Return a request, with its ``Timestamp`` if there is one.

    Of indefinite length, as AWS's SDK for Java writes it.
    """
    if timestamp_millis is not None:
        members = members | {"Timestamp": cbor2.CBORTag(_TIMESTAMP_TAG, timestamp_millis)}
    return cbor2.dumps(members, indefinite_containers=True)
