"""Fetched chunks that wait for a micro-batch, and the choice of those that go into the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, tee
from typing import TYPE_CHECKING

from kinesis_publishers import ShardKey
from kinesis_publishers.readers import Lane, PendingPool, Weight, admit
from kinesis_publishers_spark.chunks import EVERYTHING, Chunk, divided, micros_of, pack
from kinesis_publishers_spark.partitions import PrefetchedPartition

if TYPE_CHECKING:
    from kinesis_publishers_spark.limits import BatchLimit
    from kinesis_publishers_spark.schema import Columns


class WaitingChunks:
    """Keeps chunks with their shares of the pool; the chunks of a shard stay in order.

    Attributes:
        chunks: all of them.
        records: how many records they have.
        payload_bytes: the sum of their payloads' lengths.
    """

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.records = self.payload_bytes = 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.records += len(chunk)
        self.payload_bytes += chunk.payload_bytes

    def fill(self, limit: BatchLimit, until: datetime) -> bool:
        """Return whether what arrived until ``until`` reaches the limit of a micro-batch."""
        # Not take(): this is called after each delivery, and with many shards take() costs more
        # than the delivery.
        records, payload_bytes = self.records, self.payload_bytes
        if until < EVERYTHING and limit.is_reached(records, payload_bytes):
            due = [one for one in [*self.chunks] if one.until <= until]
            records = sum(map(len, due))
            payload_bytes = sum(one.payload_bytes for one in due)
        return limit.is_reached(records, payload_bytes)

    def block(self, pool: PendingPool) -> bool:
        """Return whether the pool is full and only these chunks can free room."""
        # A request in flight holds room, too.
        return pool.waiter_count > 0 and pool.records <= self.records

    def are_early(self, until: datetime) -> bool:
        """Return whether there are chunks, and all of them arrived after ``until``."""
        return bool(self.chunks) and all(one.begins > until for one in self.chunks)

    def hand_out(self, taken: Collection[Chunk], rest: list[Chunk]) -> None:
        """Keep ``rest``, and return the room of the taken chunks to the pool."""
        tails = {id(one.reservation): one for one in rest}
        for one in taken:
            self.records -= len(one)
            self.payload_bytes -= one.payload_bytes
            tail = tails.get(id(one.reservation))
            if one.reservation is not None and tail is not None:
                one.reservation.resize(len(tail), tail.payload_bytes)
            elif one.reservation is not None:
                one.reservation.release()
        self.chunks = rest


def take(
    waiting: Sequence[Chunk], limit: BatchLimit, until: datetime = EVERYTHING
) -> tuple[list[Chunk], list[Chunk]]:
    """Return the chunks of the next micro-batch, and the rest, both in the order of ``waiting``.

    Earlier arrivals go out first. The limits are exact to the record. An aggregate counts as the
    records inside and is never split. A first record that alone exceeds the limits is taken:
    otherwise it would block the shard forever. A shard waits until the records of its ancestors are
    in earlier micro-batches, because the tasks of one micro-batch run at the same time; and later
    arrivals in other shards wait with it.

    Args:
        waiting: those of a shard in their order.
        limit: of the micro-batch.
        until: later arrivals wait.
    """
    lanes: dict[ShardKey, list[Chunk]] = {}
    for chunk in waiting:
        lanes.setdefault(chunk.shard, []).append(chunk)
    # A child waits like a later record of its parent. Its ancestors go first, and whole: arrival
    # times are not monotonic across a reshard either.
    ends = {key: lane[-1].until for key, lane in lanes.items()}
    for head in [lane[0] for lane in lanes.values()]:
        if before := [ends[key] for key in head.ancestors & ends.keys()]:
            until = min(until, max(head.begins, *before))
            lanes[head.shard] = []
    left = {key: sum(one.count_until(until) for one in lane) for key, lane in lanes.items()}
    if not limit.is_unlimited and not _fits(limit, lanes, left):
        left = _admitted(lanes, limit, until)
    taken: list[Chunk] = []
    rest: list[Chunk] = []
    for chunk in waiting:
        count = min(left[chunk.shard], len(chunk))
        left[chunk.shard] -= count
        if 0 < count < len(chunk):
            head, tail = chunk.split(count)
            taken.append(head)
            rest.append(tail)
        else:
            (taken if count else rest).append(chunk)
    return taken, rest


def _fits(
    limit: BatchLimit, lanes: Mapping[ShardKey, list[Chunk]], counts: Mapping[ShardKey, int]
) -> bool:
    if limit.records is not None and sum(counts.values()) > limit.records:
        return False
    # A chunk that is taken in part counts whole. If that exceeds the limit, _admitted() decides.
    sizes = (one.payload_bytes for key, lane in lanes.items() if counts[key] for one in lane)
    return limit.payload_bytes is None or sum(sizes) <= limit.payload_bytes


def _admitted(
    lanes: Mapping[ShardKey, list[Chunk]], limit: BatchLimit, until: datetime
) -> dict[ShardKey, int]:
    """Return how many rows of each shard go out where the limit decides."""
    weights: list[Iterator[Weight]] = []
    merged: list[Lane] = []
    for chunks in lanes.values():
        # Lazily: records beyond the limit are not looked at.
        records = chain.from_iterable(one.records() for one in chunks)
        arrivals, weighed, kept = tee(records, 3)
        merged.append(Lane((at for at, _ in arrivals), (weight for _, weight in weighed)))
        weights.append(weight for _, weight in kept)
    counts = admit(merged, limit, micros_of(until))
    return {
        key: sum(next(kept).records for _ in range(count))
        for key, kept, count in zip(lanes, weights, counts, strict=True)
    }


def oldest(chunks: Iterable[Chunk]) -> dict[ShardKey, datetime]:
    """Return when the first row of each shard arrived."""
    firsts: dict[ShardKey, Chunk] = {}
    for chunk in chunks:
        firsts.setdefault(chunk.shard, chunk)
    return {key: chunk.arrived for key, chunk in firsts.items()}


# Not a method: an uncommitted micro-batch may outlive its session, whose later records are fetched
# again.
def partitions_of(
    chunks: list[Chunk], parallelism: int, most_rows: int, columns: Columns
) -> list[PrefetchedPartition]:
    """Return the partitions of a micro-batch."""
    return [
        PrefetchedPartition.of(part, columns)
        for rows in pack(chunks, parallelism)
        for part in divided(rows, most_rows)
    ]
