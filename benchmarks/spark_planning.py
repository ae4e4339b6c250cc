"""What planning a micro-batch costs with many shards, without Spark and without a server.

Each step is what the process that Spark keeps on the driver does once per micro-batch.
"""

from __future__ import annotations

import json
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import sequence_number
from benchmarks.canned_server import STREAM_ARN
from kinesis_publishers import (
    RecordBatch,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers_spark.chunks import Chunk, next_offset, pack
from kinesis_publishers_spark.limits import BatchLimit
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import PrefetchedPartition
from kinesis_publishers_spark.schema import to_spark_arrow
from kinesis_publishers_spark.waiting import take

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure", "table"]

_ARN = f"{STREAM_ARN}planning"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_RECORD_BYTES = 1024
_BATCH_RECORDS = 20_000
_PARALLELISM = 2


class _Scene:
    """A stream of which every shard has been read up to ``page`` and has records in the next one.

    A micro-batch has the same number of records, however many shards they come from.
    """

    def __init__(self, shards: int) -> None:
        self._shards = [
            Shard(stream_arn=_ARN, shard_id=f"shardId-{index:012d}") for index in range(shards)
        ]
        self._records = max(1, _BATCH_RECORDS // shards)
        self.batches = [self._batch(index) for index in range(shards)]
        self.start = Offset.of(self._progress(page=0))
        self.known = Offset.of(self._progress(page=1))
        self.chunks = [
            self._chunk(index, to_spark_arrow(batch)) for index, batch in enumerate(self.batches)
        ]

    def fetcher_progress(self) -> dict[str, StreamProgress]:
        return self._progress(page=1)

    def _progress(self, page: int) -> dict[str, StreamProgress]:
        identity = StreamIdentity(name="planning", arn=_ARN, created_at=_NOW)
        shards = {
            shard.shard_id: self._shard_progress(index, page)
            for index, shard in enumerate(self._shards)
        }
        return {_ARN: StreamProgress(identity=identity, shards=shards)}

    def _shard_progress(self, index: int, page: int) -> ShardProgress:
        last = SequenceNumber(sequence_number(index, page, self._records - 1))
        as_of = _NOW + timedelta(seconds=page)
        return ShardProgress(position=StartingPosition.after(last), as_of=as_of)

    def _batch(self, index: int) -> RecordBatch:
        places = range(self._records)
        return RecordBatch(
            shard=self._shards[index],
            requested_at=_NOW,
            payloads=[b"x" * _RECORD_BYTES] * self._records,
            partition_keys=["customer-00000000"] * self._records,
            sequence_numbers=[sequence_number(index, 1, place) for place in places],
            arrival_epoch_seconds=[_NOW.timestamp()] * self._records,
        )

    def _chunk(self, index: int, rows: Any) -> Chunk:
        return Chunk(
            shard=self._shards[index].key,
            rows=rows,
            progress=self._shard_progress(index, page=1),
            payload_bytes=self.batches[index].payload_bytes,
        )


def measure(shard_counts: list[int], repetitions: int) -> list[dict[str, Any]]:
    """Return the milliseconds of CPU time of each step with so many shards: medians."""
    return [_measure_one(shards, repetitions) for shards in shard_counts]


def _measure_one(shards: int, repetitions: int) -> dict[str, Any]:
    scene = _Scene(shards)
    limit = BatchLimit(records=2 * _BATCH_RECORDS, payload_bytes=2**40)
    end = next_offset(scene.start, scene.chunks, [], known=scene.known, begun=scene.start)
    text = json.dumps(end.to_json())
    packed = pack(scene.chunks, _PARALLELISM)
    steps: dict[str, Callable[[], object]] = {
        "to Arrow": lambda: [to_spark_arrow(batch) for batch in scene.batches],
        "known": lambda: Offset.of(scene.fetcher_progress()),
        "take": lambda: take(scene.chunks, limit),
        "next_offset": lambda: next_offset(
            scene.start, scene.chunks, [], known=scene.known, begun=scene.start
        ),
        "to_json": lambda: json.dumps(end.to_json()),
        "from_json": lambda: Offset.from_json(json.loads(text)),
        "pack": lambda: pack(scene.chunks, _PARALLELISM),
        "to IPC": lambda: [PrefetchedPartition.of(rows) for rows in packed],
        "ranges_since": lambda: end.ranges_since(scene.start),
    }
    return {
        "shards": shards,
        "records": sum(map(len, scene.chunks)),
        "milliseconds": {name: _cpu_ms(step, repetitions) for name, step in steps.items()},
    }


def _cpu_ms(step: Callable[[], object], repetitions: int) -> float:
    samples = []
    for _ in range(repetitions):
        began = time.thread_time()
        step()
        samples.append((time.thread_time() - began) * 1e3)
    return statistics.median(samples)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a row per number of shards."""
    names = list(rows[0]["milliseconds"])
    return [
        f"| shards, CPU ms per micro-batch of {_BATCH_RECORDS:,} records | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
        *(
            f"| {row['shards']:,} | "
            + " | ".join(f"{row['milliseconds'][name]:.1f}" for name in names)
            + " |"
            for row in rows
        ),
    ]
