"""The bytes of an aggregate: four magic bytes, a protobuf message, and the MD5 of that message.

Source: https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.model.records import AGGREGATE_MAGIC as MAGIC

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

__all__ = ["DIGEST_BYTES", "KPL_PARTITION_KEY", "MAGIC", "aggregate_class", "pack", "unpack"]

DIGEST_BYTES: Final = 16
# The outer key of an aggregate of the KPL, which an explicit hash key sends to the right shard
# (`KinesisRecord::partition_key` in its source). AWS's modules take the key of the first record.
KPL_PARTITION_KEY: Final = "a"

_PACKAGE = "kinesis_publishers.aggregation"


@cache
def aggregate_class() -> Any:
    """Return the class of ``AggregatedRecord``.

    Described here and not by generated code, which works with one range of protobuf's versions; in
    a pool of its own, where it does not meet the same messages of other libraries. Protobuf is
    loaded with the first aggregate: most streams have none.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    optional, required = kinds.LABEL_OPTIONAL, kinds.LABEL_REQUIRED
    repeated = kinds.LABEL_REPEATED
    file = descriptor_pb2.FileDescriptorProto(
        name="kinesis_publishers/aggregate.proto", package=_PACKAGE, syntax="proto2"
    )
    tag = file.message_type.add(name="Tag")
    _add_field(tag, 1, "key", kinds.TYPE_STRING, required)
    _add_field(tag, 2, "value", kinds.TYPE_STRING, optional)
    record = file.message_type.add(name="Record")
    _add_field(record, 1, "partition_key_index", kinds.TYPE_UINT64, required)
    _add_field(record, 2, "explicit_hash_key_index", kinds.TYPE_UINT64, optional)
    _add_field(record, 3, "data", kinds.TYPE_BYTES, required)
    _add_field(record, 4, "tags", kinds.TYPE_MESSAGE, repeated, "Tag")
    aggregate = file.message_type.add(name="AggregatedRecord")
    _add_field(aggregate, 1, "partition_key_table", kinds.TYPE_STRING, repeated)
    _add_field(aggregate, 2, "explicit_hash_key_table", kinds.TYPE_STRING, repeated)
    _add_field(aggregate, 3, "records", kinds.TYPE_MESSAGE, repeated, "Record")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName(f"{_PACKAGE}.AggregatedRecord")
    return message_factory.GetMessageClass(found)


def _add_field(
    message: DescriptorProto,
    number: int,
    name: str,
    kind: FieldDescriptorProto.Type.ValueType,
    label: FieldDescriptorProto.Label.ValueType,
    of: str | None = None,
) -> None:
    field = message.field.add(name=name, number=number, type=kind, label=label)
    if of is not None:
        field.type_name = f".{_PACKAGE}.{of}"


def unpack(data: bytes) -> Any | None:
    """Return the ``AggregatedRecord`` message in ``data``; ``None`` if these bytes are not one."""
    # Without a single byte of a message it is a record of just these bytes, to the KCL as well.
    if not data.startswith(MAGIC) or len(data) <= len(MAGIC) + DIGEST_BYTES:
        return None
    message, digest = data[len(MAGIC) : -DIGEST_BYTES], data[-DIGEST_BYTES:]
    if _digest(message) != digest:
        return None
    from google.protobuf.message import DecodeError

    try:
        parsed = aggregate_class().FromString(message)
    except DecodeError:
        return None
    # The parser itself accepts a message whose required fields are missing.
    return parsed if parsed.IsInitialized() else None


def pack(message: Any) -> bytes:
    """Return the aggregate that holds ``message``."""
    serialized: bytes = message.SerializeToString()
    return MAGIC + serialized + _digest(serialized)


def _digest(message: bytes) -> bytes:
    # It tells apart, and protects from nothing: allowed where FIPS forbids MD5.
    return hashlib.md5(message, usedforsecurity=False).digest()
