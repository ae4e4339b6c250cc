"""Kinesis' own form of CBOR (``application/x-amz-cbor-1.1``).

It differs from JSON in two ways: payloads are bytes, and a timestamp has the tag 1 and a whole
number of milliseconds, where RFC 8949 has seconds.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Callable
from typing import Any

import cbor2

CONTENT_TYPE = "application/x-amz-cbor-1.1"
_TIMESTAMP_TAG = 1


# This kind of decoder costs half. For the other kind, cbor2 looks up an attribute that does not
# exist, for which Python before 3.13 raises an error each time.
@cbor2.shareable_decoder(name="timestamp")
def _timestamp(_: bool) -> tuple[None, Callable[[Any], Any]]:
    return None, operator.pos


def loads(body: bytes) -> Any:
    """Return the decoded ``body``; a timestamp becomes its number of milliseconds.

    Raises:
        ValueError: it is not exactly one item of CBOR, or a map has a key twice.
    """
    stream = io.BytesIO(body)
    decoder = cbor2.CBORDecoder(
        stream,
        # Reads the body in one piece, without a copy.
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


def dumps(members: dict[str, Any]) -> bytes:
    """Return a request, whose ``Timestamp`` is in seconds if it has one.

    Its map has indefinite length, as AWS's SDK for Java writes it.
    """
    if "Timestamp" in members:
        millis = round(members["Timestamp"] * 1000)
        members = members | {"Timestamp": cbor2.CBORTag(_TIMESTAMP_TAG, millis)}
    return cbor2.dumps(members, indefinite_containers=True)
