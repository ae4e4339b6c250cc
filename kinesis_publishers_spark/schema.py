"""The schema of the source, for Spark and in Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_publishers.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kinesis_publishers import RecordBatch

#: The columns that every query has, in Spark's DDL.
SPARK_SCHEMA = (
    "data binary, streamName string, shardId string, sequenceNumber string, partitionKey string, "
    "approximateArrivalTimestamp timestamp_ltz"
)
# Nothing here may depend on when or how a record was read: a replay gives the same rows.
_SPARK_METADATA = "subSequenceNumber bigint, explicitHashKey string, encryptionType string"

_ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "bigint": pa.int64(),
    # Not "timestamp", which spark.sql.timestampType may turn into a type without a time zone.
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
}


def _in_arrow(columns: str) -> pa.Schema:
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([pa.field(name, _ARROW_TYPES[kind]) for name, kind in pairs])


# Spark compares the schema of the yielded batches literally with its own.
ARROW_SCHEMA = _in_arrow(SPARK_SCHEMA)
_ARROW_SCHEMA_WITH_METADATA = _in_arrow(f"{SPARK_SCHEMA}, {_SPARK_METADATA}")


def spark_schema(*, include_metadata: bool) -> str:
    """Return the columns in Spark's DDL.

    Args:
        include_metadata: whether the additional columns follow the others: ``subSequenceNumber``
            and ``explicitHashKey`` of a record inside an aggregate, null for a plain one, and
            ``encryptionType``, which is ``KMS`` or ``NONE``.
    """
    return f"{SPARK_SCHEMA}, {_SPARK_METADATA}" if include_metadata else SPARK_SCHEMA


def arrow_schema(*, include_metadata: bool) -> pa.Schema:
    """Return the columns in Arrow; see :func:`spark_schema`."""
    return _ARROW_SCHEMA_WITH_METADATA if include_metadata else ARROW_SCHEMA


def check_schema(schema: StructType, *, include_metadata: bool) -> None:
    """Check that ``schema``, which a user may have given, is that of the source.

    Raises:
        InvalidOptionError: names the columns of the source.
    """
    # As Spark shows it.
    columns = spark_schema(include_metadata=include_metadata).replace("_ltz", "")
    asked = ", ".join(
        f"{one.name} {one.dataType.simpleString()}{'' if one.nullable else ' not null'}"
        for one in schema
    )
    # Without columns Spark refuses the rows itself.
    if asked and asked != columns:
        more = "" if include_metadata else f" (and {_SPARK_METADATA} with includeMetadata = true)"
        raise InvalidOptionError(
            f"schema({asked!r}): the columns of this source are fixed: {columns}{more}. Remove "
            "schema(...), and use select(...) and cast(...) on the DataFrame"
        )


def to_spark_arrow(batch: RecordBatch, *, include_metadata: bool = False) -> pa.RecordBatch:
    """Return the records of ``batch`` as rows of :func:`arrow_schema`."""
    *columns, sub_sequence_numbers = batch.to_arrow().columns
    if include_metadata:
        columns += [sub_sequence_numbers, *_metadata_columns(batch)]
    schema = arrow_schema(include_metadata=include_metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _metadata_columns(batch: RecordBatch) -> list[pa.Array]:
    count, hash_keys = len(batch), batch.explicit_hash_keys
    return [
        pa.nulls(count, pa.string()) if hash_keys is None else pa.array(hash_keys, pa.string()),
        _encryption_types(batch, count),
    ]


def _encryption_types(batch: RecordBatch, count: int) -> pa.Array:
    # AWS does not document when it omits the type, and GetRecords and SubscribeToShard may differ:
    # a row that said "unknown" once and NONE in its replay would not be the same row.
    if batch.encryption_types is None:
        return pa.repeat(pa.scalar("NONE"), count)
    import pyarrow.compute as pc

    return pc.fill_null(pa.array(batch.encryption_types, pa.string()), "NONE")
