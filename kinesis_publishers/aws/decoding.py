"""Decodes GetRecords answers and events straight into columns.

botocore's own parser walks the service model for every field of every record and passes each
timestamp to dateutil, which costs forty times as much as the transport. This decoder knows only the
shapes that matter. A hypothesis test compares it with botocore's parser, field by field.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
import pybase64
from botocore.utils import parse_timestamp

from kinesis_publishers.aws import cbor
from kinesis_publishers.aws.errors import complete_answer
from kinesis_publishers.model import ChildShard, HashRange, RecordPage
from kinesis_publishers.model.native import NativeColumns, PackedColumn, native

_T = TypeVar("_T")
_CALENDAR_END = 253_402_300_800  # the year 10,000 in epoch seconds


def decode_get_records(
    body: bytes, *, is_cbor: bool = False, is_packed: bool = False
) -> RecordPage:
    """Decode the body of a GetRecords answer: JSON (``application/x-amz-json-1.1``), or CBOR.

    A full page of 10 MB takes about 20 ms of one core, or 4 ms in native code: it is decoded at
    once in the event loop, because slices would only add cost. ``is_packed`` allows columns in the
    buffers of Arrow arrays.

    Raises:
        MalformedResponseError: the body is not what the service model describes; nothing of it is
            returned.
    """
    if (found := decode_natively(body, is_cbor=is_cbor, is_packed=is_packed)) is not None:
        return found[0]
    with complete_answer("GetRecords", f"{len(body)} bytes"):
        answer, payloads = _parse_cbor(body) if is_cbor else parse_records(body)
        # Its memory serves what is decoded next.
        del body
        iterator = _iterator(answer.get("NextShardIterator"))
        return decode_page(answer, payloads, iterator, ticks_per_second=1000 if is_cbor else 1)


def decode_natively(
    body: bytes, *, is_cbor: bool, is_packed: bool
) -> tuple[RecordPage, str | None] | None:
    """Return a page and its continuation, or ``None`` for this module to decode the body."""
    functions = native()
    found = None if functions is None else functions.columns(body, is_cbor, is_packed)
    if found is None:
        return None
    columns = NativeColumns(*found)
    payloads, keys, numbers = columns.payloads, columns.partition_keys, columns.sequence_numbers
    if is_packed:
        payloads = PackedColumn(payloads, is_text=False, has_aggregates=columns.has_aggregates)
        keys = PackedColumn(keys, is_text=True)
        numbers = PackedColumn(numbers, is_text=True, is_ascending=columns.is_ascending)
    page = RecordPage(
        payloads=payloads,
        partition_keys=keys,
        sequence_numbers=numbers,
        arrival_epoch_seconds=columns.arrival_epoch_seconds,
        encryption_types=columns.encryption_types,
        next_shard_iterator=columns.next_shard_iterator,
        millis_behind_latest=columns.millis_behind_latest,
    )
    return page, columns.continuation


def parse_records(body: bytes) -> tuple[dict[str, Any], list[bytes] | None]:
    """Return the JSON object, and the payloads of its records if they were cut out."""
    cut = parse_without_payloads(body) if has_large_payloads(body) else None
    return cut or (orjson.loads(body), None)


def _parse_cbor(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    answer = cbor.loads(body)
    payloads = [record["Data"] for record in answer["Records"] or ()]
    return answer, _all_are(bytes, payloads, "a payload")


def decode_page(
    answer: dict[str, Any],
    payloads: list[bytes] | None,
    next_shard_iterator: str | None,
    *,
    ticks_per_second: int = 1,
) -> RecordPage:
    """Return the columns of what :func:`parse_records` has parsed, whose times count ticks."""
    records = answer["Records"] or ()
    if payloads is None:
        decode = pybase64.b64decode
        payloads = [decode(record.pop("Data"), None, True) for record in records]
    return RecordPage(
        payloads=payloads,
        partition_keys=_texts([record.get("PartitionKey") for record in records], "partition key"),
        sequence_numbers=_decimals([record["SequenceNumber"] for record in records]),
        arrival_epoch_seconds=_epoch_seconds(
            [record["ApproximateArrivalTimestamp"] for record in records], ticks_per_second
        ),
        encryption_types=_optional(
            _texts([record.get("EncryptionType") for record in records], "encryption type")
        ),
        next_shard_iterator=next_shard_iterator,
        millis_behind_latest=_millis(answer.get("MillisBehindLatest")),
        child_shards=tuple(_child_shard(child) for child in answer.get("ChildShards") or ()),
    )


def _all_are(kind: type[_T], values: list[Any], name: str) -> list[_T]:
    if values and set(map(type, values)) != {kind}:
        raise TypeError(f"a record has {name} that is not of the type {kind.__name__}")
    return values


def _decimals(values: list[Any]) -> Sequence[str]:
    if values:
        # bytes.isdigit() knows ASCII only, and takes a tenth of the time of str.isdigit().
        digits = "".join(values).encode()
        if not (digits.isdigit() and all(values)):
            raise ValueError("a record has a sequence number that is not a decimal number")
    return values


def _epoch_seconds(values: list[Any], ticks_per_second: int) -> Sequence[float]:
    kinds = set(map(type, values))
    if not kinds <= ({float, int, str} if ticks_per_second == 1 else {float, int}):
        raise TypeError("a record has an arrival time that is neither a number nor a string")
    if str in kinds:
        # The protocol allows ISO 8601 and RFC 822 as well; Kinesis was never seen to send them.
        seconds = [parse_timestamp(value).timestamp() for value in values]
    elif ticks_per_second == 1:
        seconds = values if kinds <= {float} else [float(value) for value in values]
    else:
        seconds = [value / ticks_per_second for value in values]
    # The sum is for NaN, which is in CBOR, and neither the least nor the greatest.
    if seconds and not (min(seconds) >= 0 and max(seconds) < _CALENDAR_END and sum(seconds) >= 0):
        raise ValueError("a record has an arrival time beyond any calendar")
    return seconds


def _texts(values: list[Any], name: str) -> list[str | None]:
    if not set(map(type, values)) <= {str, type(None)}:
        raise TypeError(f"a record has a value as {name} that is not a string")
    return values


def _optional(values: list[str | None]) -> Sequence[str | None] | None:
    return None if values.count(None) == len(values) else values


def _iterator(value: Any) -> str | None:
    # Taking an empty one for the end of the shard would lose what follows.
    if value is not None and not (isinstance(value, str) and value):
        raise TypeError("the next shard iterator is not a string")
    return value


def _millis(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value.bit_length() > 63):
        raise TypeError("the lag is not a whole number of 64 bits")
    return value


def _child_shard(child: dict[str, Any]) -> ChildShard:
    parents, hash_range = child["ParentShards"], child["HashKeyRange"]
    first, last = hash_range["StartingHashKey"], hash_range["EndingHashKey"]
    if not all(isinstance(text, str) for text in (child["ShardId"], first, last, *parents)):
        raise TypeError("a child shard has an id or a hash key that is not a string")
    HashRange.between(first, last)
    return ChildShard(
        shard_id=child["ShardId"],
        parent_shard_ids=tuple(parents),
        starting_hash_key=first,
        ending_hash_key=last,
    )


_KEY = b'"Data":"'
# Cutting costs per record, parsing per byte: they cost the same at about 400 bytes of base64.
_WORTH_CUTTING = 512
# Random, so that no answer can contain it.
_MARKER = secrets.token_hex(8)


def has_large_payloads(body: bytes) -> bool:
    """Return whether cutting is likely to pay, judged by the first record."""
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
