"""The schema of the source, for Spark and in Arrow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import frozen

from kinesis_publishers.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kinesis_publishers import RecordBatch
    from kinesis_publishers_spark.options import SparkConfig

#: The columns that every query has, in Spark's DDL.
SPARK_SCHEMA = (
    "data binary, streamName string, shardId string, sequenceNumber string, partitionKey string, "
    "approximateArrivalTimestamp timestamp_ltz"
)
# No column may depend on when or how a record was read: a replay gives the same rows.
_SPARK_METADATA = (
    "subSequenceNumber bigint, explicitHashKey string, encryptionType string, recordId string"
)
_SPARK_MARKER = "batchMarker string"

_ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "bigint": pa.int64(),
    # Not "timestamp", which spark.sql.timestampType may turn into a type without a time zone.
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
}


@cache
def _in_arrow(columns: str) -> pa.Schema:
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([pa.field(name, _ARROW_TYPES[kind]) for name, kind in pairs])


@frozen
class Columns:
    """The columns of a query.

    Attributes:
        metadata: whether there are also ``subSequenceNumber`` and ``explicitHashKey`` of a record
            inside an aggregate, null for a plain one, ``encryptionType``, which is ``KMS`` or
            ``NONE``, and ``recordId``, the ``id`` of a :class:`~kinesis_publishers.Record`.
        marker: whether there is also ``batchMarker``: the mark of the sink, and for any other
            record its identity.
    """

    metadata: bool = False
    marker: bool = False

    @classmethod
    def of(cls, config: SparkConfig) -> Columns:
        """Return the columns that are configured."""
        return cls(config.include_metadata, config.include_batch_marker)

    @property
    def ddl(self) -> str:
        """The columns in Spark's DDL."""
        more = [_SPARK_METADATA] * self.metadata + [_SPARK_MARKER] * self.marker
        return ", ".join([SPARK_SCHEMA, *more])

    @property
    def arrow(self) -> pa.Schema:
        """The columns in Arrow; Spark compares the yielded batches literally with its own."""
        return _in_arrow(self.ddl)


USUAL_COLUMNS = Columns()
ARROW_SCHEMA = USUAL_COLUMNS.arrow


def check_schema(schema: StructType, own: Columns) -> None:
    """Check that ``schema``, which a user may have given, is that of the source.

    Raises:
        InvalidOptionError: names the columns of the source.
    """
    # As Spark shows it.
    columns = own.ddl.replace("_ltz", "")
    asked = ", ".join(
        f"{one.name} {one.dataType.simpleString()}{'' if one.nullable else ' not null'}"
        for one in schema
    )
    # Without columns Spark refuses the rows itself.
    if asked and asked != columns:
        more = "" if own.metadata else f" (and {_SPARK_METADATA} with includeMetadata = true)"
        raise InvalidOptionError(
            f"schema({asked!r}): the columns of this source are fixed: {columns}{more}. Remove "
            "schema(...), and use select(...) and cast(...) on the DataFrame"
        )


def to_spark_arrow(batch: RecordBatch, columns: Columns = USUAL_COLUMNS) -> pa.RecordBatch:
    """Return the records of ``batch`` as rows of ``columns``."""
    *values, sub_sequence_numbers = batch.to_arrow().columns
    more: list[pa.Array] = []
    if columns.metadata or columns.marker:
        ids = _ids([*values[1:4], sub_sequence_numbers])
    if columns.metadata:
        more += [sub_sequence_numbers, *_metadata_columns(batch), ids]
    if columns.marker:
        more.append(_markers(batch, ids))
    return pa.RecordBatch.from_arrays(values + more, schema=columns.arrow)


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


def _ids(places: list[pa.Array]) -> pa.Array:
    """Return the ``id`` of each record.

    Args:
        places: stream names, shard ids, sequence numbers and sub-sequence numbers.
    """
    import pyarrow.compute as pc

    places[-1] = pc.coalesce(places[-1].cast(pa.string()), pa.scalar(""))
    return pc.binary_join_element_wise(*places, "/")


def _markers(batch: RecordBatch, ids: pa.Array) -> pa.Array:
    """Return the identity of each record, which records that were written twice have in common."""
    import pyarrow.compute as pc

    return ids if batch.markers is None else pc.coalesce(pa.array(batch.markers, pa.string()), ids)
