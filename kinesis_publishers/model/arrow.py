"""Turns the columns of a :class:`~kinesis_publishers.model.records.RecordBatch` into Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from kinesis_publishers.model.records import RecordBatch

__all__ = ["ARROW_SCHEMA", "to_arrow"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")

ARROW_SCHEMA = pa.schema(
    [
        pa.field("data", pa.binary()),
        pa.field("stream_name", pa.string()),
        pa.field("shard_id", pa.string()),
        pa.field("sequence_number", pa.string()),
        pa.field("partition_key", pa.string()),
        pa.field("approximate_arrival_timestamp", _TIMESTAMP),
    ]
)


def to_arrow(batch: RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` as one Arrow record batch of :data:`ARROW_SCHEMA`."""
    count = len(batch)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(batch.payloads, pa.binary()),
            pa.repeat(pa.scalar(batch.shard.stream_name), count),
            pa.repeat(pa.scalar(batch.shard.shard_id), count),
            pa.array(batch.sequence_numbers, pa.string()),
            pa.array(batch.partition_keys, pa.string()),
            _timestamps(batch.arrival_epoch_seconds),
        ],
        schema=ARROW_SCHEMA,
    )


def _timestamps(epoch_seconds: object) -> pa.Array:
    seconds = pa.array(epoch_seconds, pa.float64())
    whole = pc.trunc(seconds)
    micros = pc.round(pc.multiply(pc.subtract(seconds, whole), 1e6), round_mode="half_to_even")
    total = pc.add(pc.multiply(pc.cast(whole, pa.int64()), 1_000_000), pc.cast(micros, pa.int64()))
    return pc.cast(total, _TIMESTAMP)
