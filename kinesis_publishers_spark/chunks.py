"""Fetched records that wait for their micro-batch: rules for taking, splitting, packing. Pure."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from kinesis_publishers import SequenceNumber, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.readers import ReadLimit, is_refresh_due
from kinesis_publishers_spark.offsets import Offset, ShardOffset

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Spark passes partitions of 32 MB and fails on 90 MB. Below the lower size an additional Python
# task costs more than it gains.
_MAX_PARTITION_BYTES = 24 * 1024 * 1024
_MIN_PARTITION_BYTES = 2 * 1024 * 1024
# The pieces of a shard that does not fit into one partition.
_PIECE_BYTES = 2 * 1024 * 1024
# A smaller batch costs more than its rows do.
_MIN_BATCH_BYTES = 128 * 1024


@frozen(kw_only=True, eq=False)
class Chunk:
    """Records of one shard, as Spark rows, in their order.

    Attributes:
        shard: their shard.
        rows: at least one row of the source's schema.
        progress: how far the shard is read, these rows included.
        payload_bytes: the sum of the lengths of the payloads.
        ancestors: the shards that this one descends from, over all generations.
    """

    shard: ShardKey
    rows: pa.RecordBatch
    progress: ShardProgress
    payload_bytes: int
    ancestors: frozenset[ShardKey] = frozenset()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def arrived(self) -> datetime:
        """When the first row arrived."""
        return _instant(self.rows.column("approximateArrivalTimestamp")[0])

    @property
    def first(self) -> SequenceNumber:
        return SequenceNumber(self.rows.column("sequenceNumber")[0].as_py())

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """Return the first ``count`` rows and the rest; neither may be empty."""
        head = self.rows.slice(0, count)
        head_bytes = _payload_bytes(head)
        last = SequenceNumber(head.column("sequenceNumber")[count - 1].as_py())
        arrival = _instant(pc.max(head.column("approximateArrivalTimestamp")))
        return (
            evolve(
                self,
                rows=head,
                progress=ShardProgress(position=StartingPosition.after(last), as_of=arrival),
                payload_bytes=head_bytes,
            ),
            evolve(
                self,
                rows=self.rows.slice(count),
                payload_bytes=self.payload_bytes - head_bytes,
            ),
        )


def _instant(micros: pa.TimestampScalar) -> datetime:
    # Not as_py(), which imports pandas, and looks up the time zone each time.
    return _EPOCH + timedelta(microseconds=micros.value)


@frozen(kw_only=True)
class BatchLimit(ReadLimit):
    """The most that one micro-batch may have; ``None`` is no limit."""

    def tightened(self, other: BatchLimit) -> BatchLimit:
        """Return the limit that satisfies both."""
        return BatchLimit(
            records=_least(self.records, other.records),
            payload_bytes=_least(self.payload_bytes, other.payload_bytes),
            min_records=max(self.min_records, other.min_records),
        )


def take(waiting: Sequence[Chunk], limit: BatchLimit) -> tuple[list[Chunk], list[Chunk]]:
    """Return the chunks of the next micro-batch, and the rest, in the order of arrival.

    The limits are exact to the record. An aggregate counts as the records inside and is never
    split. A first record that alone exceeds the limits is taken: otherwise it would block the shard
    forever. A shard waits until the records of its ancestors are in earlier micro-batches, because
    the tasks of one micro-batch run at the same time.
    """
    taken: list[Chunk] = []
    shards: set[ShardKey] = set()
    records = payload_bytes = 0
    for index, chunk in enumerate(waiting):
        if not shards.isdisjoint(chunk.ancestors):
            return taken, list(waiting[index:])
        shards.add(chunk.shard)
        fitting = _fitting_rows(chunk, limit, records, payload_bytes)
        if fitting == 0 and not taken:
            fitting = _rows_of_first_record(chunk.rows)
        if fitting == len(chunk):
            taken.append(chunk)
            records += len(chunk)
            payload_bytes += chunk.payload_bytes
            continue
        rest = list(waiting[index + 1 :])
        if fitting == 0:
            return taken, [chunk, *rest]
        head, tail = chunk.split(fitting)
        return [*taken, head], [tail, *rest]
    return taken, []


def _fitting_rows(chunk: Chunk, limit: BatchLimit, records: int, payload_bytes: int) -> int:
    rows = len(chunk)
    if limit.records is not None:
        rows = min(rows, limit.records - records)
    if (
        limit.payload_bytes is not None
        and payload_bytes + chunk.payload_bytes > limit.payload_bytes
    ):
        room = limit.payload_bytes - payload_bytes
        # Not a comparison by pyarrow, which imports pandas for a Python number.
        sizes = pc.cumulative_sum(_payload_lengths(chunk.rows)).to_pylist()
        rows = min(rows, bisect_right(sizes, room))
    return _whole_records(chunk.rows, max(0, rows))


def _whole_records(rows: pa.RecordBatch, count: int) -> int:
    """Return the largest number of rows up to ``count`` that does not end inside an aggregate.

    No offset could name the end of such a micro-batch for a replay by range.
    """
    numbers = rows.column("sequenceNumber")
    if count >= len(numbers):
        return count
    return count - _count(numbers.slice(0, count), numbers[count])


def _rows_of_first_record(rows: pa.RecordBatch) -> int:
    """Return how many rows the first Kinesis record has: several if it is an aggregate."""
    numbers = rows.column("sequenceNumber")
    return _count(numbers, numbers[0])


def _count(values: pa.Array, value: pa.Scalar) -> int:
    return pc.sum(pc.equal(values, value)).as_py() or 0


def next_offset(
    start: Offset, taken: Iterable[Chunk], waiting: Iterable[Chunk], *, known: Offset, begun: Offset
) -> Offset:
    """Return where a micro-batch ends that begins at ``start`` and has the records ``taken``.

    Args:
        start: the end of the previous micro-batch.
        taken: the records of this one.
        waiting: records that were fetched and wait for a later one.
        known: how far the fetcher has read, fetched records included.
        begun: where the fetcher began.
    """
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
    return evolve(known, shards=shards)


def _untouched(key: ShardKey, start: Offset, begun: Offset, known: Offset) -> ShardProgress:
    """Return the position of a shard whose records all wait for a later micro-batch."""
    arn = key.stream_arn
    for earlier in (start, begun):
        if key in earlier.shards and earlier.streams.get(arn) == known.streams.get(arn):
            return earlier.shards[key].progress
    # A new shard. It must not be left out: if a child of it were in the offset, a restart would
    # take it for a shard that was read to its end.
    return ShardProgress(position=StartingPosition.trim_horizon())


def needs_refresh(start: Offset, known: Offset, now: datetime) -> bool:
    """Say whether ``start`` should be replaced although there are no records.

    A new stream needs it, because its pinned beginning must outlast a restart; one that is left
    out, because that is reported once; the end of a shard, because its children and a restart rely
    on it; and idle shards need it every few hours: the instant up to which they are known to be
    read must not become so old that a restart takes it for lost data.
    """
    if (known.streams, known.left_out) != (start.streams, start.left_out):
        return True
    for key, one in known.shards.items():
        before = start.shards.get(key)
        if before is None or before.progress.is_ended:
            continue
        if one.progress.is_ended:
            return True
        if is_refresh_due(before.progress.as_of, one.progress.as_of, now):
            return True
    return False


def pack(chunks: Iterable[Chunk], parallelism: int) -> list[Sequence[pa.RecordBatch]]:
    """Spread rows evenly over partitions: one per core, unless they become too small or too large.

    The rows of a shard stay in their order and together in one partition, because the tasks of a
    micro-batch run at the same time. Only a shard with more rows than a partition can carry gets
    several partitions, of its own, in their order.
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
    """Divide the rows of a partition into some of at most so many, in their order."""
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
    """Return the rows in fewer batches if these are small: each costs time in three processes."""
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


def _least(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


_T = TypeVar("_T")


def balanced(
    items: Sequence[_T],
    sizes: Sequence[int] | None,
    parallelism: int,
    *,
    capacity: int = sys.maxsize,
) -> list[tuple[_T, ...]]:
    """Spread items over groups of about equal size, the largest first; the same groups each time.

    Args:
        items: each stays whole, in one group, in the order given.
        sizes: the expected bytes of each; ``None`` if they are not known.
        parallelism: the maximum number of groups, except where these would exceed ``capacity``.
        capacity: the most bytes of a group, except of a single item.
    """
    if not items:
        return []
    weights = [1] * len(items) if sizes is None else [max(1, size) for size in sizes]
    count = min(parallelism, len(items))
    if sizes is not None:
        count = min(count, -(-sum(weights) // _MIN_PARTITION_BYTES))
    count = max(count, -(-sum(weights) // capacity))
    groups: list[list[int]] = [[] for _ in range(count)]
    filled = [0] * count
    for index in sorted(range(len(items)), key=lambda index: (-weights[index], index)):
        target = filled.index(min(filled))
        if filled[target] and filled[target] + weights[index] > capacity:
            target = len(groups)
            groups.append([])
            filled.append(0)
        groups[target].append(index)
        filled[target] += weights[index]
    return [tuple(items[index] for index in sorted(group)) for group in groups if group]
