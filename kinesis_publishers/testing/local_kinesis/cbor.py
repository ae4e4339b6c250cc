"""CBOR as the SDKs for Java write it: blobs are byte strings, instants tag 1 in milliseconds."""

from __future__ import annotations

from typing import Any

import cbor2
import orjson
import pybase64

__all__ = ["CBOR", "cbor_of_json", "json_of_cbor"]

CBOR = "application/x-amz-cbor-1.1"
_INSTANT = 1


def json_of_cbor(body: bytes) -> bytes:
    """Return a request as JSON.

    Raises:
        ValueError: if it is not CBOR, or nothing that JSON could say.
    """
    try:
        fields = cbor2.loads(body, semantic_decoders={_INSTANT: lambda value, _: value / 1000})
        return orjson.dumps(fields, default=lambda blob: pybase64.b64encode(blob).decode())
    except (cbor2.CBORDecodeError, TypeError) as error:
        raise ValueError(f"not CBOR: {error}") from error


def cbor_of_json(body: bytes) -> bytes:
    """Return an answer as CBOR; one that is empty, or not what the service says, stays as it is."""
    try:
        return cbor2.dumps(_member("", orjson.loads(body)))
    except (TypeError, ValueError):
        return body


def _member(name: str, value: Any) -> object:
    if isinstance(value, dict):
        return {key: _member(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_member(name, item) for item in value]
    if name == "Data":
        return pybase64.b64decode(value)
    if name.endswith("Timestamp"):
        return cbor2.CBORTag(_INSTANT, round(value * 1000))
    return value
