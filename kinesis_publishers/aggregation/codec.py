"""The bytes of an aggregate: four magic bytes, a protobuf message, and the MD5 of that message.

Source: https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from attrs import frozen

from kinesis_publishers.errors import AggregationError
from kinesis_publishers.model.native import PackedColumn, native
from kinesis_publishers.model.records import AGGREGATE_MAGIC
from kinesis_publishers.model.shards import LONGEST_HASH_KEY
from kinesis_publishers.model.user_records import LONGEST_MARKER, LONGEST_PARTITION_KEY

DIGEST_BYTES: Final = 16
# The outer key of a KPL aggregate, whose explicit hash key selects the shard
# (`KinesisRecord::partition_key` in its source). AWS's modules use the key of the first record.
KPL_PARTITION_KEY: Final = "a"
# Tags of a record; other readers ignore them. The marker of a record is the value of the latest
# batch tag, a slash, and the value of its own marker tag.
BATCH_TAG: Final = "kinesis-publishers.batch"
MARKER_TAG: Final = "m"
# The record is already in the stream. Readers that leave out single records have delivered it; the
# KCL has left out its whole aggregate.
COPY_TAG: Final = "kinesis-publishers.copy"
_NOTED: Final = b"kinesis-publishers."
# The smallest bytes that sort after everything that begins with the magic bytes.
_AFTER_MAGIC: Final = b"\xf3\x89\x9a\xc3"

_PACKAGE: Final = "kinesis_publishers.aggregation"
# The fields of each message, numbered from 1: name, type and label.
_MESSAGES: Final = {
    "Tag": (("key", "STRING", "REQUIRED"), ("value", "STRING", "OPTIONAL")),
    "Record": (
        ("partition_key_index", "UINT64", "REQUIRED"),
        ("explicit_hash_key_index", "UINT64", "OPTIONAL"),
        ("data", "BYTES", "REQUIRED"),
        ("tags", "Tag", "REPEATED"),
    ),
    "AggregatedRecord": (
        ("partition_key_table", "STRING", "REPEATED"),
        ("explicit_hash_key_table", "STRING", "REPEATED"),
        ("records", "Record", "REPEATED"),
    ),
}


@cache
def aggregate_class() -> Any:
    """Return the class of ``AggregatedRecord``.

    The messages are described here because generated code works with only one range of protobuf
    versions. A separate pool keeps them apart from the same messages in other libraries. Protobuf
    is loaded with the first aggregate: most streams have none.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="kinesis_publishers/aggregate.proto", package=_PACKAGE, syntax="proto2"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (name, kind, label) in enumerate(fields, 1):
            added = message.field.add(name=name, number=number)
            added.label = kinds.Label.Value(f"LABEL_{label}")
            if kind in _MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName(f"{_PACKAGE}.AggregatedRecord")
    return message_factory.GetMessageClass(found)


@frozen(kw_only=True, eq=False)
class UserRecordColumns:
    """The records inside one aggregate, as columns of equal length.

    Attributes:
        explicit_hash_keys: the explicit hash key of each record, ``None`` where it has none.
        markers: per record, or ``None`` if no record has one.
        copies: the indices of records that an earlier aggregate of the shard also contains.
    """

    payloads: Sequence[bytes]
    partition_keys: Sequence[str]
    explicit_hash_keys: Sequence[str | None]
    markers: Sequence[str | None] | None = None
    copies: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.payloads)


def has_aggregates(payloads: Sequence[bytes]) -> bool:
    """Return whether any of ``payloads`` begins like an aggregate.

    This runs for every page, and most pages have none. Comparing bytes stops at the first
    difference and takes half the time of ``startswith``. Text sorts below the magic bytes, and so
    do 95 % of random payloads.
    """
    if isinstance(payloads, PackedColumn):
        return payloads.has_aggregates and payloads.any_begins_with(AGGREGATE_MAGIC)
    candidates = [one for one in payloads if one >= AGGREGATE_MAGIC]
    return any(one < _AFTER_MAGIC for one in candidates)


def decode_aggregate(data: bytes) -> UserRecordColumns | None:
    """Return the records in ``data``, in order.

    Returns:
        ``None`` if ``data`` is an ordinary record: it begins with other bytes, its checksum is
        wrong, it does not parse, or one of its keys is longer than Kinesis allows.

    Raises:
        AggregationError: ``data`` is an aggregate, and a record refers to a partition key or an
            explicit hash key that the aggregate does not contain.
    """
    serialized = _message_in(data)
    if serialized is None:
        return None
    functions = native()
    # It leaves records with tags, among other things, to what follows.
    found = None if functions is None else functions.unpack(serialized)
    if found is not None:
        payloads, partition_keys, explicit = found
        return UserRecordColumns(
            payloads=payloads,
            partition_keys=partition_keys,
            explicit_hash_keys=explicit or [None] * len(payloads),
        )
    message = _parsed(serialized)
    if message is None:
        return None
    keys, hash_keys = list(message.partition_key_table), list(message.explicit_hash_key_table)
    if not (_are_texts(keys, LONGEST_PARTITION_KEY) and _are_texts(hash_keys, LONGEST_HASH_KEY)):
        return None
    records = message.records
    try:
        return UserRecordColumns(
            payloads=[record.data for record in records],
            partition_keys=[keys[record.partition_key_index] for record in records],
            explicit_hash_keys=[
                hash_keys[record.explicit_hash_key_index]
                if record.HasField("explicit_hash_key_index")
                else None
                for record in records
            ],
            **(_notes_in(records) if _NOTED in data else {}),
        )
    except IndexError:
        raise AggregationError(
            "a sub-record names a partition key or an explicit hash key that the aggregate does "
            "not have: its producer packed it wrongly"
        ) from None


def _notes_in(records: Any) -> dict[str, Any]:
    markers: list[str | None] = []
    copies = set()
    batch = ""
    for index, record in enumerate(records):
        tags = {tag.key: tag.value for tag in record.tags}
        batch = tags.get(BATCH_TAG, batch)
        rest = tags.get(MARKER_TAG) if batch else None
        # The same bound as for keys: every record would repeat half a megabyte.
        is_marker = rest is not None and len(batch) + len(rest) < LONGEST_MARKER
        markers.append(f"{batch}/{rest}" if is_marker else None)
        if COPY_TAG in tags:
            copies.add(index)
    has_markers = any(one is not None for one in markers)
    return {"markers": markers if has_markers else None, "copies": frozenset(copies)}


def _message_in(data: bytes) -> bytes | None:
    """Return the serialized message in ``data``; ``None`` if there is none."""
    # The KCL, too, treats magic bytes and a digest without a message as an ordinary record.
    if not data.startswith(AGGREGATE_MAGIC) or len(data) <= len(AGGREGATE_MAGIC) + DIGEST_BYTES:
        return None
    message, digest = data[len(AGGREGATE_MAGIC) : -DIGEST_BYTES], data[-DIGEST_BYTES:]
    return message if _digest(message) == digest else None


def _parsed(message: bytes) -> Any | None:
    """Return the ``AggregatedRecord`` in ``message``; ``None`` if there is none."""
    from google.protobuf.message import DecodeError

    try:
        parsed = aggregate_class().FromString(message)
    except DecodeError:
        return None
    # The parser itself accepts a message whose required fields are missing.
    return parsed if parsed.IsInitialized() else None


def _are_texts(keys: Sequence[object], longest: int) -> bool:
    # A key that is not UTF-8 comes as bytes. Columns repeat a key for every record that shares it:
    # without a bound, half a megabyte becomes gigabytes.
    return all(type(key) is str and len(key) <= longest for key in keys)


def sealed(message: bytes) -> bytes:
    return b"".join((AGGREGATE_MAGIC, message, _digest(message)))


def _digest(message: bytes) -> bytes:
    # A checksum without a security purpose, which is allowed where FIPS forbids MD5.
    return hashlib.md5(message, usedforsecurity=False).digest()
