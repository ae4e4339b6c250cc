"""Fetched records that wait for their micro-batch: rules for splitting and packing. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen

from kinesis_publishers import (
    Reservation,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.readers import Weight
from kinesis_publishers_spark.limits import balanced
from kinesis_publishers_spark.offsets import Offset, ShardOffset

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Before and after any arrival.
NOTHING, EVERYTHING = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
# Spark passes partitions of 32 MB and fails on 90 MB.
_MAX_PARTITION_BYTES = 24 * 1024 * 1024
# The pieces of a shard that does not fit into one partition.
_PIECE_BYTES = 2 * 1024 * 1024
# The overhead of a smaller batch exceeds the cost of its rows.
_MIN_BATCH_BYTES = 128 * 1024


@frozen(kw_only=True, eq=False)
class Chunk:
    """Records of one shard, as Spark rows, in their order.

    Attributes:
        shard: their shard.
        rows: at least one row of the source's schema.
        progress: how far the shard is read, these rows included.
        payload_bytes: the sum of the lengths of the payloads.
        ancestors: every ancestor of the shard.
        since: the latest arrival before these rows, in the shard and in its ancestors. Arrival
            times are not monotonic, and no row may overtake an earlier one.
        until: the same, these rows included.
        reservation: their share of the pool; the parts of a split chunk have it in common.
    """

    shard: ShardKey
    rows: pa.RecordBatch
    progress: ShardProgress
    payload_bytes: int
    ancestors: frozenset[ShardKey] = frozenset()
    since: datetime = NOTHING
    until: datetime = field()
    reservation: Reservation | None = None

    @until.default
    def _latest(self) -> datetime:
        return max(self.since, _instant(pc.max(self.rows.column("approximateArrivalTimestamp"))))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def arrived(self) -> datetime:
        """When the first row arrived."""
        return _instant(self.rows.column("approximateArrivalTimestamp")[0])

    @property
    def begins(self) -> datetime:
        """When the first row may go out."""
        return max(self.since, self.arrived)

    def count_until(self, until: datetime) -> int:
        """Return how many rows go out up to ``until``; they do not end inside an aggregate."""
        if self.until <= until:
            return len(self)
        return 0 if self.begins > until else bisect_right(self._arrivals(), micros_of(until))

    def count_older(self, instant: datetime) -> int:
        """Return how many rows arrived before ``instant``."""
        arrivals = self.rows.column("approximateArrivalTimestamp")
        if _instant(pc.min(arrivals)) >= instant:
            return 0
        micros = micros_of(instant)
        return sum(one < micros for one in pc.cast(arrivals, pa.int64()).to_pylist())

    def _arrivals(self) -> list[int]:
        """Return the running maximum, in microseconds."""
        arrivals = pc.cast(self.rows.column("approximateArrivalTimestamp"), pa.int64())
        latest: list[int] = pc.cumulative_max(arrivals).to_pylist()
        return latest

    def records(self) -> Iterator[tuple[float, Weight]]:
        """Yield the arrival and weight of each Kinesis record; an aggregate is one record."""
        ends = pc.run_end_encode(self.rows.column("sequenceNumber")).run_ends.to_pylist()
        sizes = [0, *pc.cumulative_sum(_payload_lengths(self.rows)).to_pylist()]
        arrivals, since = self._arrivals(), micros_of(self.since)
        for start, end in pairwise([0, *ends]):
            weight = Weight(payload_bytes=sizes[end] - sizes[start], records=end - start)
            yield max(since, arrivals[start]), weight

    @property
    def first(self) -> SequenceNumber:
        return SequenceNumber(self.rows.column("sequenceNumber")[0].as_py())

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """Return the first ``count`` rows and the rest; neither may be empty."""
        head = self.rows.slice(0, count)
        head_bytes = _payload_bytes(head)
        last = SequenceNumber(head.column("sequenceNumber")[count - 1].as_py())
        arrival = _instant(pc.max(head.column("approximateArrivalTimestamp")))
        until = max(self.since, arrival)
        return (
            evolve(
                self,
                rows=head,
                until=until,
                progress=ShardProgress(position=StartingPosition.after(last), as_of=arrival),
                payload_bytes=head_bytes,
            ),
            evolve(
                self,
                rows=self.rows.slice(count),
                since=until,
                payload_bytes=self.payload_bytes - head_bytes,
            ),
        )


def _instant(micros: pa.TimestampScalar) -> datetime:
    # Not as_py(), which imports pandas, and looks up the time zone each time.
    return _EPOCH + timedelta(microseconds=micros.value)


def micros_of(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)


def next_offset(
    start: Offset, taken: Iterable[Chunk], waiting: Iterable[Chunk], *, known: Offset, begun: Offset
) -> Offset:
    """Return the end of a micro-batch that starts at ``start`` and has the records ``taken``.

    Args:
        start: the end of the previous micro-batch.
        taken: the records of this one.
        waiting: fetched records that wait for a later one.
        known: the position of the fetcher, after all fetched records.
        begun: where the fetcher started.

    Raises:
        CheckpointError: the end would be ``start``, although there are records.
    """
    taken = list(taken)
    firsts: dict[ShardKey, SequenceNumber] = {}
    reached: dict[ShardKey, ShardProgress] = {}
    for chunk in taken:
        firsts.setdefault(chunk.shard, chunk.first)
        reached[chunk.shard] = chunk.progress
    behind = {chunk.shard for chunk in waiting}
    shards: dict[ShardKey, ShardOffset] = {}
    for key in known.shards.keys() | reached.keys() | behind:
        if key in behind:
            progress = reached.get(key) or _untouched(key, start, begun, known)
        elif key in known.shards:
            progress = known.shards[key].progress
        else:
            # The shard has left the retention, and the listing, while its last records waited.
            progress = reached[key].ended()
        shards[key] = ShardOffset(progress=progress, first=firsts.get(key))
    end = evolve(known, shards=shards)
    if taken and end == start:
        raise CheckpointError(
            f"{sum(map(len, taken))} fetched records are missing from the offset. This is a "
            "defect of kinesis-publishers. Nothing was handed out; please report it with this "
            f"offset: {start.to_json()}"
        )
    return end


def _untouched(key: ShardKey, start: Offset, begun: Offset, known: Offset) -> ShardProgress:
    """Return the position of a shard whose records all wait for a later micro-batch."""
    arn = key.stream_arn
    for earlier in (start, begun):
        if key in earlier.shards and earlier.streams.get(arn) == known.streams.get(arn):
            return earlier.shards[key].progress
    # A new shard. Without it, and with one of its children in the offset, a restart would assume
    # that it was read to its end.
    return ShardProgress(position=StartingPosition.trim_horizon())


def pack(chunks: Iterable[Chunk], parallelism: int) -> list[Sequence[pa.RecordBatch]]:
    """Spread rows evenly over partitions: one per core, unless they become too small or too large.

    The tasks of a micro-batch run at the same time, so the rows of a shard stay in order in one
    partition. Only a shard with more rows than a partition can carry gets several partitions of its
    own.
    """
    shards: dict[ShardKey, list[pa.RecordBatch]] = {}
    for chunk in chunks:
        shards.setdefault(chunk.shard, []).append(chunk.rows)
    own: list[_Rows] = []
    shared: list[_Rows] = []
    for _, batches in sorted(shards.items(), key=lambda item: str(item[0])):
        rows = _Rows.of(batches)
        parts = [rows] if rows.size <= _MAX_PARTITION_BYTES else _cut(batches)
        (shared if len(parts) == 1 else own).extend(parts)
    sizes = [rows.size for rows in shared]
    groups = balanced(shared, sizes, parallelism, capacity=_MAX_PARTITION_BYTES)
    return [_merged(rows) for rows in [*own, *map(_Rows.joined, groups)]]


def divided(rows: Iterable[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """Divide the rows of a partition into partitions of limited length, in their order."""
    part: list[pa.RecordBatch] = []
    room = most
    for batch in rows:
        for start in (0, *range(room, batch.num_rows, most)):
            part.append(batch.slice(start, room))
            room -= part[-1].num_rows
            if room == 0:
                yield part
                part, room = [], most
    if part:
        yield part


@frozen
class _Rows:
    """Rows that go into one partition, with their size, which is expensive to compute."""

    batches: Sequence[pa.RecordBatch]
    size: int

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> _Rows:
        return cls(batches, sum(batch.nbytes for batch in batches))

    @classmethod
    def joined(cls, parts: Sequence[_Rows]) -> _Rows:
        return cls(
            [batch for one in parts for batch in one.batches], sum(one.size for one in parts)
        )


def _cut(batches: Iterable[pa.RecordBatch]) -> list[_Rows]:
    """Cut the rows of a shard into parts that a partition can carry."""
    parts: list[list[pa.RecordBatch]] = []
    filled = 0
    for batch in batches:
        for piece in _pieces(batch):
            size = piece.nbytes
            if not parts or filled + size > _MAX_PARTITION_BYTES:
                parts.append([])
                filled = 0
            parts[-1].append(piece)
            filled += size
    return [_Rows.of(part) for part in parts]


def _merged(rows: _Rows) -> Sequence[pa.RecordBatch]:
    """Merge small batches: each batch costs time in three processes."""
    if rows.size >= _MIN_BATCH_BYTES * len(rows.batches):
        return rows.batches
    merged: list[pa.RecordBatch] = pa.Table.from_batches(rows.batches).combine_chunks().to_batches()
    return merged


def _pieces(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Cut rows so that each piece has at most a certain size, or is a single row."""
    if rows.nbytes <= _PIECE_BYTES:
        return [rows]
    other_bytes = (rows.nbytes - _payload_bytes(rows)) // rows.num_rows
    pieces, start, size = [], 0, 0
    for index, length in enumerate(_payload_lengths(rows).to_pylist()):
        size += length + other_bytes
        if size > _PIECE_BYTES and index > start:
            pieces.append(rows.slice(start, index - start))
            start, size = index, length + other_bytes
    return [*pieces, rows.slice(start)]


def _payload_lengths(rows: pa.RecordBatch) -> pa.Array:
    return pc.cast(pc.binary_length(rows.column("data")), pa.int64())


def _payload_bytes(rows: pa.RecordBatch) -> int:
    return int(pc.sum(_payload_lengths(rows)).as_py() or 0)
