"""Parses a list of records with its payloads cut out first.

Payloads are most of an answer, and base64 is not worth reading as JSON: finding its end is faster
than parsing it, and it is never held as text beside the bytes. What this module cannot prove to be
the same as parsing the whole, it leaves to the caller.
"""

from __future__ import annotations

import secrets
from typing import Any

import orjson
import pybase64

__all__ = ["has_large_payloads", "parse_without_payloads"]

_KEY = b'"Data":"'
# Cutting costs per record, parsing per byte: they cost the same at about 400 bytes of base64.
_WORTH_CUTTING = 512
# No body can name it, since nobody knows it.
_MARKER = secrets.token_hex(8)


def has_large_payloads(body: bytes) -> bool:
    """Say whether cutting is likely to pay, judged by the first record."""
    start = body.find(_KEY)
    return start >= 0 and body.find(b'"', start + len(_KEY)) - start > _WORTH_CUTTING


def parse_without_payloads(body: bytes) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the answer, with nothing of use as ``Data``, and the payloads in their order.

    Returns ``None`` if that might differ from what parsing the whole gives, or if something is
    malformed: only parsing the whole can tell.

    Each cut is where the value of a key ``Data`` stands, or else in something that merely looks so
    (an escaped quote before it). With as many cuts as records, and the marker as the ``Data`` of
    each record, every record has exactly one of them.
    """
    try:
        skeleton, payloads = _cut(body)
        answer = orjson.loads(skeleton)
        values = [record["Data"] for record in answer["Records"]]
    except (ValueError, TypeError, KeyError):
        return None
    if len(values) == len(payloads) == values.count(_MARKER):
        return answer, payloads
    return None


def _cut(body: bytes) -> tuple[bytes, list[bytes]]:
    find, decode, key_length = body.find, pybase64.b64decode, len(_KEY)
    payloads: list[bytes] = []
    rest: list[bytes] = []
    position = 0
    while (found := find(_KEY, position)) >= 0:
        start = found + key_length
        # Strict decoding refuses a backslash, so the first quote is the end.
        end = body.index(b'"', start)
        payloads.append(decode(body[start:end], None, True))
        rest.append(body[position:start])
        position = end
    rest.append(body[position:])
    return _MARKER.encode().join(rest), payloads
