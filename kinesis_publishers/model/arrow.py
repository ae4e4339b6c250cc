"""Turns the columns of records into Arrow.

Arrays are made of buffers: ``pa.array`` and ``pa.scalar`` import pandas where it is installed,
which takes half a second of CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_publishers.model.native import PackedColumn, native
from kinesis_publishers.model.shards import Shard

_TIMESTAMP = pa.timestamp("us", tz="UTC")

# The kernels themselves: most batches are small, and pyarrow's wrappers, which look up a kernel and
# make its options with each call, cost more than the work.
_trunc, _subtract, _multiply, _add, _round, _cast, _sum_up = (
    pc.get_function(name).call
    for name in ("trunc", "subtract", "multiply", "add", "round", "cast", "cumulative_sum_checked")
)
_FROM_ZERO = pc.CumulativeOptions()
_TO_NEAREST_EVEN = pc.RoundOptions(0, "half_to_even")
# The numbers are whole: no check is needed.
_TO_INTEGERS = pc.CastOptions.unsafe(pa.int64())


def _floats(values: Sequence[float]) -> pa.Array:
    buffer = pa.py_buffer(pack(f"{len(values)}d", *values))
    return pa.Array.from_buffers(pa.float64(), len(values), [None, buffer])


_MILLION = _floats([1e6])[0]
_MILLION_INTEGER = _cast([_MILLION], _TO_INTEGERS)

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
    partition_keys: Sequence[str | None],
    arrival_epoch_seconds: Sequence[float],
    sub_sequence_numbers: Sequence[int | None] | None,
) -> pa.RecordBatch:
    """Return columns of equal length as one Arrow record batch of :data:`ARROW_SCHEMA`."""
    count, subs = len(payloads), sub_sequence_numbers
    return pa.RecordBatch.from_arrays(
        [
            _payloads(payloads),
            pa.repeat(_strings([shard.stream_name])[0], count),
            pa.repeat(_strings([shard.shard_id])[0], count),
            _strings(sequence_numbers),
            _strings(partition_keys),
            _timestamps(arrival_epoch_seconds),
            pa.nulls(count, pa.int64()) if subs is None else pa.array(subs, pa.int64()),
        ],
        schema=ARROW_SCHEMA,
    )


def _payloads(payloads: Sequence[bytes]) -> pa.Array:
    found = _native(pa.binary(), payloads)
    return _joined(pa.binary(), payloads, b"".join(payloads)) if found is None else found


def _native(kind: pa.DataType, values: Sequence[Any]) -> pa.Array | None:
    found, start = None, 0
    if isinstance(values, PackedColumn):
        found, start = values.buffers, values.start
    elif (functions := native()) is not None:
        found = functions.joined(values)
    if found is None:
        return None
    offsets, data, bitmap = found
    buffers = [None if one is None else pa.py_buffer(one) for one in (bitmap, offsets, data)]
    return pa.Array.from_buffers(kind, len(values), buffers, offset=start)


def _joined(kind: pa.DataType, values: Sequence[bytes] | Sequence[str], data: bytes) -> pa.Array:
    count = len(values)
    sizes = pa.py_buffer(pack(f"{count + 1}i", 0, *map(len, values)))
    offsets = _sum_up([pa.Array.from_buffers(pa.int32(), count + 1, [None, sizes])], _FROM_ZERO)
    return pa.Array.from_buffers(kind, count, [None, offsets.buffers()[1], pa.py_buffer(data)])


def _strings(values: Sequence[Any]) -> pa.Array:
    if (found := _native(pa.string(), values)) is not None:
        return found
    try:
        text = "".join(values)
    except TypeError:  # One is missing.
        return pa.array(values, pa.string())
    if text.isascii():
        return _joined(pa.string(), values, text.encode())
    encoded = [one.encode() for one in values]
    return _joined(pa.string(), encoded, b"".join(encoded))


def _timestamps(epoch_seconds: Sequence[float]) -> pa.Array:
    if (functions := native()) is not None:
        micros = pa.py_buffer(functions.microseconds(epoch_seconds))
        return pa.Array.from_buffers(_TIMESTAMP, len(epoch_seconds), [None, micros])
    seconds = _floats(epoch_seconds)
    whole = _trunc([seconds])
    micros = _round([_multiply([_subtract([seconds, whole]), _MILLION])], _TO_NEAREST_EVEN)
    total = _add(
        [_multiply([_cast([whole], _TO_INTEGERS), _MILLION_INTEGER]), _cast([micros], _TO_INTEGERS)]
    )
    return total.view(_TIMESTAMP)
