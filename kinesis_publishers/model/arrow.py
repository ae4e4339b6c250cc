"""Turns the columns of records into Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.model.shards import Shard

__all__ = ["ARROW_SCHEMA", "to_arrow"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")

# The kernels themselves: most batches are small, and pyarrow's wrappers, which look up a kernel and
# make its options with each call, cost more than the work.
_trunc, _subtract, _multiply, _add, _round, _cast = (
    pc.get_function(name).call for name in ("trunc", "subtract", "multiply", "add", "round", "cast")
)
_TO_NEAREST_EVEN = pc.RoundOptions(0, "half_to_even")
# The numbers are whole: no check is needed.
_TO_INTEGERS = pc.CastOptions.unsafe(pa.int64())
_MILLION, _MILLION_INTEGER = pa.scalar(1e6), pa.scalar(1_000_000)

ARROW_SCHEMA = pa.schema(
    [
        pa.field("data", pa.binary()),
        pa.field("stream_name", pa.string()),
        pa.field("shard_id", pa.string()),
        pa.field("sequence_number", pa.string()),
        pa.field("partition_key", pa.string()),
        pa.field("approximate_arrival_timestamp", _TIMESTAMP),
        pa.field("sub_sequence_number", pa.int64()),
    ]
)


def to_arrow(
    shard: Shard,
    payloads: Sequence[bytes],
    sequence_numbers: Sequence[str],
    partition_keys: Sequence[str],
    arrival_epoch_seconds: Sequence[float],
    sub_sequence_numbers: Sequence[int | None] | None,
) -> pa.RecordBatch:
    """Return columns of equal length as one Arrow record batch of :data:`ARROW_SCHEMA`."""
    count, subs = len(payloads), sub_sequence_numbers
    return pa.RecordBatch.from_arrays(
        [
            pa.array(payloads, pa.binary()),
            pa.repeat(pa.scalar(shard.stream_name), count),
            pa.repeat(pa.scalar(shard.shard_id), count),
            pa.array(sequence_numbers, pa.string()),
            pa.array(partition_keys, pa.string()),
            _timestamps(arrival_epoch_seconds),
            pa.nulls(count, pa.int64()) if subs is None else pa.array(subs, pa.int64()),
        ],
        schema=ARROW_SCHEMA,
    )


def _timestamps(epoch_seconds: Sequence[float]) -> pa.Array:
    seconds = pa.array(epoch_seconds, pa.float64())
    whole = _trunc([seconds])
    micros = _round([_multiply([_subtract([seconds, whole]), _MILLION])], _TO_NEAREST_EVEN)
    total = _add(
        [_multiply([_cast([whole], _TO_INTEGERS), _MILLION_INTEGER]), _cast([micros], _TO_INTEGERS)]
    )
    return total.view(_TIMESTAMP)
