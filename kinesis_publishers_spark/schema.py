"""The schema of the source: what Spark sees, and the same in Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kinesis_publishers import RecordBatch

__all__ = ["ARROW_SCHEMA", "SPARK_SCHEMA", "to_spark_arrow"]

#: The columns, in Spark's DDL.
SPARK_SCHEMA = (
    "data binary, streamName string, shardId string, sequenceNumber string, partitionKey string, "
    "approximateArrivalTimestamp timestamp"
)

# Spark compares the schema of what a Python source yields with its own to the letter.
ARROW_SCHEMA = pa.schema(
    [
        pa.field("data", pa.binary()),
        pa.field("streamName", pa.string()),
        pa.field("shardId", pa.string()),
        pa.field("sequenceNumber", pa.string()),
        pa.field("partitionKey", pa.string()),
        pa.field("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)


def to_spark_arrow(batch: RecordBatch) -> pa.RecordBatch:
    """Return the records of ``batch`` as rows of :data:`ARROW_SCHEMA`."""
    return pa.RecordBatch.from_arrays(batch.to_arrow().columns, schema=ARROW_SCHEMA)
