"""The prefetch planner: a micro-batch is what has been fetched and not yet handed out."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from kinesis_publishers import (
    Delivery,
    DeliverySink,
    KinesisDataFetcher,
    Reservation,
    ShardKey,
    ShardStatus,
)
from kinesis_publishers.config import PendingConfig, SparkConfig
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.event_loop import EventLoopThread
from kinesis_publishers_spark.chunks import (
    BatchLimit,
    Chunk,
    balanced,
    divided,
    needs_refresh,
    next_offset,
    pack,
    take,
)
from kinesis_publishers_spark.lag import Lag
from kinesis_publishers_spark.micro_batches import MicroBatch, Query, Session
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import PrefetchedPartition, RangePartition
from kinesis_publishers_spark.processes import prepare_source
from kinesis_publishers_spark.schema import Columns, to_spark_arrow

_T = TypeVar("_T")

# How often an idle source checks whether its offset has become too old.
_REFRESH_CHECK_SECONDS = 60.0
# Converted in some ten milliseconds; one answer has no more records unless they are in aggregates.
_MOST_ROWS_IN_LOOP = 10_000
# How long a shard at its tip waits for Spark's next question before it is polled nevertheless, and
# how long that question waits for the answers: GetRecords takes some milliseconds.
_HOLD_SECONDS = 0.3
_ANSWER_SECONDS = 0.03
# Spark asks again after 10 ms, if this is its only source: within so long of the last answer. After
# so long without records each of its questions waits for them, and the polls meanwhile for it.
_ASKS_AGAIN_SECONDS = 0.05
_RESTLESS_SECONDS = 2.0
_PATIENCE_SECONDS = 0.1
# How long AvailableNow waits for more records before it hands out a small micro-batch.
_GATHER_SECONDS = 1.0


class PrefetchSession(Session, DeliverySink):
    """Runs a :class:`~kinesis_publishers.KinesisDataFetcher` in a thread and buffers its records.

    Everything but the constructor, :meth:`close` and the calls that wait for an answer runs on the
    session's event loop, so that nothing needs a lock. Buffered records hold their share of the
    pending pool: fetching pauses when Spark does not keep up. The executors read a replayed
    micro-batch by range.
    """

    def __init__(self, query: Query, resume: Offset, catch_up_to: datetime | None = None) -> None:
        super().__init__(query, resume, catch_up_to)
        spark = SparkConfig.from_properties(query.properties)
        self._columns = Columns.of(spark)
        self._most_rows = spark.max_records_per_partition or sys.maxsize
        pending = PendingConfig.from_properties(query.properties)
        # The whole pool: it is free again when the micro-batch is planned, and fills up while Spark
        # works on that.
        self._most = BatchLimit(records=pending.max_records, payload_bytes=pending.max_bytes)
        # AvailableNow hands out a micro-batch of this size at once. It is less than the pool holds:
        # a page for which there is no room leaves the pool short of its limit.
        self._enough = BatchLimit(
            records=max(1, pending.max_records // 2), payload_bytes=max(1, pending.max_bytes // 2)
        )
        self._waiting: list[Chunk] = []
        self._waiting_records = self._waiting_bytes = 0
        # One per delivery, in the order of the chunks.
        self._reservations: list[Reservation] = []
        self._is_dirty = False
        self._next_refresh_check = 0.0
        # When Spark was told last that there is something, and that there is nothing.
        self._found_at = self._empty_at = -math.inf
        self._fetcher: KinesisDataFetcher | None = None
        self._begun = Offset()
        self._is_over = False
        self._activity = asyncio.Event()
        # The shards that are polled at their tips. Those of them whose polls wait for Spark's
        # question, and those that have to answer it.
        self._at_tip: set[ShardKey] = set()
        self._held: set[ShardKey] = set()
        self._unanswered: set[ShardKey] = set()
        self._question = asyncio.Event()
        self._loop: EventLoopThread | None = None
        self._result: Future[None] | None = None

    async def _run(self) -> None:
        try:
            async with KinesisDataFetcher.from_properties(
                self._query.properties,
                self,
                resume=self._resume,
                clock=self._clock,
                guard=self._query.guard,
            ) as fetcher:
                await fetcher.prepare()
                prepare_source()
                self._begun = Offset.of(fetcher.progress)
                self._fetcher = fetcher
                self._activity.set()
                await fetcher.run()
        finally:
            # The result itself is set a moment later, when this task is done.
            self._is_over = True
            self._activity.set()

    async def deliver(self, delivery: Delivery) -> None:
        shard, fetcher, batch = delivery.shard, self._fetcher, delivery.batch
        convert = partial(to_spark_arrow, batch, self._columns)
        # Aggregates may hold a million records, and the loop reads other shards meanwhile.
        is_small = len(batch) <= _MOST_ROWS_IN_LOOP
        rows = convert() if is_small else await asyncio.to_thread(convert)
        self._waiting.append(
            Chunk(
                shard=shard.key,
                rows=rows,
                progress=delivery.progress,
                payload_bytes=batch.payload_bytes,
                ancestors=frozenset() if fetcher is None else fetcher.ancestors_of(shard.key),
            )
        )
        self._waiting_records += len(batch)
        self._waiting_bytes += batch.payload_bytes
        # The records are in the rows now: of the delivery only its share of the pool is kept.
        self._reservations.append(delivery.reservation)
        self._mark_dirty()

    async def wait_until_wanted(self, shard: ShardKey) -> bool:
        """Let a poll at the tip fall together with Spark's next question.

        Spark asks every 10 ms while it has nothing to do, and between two micro-batches. Without
        this a record would wait twice, for the next poll and for the next question after it.
        """
        if self._catch_up_to is not None or shard not in self._at_tip:
            return False
        self._held.add(shard)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HOLD_SECONDS):
                    await self._question.wait()
        finally:
            self._held.discard(shard)
        return False

    async def _ask_shards(self) -> None:
        """Let the polls go that wait, and wait for their answers, but not for long."""
        self._unanswered = set(self._held)
        self._question.set()
        self._question.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while self._unanswered:
                    await self._wait_for_activity()

    def observe(self, status: ShardStatus) -> None:
        if self._unanswered:
            self._unanswered.discard(status.shard.key)
            if not self._unanswered:
                self._activity.set()
        if status.is_polled and status.millis_behind_latest == 0:
            self._at_tip.add(status.shard.key)
        else:
            self._at_tip.discard(status.shard.key)
        if status.progress.is_ended:
            self._mark_dirty()
        until, fetcher, seen = self._catch_up_to, self._fetcher, status.read_until
        if until is None or fetcher is None:
            return
        # A shard that was closed when it was listed has an end, and children that come after it:
        # reading may have come so far before either.
        if seen is not None and seen >= until + self._clock.skew and not status.shard.is_closed:
            fetcher.finish_shard(status.shard.key)
            self._activity.set()

    def observe_discovery(self) -> None:
        self._activity.set()

    def _mark_dirty(self) -> None:
        self._is_dirty = True
        self._activity.set()

    @property
    def begun(self) -> Offset:
        return self._ask(self._prepared())

    async def _prepared(self) -> Offset:
        while self._fetcher is None and not self._is_over:
            await self._wait_for_activity()
        return self._begun

    def plan(self, start: Offset, limit: BatchLimit | None) -> MicroBatch | None:
        """Take what the next micro-batch has.

        It waits for answers that are due, and for records only where Spark has done nothing but ask
        for some time: its other sources have to be asked, too. Under AvailableNow it returns
        ``None`` only once everything has been read.
        """
        limit = self._most if limit is None else limit.tightened(self._most)
        if self._catch_up_to is not None:
            end, chunks = self._ask(self._plan_catching_up(start, limit))
        else:
            if self._is_only_asked():
                self._ask(self._wait_for_news())
            if self._has_too_little(limit):
                self._raise_if_failed()
                end, chunks = start, []
            else:
                end, chunks = self._ask(self._plan(start, limit))
        if end == start:
            self._empty_at = self._clock.monotonic()
            return None
        self._found_at = self._clock.monotonic()
        return MicroBatch(
            start=start,
            end=end,
            records=sum(map(len, chunks)),
            payload_bytes=sum(chunk.payload_bytes for chunk in chunks),
            oldest=_oldest(chunks),
            partitions=partial(
                _partitions,
                chunks,
                self._query.parallelism,
                self._most_rows,
                self._columns,
            ),
        )

    def _has_too_little(self, limit: BatchLimit) -> bool:
        if limit.min_records and self._fetcher is not None:
            # More than half of the pool would never wait, nor what leaves no room for a page.
            enough = limit.tightened(self._enough)
            enough = enough.tightened(BatchLimit(records=limit.min_records))
            if not (self._fills(enough) or self._fetcher.pool.needs_room_of(self._reservations)):
                return True
        return not (self._held or self._has_news())

    def _has_news(self) -> bool:
        return self._is_dirty or self._clock.monotonic() >= self._next_refresh_check

    def _is_only_asked(self) -> bool:
        now = self._clock.monotonic()
        asks_again = now < self._empty_at + _ASKS_AGAIN_SECONDS
        return asks_again and now >= self._found_at + _RESTLESS_SECONDS

    async def _wait_for_news(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not (self._is_over or self._has_news()):
                    await self._wait_for_activity()

    def replay(self, start: Offset, end: Offset) -> list[RangePartition]:
        groups = balanced(end.ranges_since(start), None, self._query.parallelism)
        return [RangePartition.of(self._query.properties, group) for group in groups]

    async def _plan_catching_up(
        self, start: Offset, limit: BatchLimit
    ) -> tuple[Offset, list[Chunk]]:
        enough = limit.tightened(self._enough)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GATHER_SECONDS):
                while not (self._is_caught_up() or self._fills(enough)):
                    await self._wait_for_activity()
        while not (self._waiting or self._is_caught_up()):
            await self._wait_for_activity()
        return await self._plan(start, limit)

    def _is_caught_up(self) -> bool:
        return self._is_over or (self._fetcher is not None and self._fetcher.is_finished)

    def _fills(self, limit: BatchLimit) -> bool:
        # Not take(): with many shards it would cost more than each delivery after which it is
        # asked.
        is_full_of_records = limit.records is not None and self._waiting_records >= limit.records
        return is_full_of_records or (
            limit.payload_bytes is not None and self._waiting_bytes >= limit.payload_bytes
        )

    async def _wait_for_activity(self) -> None:
        self._activity.clear()
        await self._activity.wait()

    async def _plan(self, start: Offset, limit: BatchLimit) -> tuple[Offset, list[Chunk]]:
        await self._prepared()
        if self._fetcher is None:
            return start, []  # It has failed, which _ask() raises.
        if self._held:
            await self._ask_shards()
        if not self._has_news():
            return start, []
        self._is_dirty = False
        self._next_refresh_check = self._clock.monotonic() + _REFRESH_CHECK_SECONDS
        known = Offset.of(self._fetcher.progress)
        taken, rest = take(self._waiting, limit)
        if not taken and not needs_refresh(start, known, self._clock.now()):
            return start, []
        end = next_offset(start, taken, rest, known=known, begun=self._begun)
        if taken and end == start:
            raise CheckpointError(
                f"{sum(map(len, taken))} records were fetched that no offset names: a defect of "
                "kinesis-publishers. Nothing was handed out; please report it with this offset: "
                f"{start.to_json()}"
            )
        whole = len(self._waiting) - len(rest)
        for reservation in self._reservations[:whole]:
            reservation.release()
        del self._reservations[:whole]
        self._waiting = rest
        self._waiting_records = sum(map(len, rest))
        self._waiting_bytes = sum(chunk.payload_bytes for chunk in rest)
        self._is_dirty = bool(rest)
        return end, taken

    def lag(self, planned: dict[ShardKey, datetime]) -> Lag | None:
        return None if self._loop is None else self._ask(self._lag(planned))

    async def _lag(self, planned: dict[ShardKey, datetime]) -> Lag:
        return Lag.of(
            [] if self._fetcher is None else self._fetcher.statuses,
            _oldest(self._waiting) | planned,
            self._clock.now(),
            buffered_records=self._waiting_records,
            buffered_bytes=self._waiting_bytes,
        )

    def _ask(self, question: Coroutine[Any, Any, _T]) -> _T:
        if self._loop is None:
            self._loop = EventLoopThread(name="kinesis-fetch")
            self._result = self._loop.start(self._run())
        answer = self._loop.start(question).result()
        self._raise_if_failed()
        return answer

    def _raise_if_failed(self) -> None:
        # A source that swallows its errors looks idle.
        if self._is_over and self._result is not None:
            self._result.result()

    def close(self) -> None:
        """Stop fetching, close the connections, and drop what was not handed out."""
        # Not self._result.cancel(): that future would be done before the fetcher has cleaned up.
        if self._loop is not None:
            self._loop.close()


def _oldest(chunks: Iterable[Chunk]) -> dict[ShardKey, datetime]:
    firsts: dict[ShardKey, Chunk] = {}
    for chunk in chunks:
        firsts.setdefault(chunk.shard, chunk)
    return {key: chunk.arrived for key, chunk in firsts.items()}


# Not a method: a micro-batch that is not committed may outlive its session, and what that has read
# since is fetched again.
def _partitions(
    chunks: list[Chunk], parallelism: int, most_rows: int, columns: Columns
) -> list[PrefetchedPartition]:
    return [
        PrefetchedPartition.of(part, columns)
        for rows in pack(chunks, parallelism)
        for part in divided(rows, most_rows)
    ]
