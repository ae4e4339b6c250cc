"""An hour of records that waits in a stream, and the exact counts of its windows of a minute."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve, frozen
from pyspark.sql import functions as F

from kinesis_publishers.testing.local_kinesis.shard import hash_of_partition_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

SHAPES = ("even", "uneven", "silent-first", "silent-last", "reshard")
ARRIVALS = ("smooth", "bursty")
_SHARDS = 4
_EVEN, _UNEVEN, _ONE_IS_SILENT = (25, 25, 25, 25), (60, 25, 10, 5), (25, 25, 25, 0)
# In the first half hour and in the last.
_SHARES = {
    "uneven": (_UNEVEN, _UNEVEN),
    "silent-first": (_ONE_IS_SILENT, _EVEN),
    "silent-last": (_EVEN, _ONE_IS_SILENT),
}
_HOUR, _MINUTE = 3600, 60
_ARRIVAL = "approximateArrivalTimestamp"
_KEYS_PER_SHARD = 50
_POLL_SECONDS, _DEADLINE_SECONDS = 0.1, 300.0


@frozen
class Windows:
    """The records of each window, by its first second since 1970.

    Attributes:
        closed: those that a query writes before it waits for newer records.
        count: how many records there are in all windows.
        watermark: where the watermark of a query ends that has read everything.
    """

    closed: Counter[int]
    count: int
    watermark: datetime

    @classmethod
    def of(cls, server: LocalKinesis, stream: str) -> Self:
        """Return the windows of what is stored in a stream."""
        shards = server.records(stream).values()
        arrivals = [one.arrival_time for stored in shards for one in stored]
        watermark = max(arrivals) - timedelta(seconds=_MINUTE)
        closed = (
            start
            for start in (int(one.timestamp()) // _MINUTE * _MINUTE for one in arrivals)
            if start + _MINUTE <= watermark.timestamp()
        )
        return cls(Counter(closed), len(arrivals), watermark)

    def are_written_by(self, query: StreamingQuery) -> bool:
        """Tell whether ``query`` has read all records, and written all windows that it will."""
        last = query.lastProgress
        reached = last.eventTime.get("watermark") if last else None
        if reached is None or datetime.fromisoformat(reached) < self.watermark:
            return False
        return sum(one.numInputRows for one in query.recentProgress) >= self.count

    def wrong(self, written: Counter[int]) -> dict[int, tuple[int, int]]:
        """Return how many records and how many rows a window has, where the two differ."""
        starts = sorted(self.closed.keys() | written.keys())
        pairs = {start: (self.closed[start], written[start]) for start in starts}
        return {start: pair for start, pair in pairs.items() if pair[0] != pair[1]}


@frozen(kw_only=True)
class Backlog:
    """Records that arrived during the last hour, in four shards.

    Attributes:
        shape: ``even``; ``uneven``, with 60, 25, 10 and 5 % of the records; ``silent-first`` or
            ``silent-last``, where the last shard has none in that half hour; ``reshard``, where
            splits and merges make six shards of the four in the middle.
        arrival: ``smooth``; or ``bursty``, with all records of a minute at one instant.
        count: how many records.
        record_bytes: the size of each, without its partition key.
    """

    shape: str
    arrival: str
    count: int
    record_bytes: int = 100

    def put(self, server: LocalKinesis, stream: str) -> Windows:
        """Create the stream and put the records, each when it arrives; return their windows."""
        data = b"x" * self.record_bytes
        begin = time.time() // _MINUTE * _MINUTE - _HOUR
        # Long enough before the first record: on a busy machine creating takes its time, too.
        _set_clock(server, begin - _MINUTE)
        server.create_stream(stream, _SHARDS)
        for is_late_half, half in itertools.groupby(self._keys(), lambda one: one[0] >= _HOUR / 2):
            if is_late_half and self.shape == "reshard":
                _set_clock(server, begin + _HOUR / 2)
                server.reshard(stream, 6)
            for at, records in itertools.groupby(half, lambda one: one[0]):
                _set_clock(server, begin + at)
                server.put_many(stream, [(key, data) for _, key in records])
        server.behaviour = evolve(server.behaviour, clock_skew_seconds=0.0)
        return Windows.of(server, stream)

    def _keys(self) -> Iterator[tuple[float, str]]:
        """Yield the second within the hour and the partition key of each record."""
        keys = _keys_by_shard()
        chance = random.Random(0)
        for number in range(self.count):
            at = number * _HOUR / self.count
            if self.arrival == "bursty":
                at = at // _MINUTE * _MINUTE
            first, last = _SHARES.get(self.shape, (_EVEN, _EVEN))
            (shard,) = chance.choices(keys, first if at < _HOUR / 2 else last)
            yield at, chance.choice(shard)


def count(
    frame: DataFrame, windows: Windows, checkpoint: Path, trigger: Mapping[str, Any]
) -> tuple[Counter[int], list[int]]:
    """Count the rows of each minute of arrival in a query with a minute of delay.

    Returns:
        The rows of each window that was written, and those of each micro-batch that had some.
    """
    written: Counter[int] = Counter()

    def write(counts: DataFrame, _: int) -> None:
        # A window that is written twice has the sum of both.
        written.update({row.start: row.records for row in counts.collect()})

    by_minute = frame.withWatermark(_ARRIVAL, "1 minute").groupBy(F.window(_ARRIVAL, "1 minute"))
    counts = by_minute.agg(F.count("*").alias("records"))
    counts = counts.select(F.unix_timestamp("window.start").alias("start"), "records")
    writer = counts.writeStream.outputMode("append").foreachBatch(write).trigger(**trigger)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not query.awaitTermination(_POLL_SECONDS) and not windows.are_written_by(query):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all windows are written: {query.lastProgress}")
        return written, [one.numInputRows for one in query.recentProgress if one.numInputRows]
    finally:
        query.stop()


def _set_clock(server: LocalKinesis, seconds: float) -> None:
    server.behaviour = evolve(server.behaviour, clock_skew_seconds=seconds - time.time())


def _keys_by_shard() -> list[list[str]]:
    keys: list[list[str]] = [[] for _ in range(_SHARDS)]
    for number in range(_SHARDS * _KEYS_PER_SHARD):
        keys[hash_of_partition_key(f"key-{number}") * _SHARDS >> 128].append(f"key-{number}")
    return keys
