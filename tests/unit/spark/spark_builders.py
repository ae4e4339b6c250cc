"""Small offsets, chunks and progress for the tests of the Spark source."""

from __future__ import annotations

import pickle
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa

from kinesis_publishers import (
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
)
from kinesis_publishers_spark.chunks import Chunk
from kinesis_publishers_spark.offsets import Offset, ShardOffset
from kinesis_publishers_spark.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kinesis_publishers_spark.partitions import RangePartition
    from kinesis_publishers_spark.stream_reader import KinesisStreamReader

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
IDENTITY = StreamIdentity(name="orders", arn=ARN, created_at=NOON - timedelta(days=9))
MIB = 1024 * 1024


@contextmanager
def starts_no_thread() -> Iterator[None]:
    """Check that the calling thread starts none; others may, at any time."""
    caller, started = threading.current_thread(), []
    start = threading.Thread.start

    def recording_start(thread: threading.Thread) -> None:
        if threading.current_thread() is caller:
            started.append(thread.name)
        start(thread)

    with patch.object(threading.Thread, "start", recording_start):
        yield
    assert started == []


def shard(number: int) -> ShardKey:
    return ShardKey(ARN, f"shardId-{number:012d}")


def arrival(number: float) -> datetime:
    """Return when record ``number`` arrived: one a second, from noon on."""
    return NOON + timedelta(seconds=number)


def after(number: int, *, ended: bool = False) -> ShardProgress:
    """Return the progress of a shard whose last processed record is ``number``."""
    return ShardProgress(
        position=StartingPosition.after(SequenceNumber(str(number))),
        as_of=arrival(number),
        is_ended=ended,
    )


def rows_of(key: ShardKey, numbers: Sequence[int], payloads: Sequence[bytes]) -> pa.RecordBatch:
    columns = [
        payloads,
        [key.stream_name] * len(numbers),
        [key.shard_id] * len(numbers),
        [str(number) for number in numbers],
        [f"key-{number}" for number in numbers],
        [arrival(number) for number in numbers],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def chunk(
    key: ShardKey,
    numbers: Sequence[int],
    payloads: Sequence[bytes] | None = None,
    *,
    ancestors: Iterable[ShardKey] = (),
) -> Chunk:
    """Return records with the given sequence numbers, of one byte each unless told otherwise."""
    payloads = payloads or [b"x"] * len(numbers)
    return Chunk(
        shard=key,
        rows=rows_of(key, numbers, payloads),
        progress=after(numbers[-1]),
        payload_bytes=sum(map(len, payloads)),
        ancestors=frozenset(ancestors),
    )


def offset(
    shards: Mapping[ShardKey, ShardProgress], *, first: Mapping[ShardKey, int] | None = None
) -> Offset:
    firsts = {key: SequenceNumber(str(number)) for key, number in (first or {}).items()}
    return Offset(
        streams={ARN: IDENTITY},
        shards={
            key: ShardOffset(progress=one, first=firsts.get(key)) for key, one in shards.items()
        },
    )


def tasks_between(reader: KinesisStreamReader, start: Offset, end: Offset) -> list[RangePartition]:
    """Return the partitions of a replay as tasks have them, with the reader that travels there."""
    tasks = pickle.loads(pickle.dumps(reader))
    return [tasks.joined(one) for one in reader.partitions(start.to_json(), end.to_json())]


def numbers_in(batches: Iterable[pa.RecordBatch]) -> list[tuple[str, int]]:
    """Return shard id and sequence number of every row, in order."""
    return [
        (row["shardId"], int(row["sequenceNumber"])) for rows in batches for row in rows.to_pylist()
    ]
