"""The prefetch planner: a micro-batch is what has been fetched and not yet handed out."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from kinesis_publishers import (
    Delivery,
    DeliverySink,
    KinesisDataFetcher,
    ShardKey,
    ShardStatus,
)
from kinesis_publishers.config import PendingConfig, SparkConfig
from kinesis_publishers.event_loop import EventLoopThread
from kinesis_publishers.readers import TaskScope
from kinesis_publishers_spark.alignment import AlignedShards
from kinesis_publishers_spark.chunks import (
    BatchLimit,
    Chunk,
    balanced,
    needs_refresh,
    next_offset,
)
from kinesis_publishers_spark.lag import Lag
from kinesis_publishers_spark.micro_batches import MicroBatch, Query, Session
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.partitions import RangePartition
from kinesis_publishers_spark.processes import prepare_source
from kinesis_publishers_spark.schema import Columns, to_spark_arrow
from kinesis_publishers_spark.tip_polls import TipPolls
from kinesis_publishers_spark.waiting import WaitingChunks, oldest, partitions_of, take

_T = TypeVar("_T")

# How often an idle source checks whether its offset has become too old.
_REFRESH_CHECK_SECONDS = 60.0
# Converted in some ten milliseconds; one answer has no more records unless they are in aggregates.
_MOST_ROWS_IN_LOOP = 10_000
# Spark asks again after 10 ms if this is its only source: a question within the first time shows
# that. After the second time without records each question waits for them, but not longer than the
# third.
_ASKS_AGAIN_SECONDS = 0.05
_RESTLESS_SECONDS = 2.0
_PATIENCE_SECONDS = 0.1
# How often the shards are checked for what changes without an answer.
_LOOK_SECONDS = 1.0
# By how much the service's clock may be ahead unnoticed: its answers tell whole seconds.
_CLOCKS_DIFFER = timedelta(seconds=1)
# How long AvailableNow waits for more records before it hands out a small micro-batch.
_GATHER_SECONDS = 1.0


class PrefetchSession(Session, DeliverySink):
    """Runs a :class:`~kinesis_publishers.KinesisDataFetcher` in a thread and buffers its records.

    Everything but the constructor, :meth:`close` and the calls that wait for an answer runs on the
    session's event loop, so that nothing needs a lock. Buffered records hold their share of the
    pending pool: fetching pauses when Spark does not keep up. The executors read a replayed
    micro-batch by range.

    Attributes:
        waiting: what was fetched and not handed out.
        aligned: how far the shards have come in time.
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
        self.waiting = WaitingChunks()
        self.aligned = AlignedShards(query, self._note_instant)
        self._is_dirty = False
        self._next_refresh_check = 0.0
        # When Spark was told last that there is something, and that there is nothing.
        self._found_at = self._empty_at = -math.inf
        self._fetcher: KinesisDataFetcher | None = None
        self._begun = Offset()
        self._is_over = False
        self._activity = asyncio.Event()
        self._polls = TipPolls(self._clock)
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
                async with self.attached(fetcher):
                    await fetcher.run()
        finally:
            # The result itself is set a moment later, when this task is done.
            self._is_over = True
            self._activity.set()

    @asynccontextmanager
    async def attached(self, fetcher: KinesisDataFetcher) -> AsyncIterator[None]:
        """Plan what ``fetcher`` reads meanwhile; it is prepared and hands its records to this."""
        self._begun = Offset.of(fetcher.progress)
        self._fetcher = fetcher
        self._activity.set()
        async with TaskScope() as scope:
            looking = scope.spawn(self._look_periodically(fetcher), name="look at the shards")
            try:
                yield
            finally:
                looking.cancel()

    async def _look_periodically(self, fetcher: KinesisDataFetcher) -> None:
        # Not when Spark asks: its next question may be a minute away.
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.aligned.look(fetcher, is_waiting=bool(self.waiting.chunks))
            self._relieve()

    async def deliver(self, delivery: Delivery) -> None:
        shard, fetcher, batch = delivery.shard, self._fetcher, delivery.batch
        convert = partial(to_spark_arrow, batch, self._columns)
        # Aggregates may hold a million records, and the loop reads other shards meanwhile.
        is_small = len(batch) <= _MOST_ROWS_IN_LOOP
        rows = convert() if is_small else await asyncio.to_thread(convert)
        ancestors = frozenset() if fetcher is None else fetcher.ancestors_of(shard.key)
        # The records are in the rows now: of the delivery only its share of the pool is kept.
        chunk = Chunk(
            shard=shard.key,
            rows=rows,
            progress=delivery.progress,
            payload_bytes=batch.payload_bytes,
            ancestors=ancestors,
            since=self.aligned.arrived({shard.key, *ancestors}),
            reservation=delivery.reservation,
        )
        if not batch.has_arrival_times:
            self.aligned.switch_off()
        self.aligned.note(chunk)
        self.waiting.add(chunk)
        self._mark_dirty()

    async def wait_until_wanted(self, shard: ShardKey) -> None:
        if self._fetcher is not None:
            await self.aligned.wait(shard, self._fetcher.pool)
        # Later, when the shard waits for room.
        asyncio.get_running_loop().call_soon(self._relieve)
        if self._catch_up_to is None:
            await self._polls.wait(shard)

    def observe(self, status: ShardStatus) -> None:
        self._polls.observe(status)
        self.aligned.observe(status)
        self._relieve()
        if status.progress.is_ended:
            self._mark_dirty()
        until, fetcher, seen = self._catch_up_to, self._fetcher, status.read_until
        if until is None or fetcher is None:
            return
        # A shard that was closed when it was listed has an end, and children that follow it. Its
        # answers may reach the instant before either is known.
        if seen is not None and seen >= until + self._clock.skew and not status.shard.is_closed:
            fetcher.finish_shard(status.shard.key)
            self.aligned.finish(status.shard.key)
            self._activity.set()

    def observe_discovery(self) -> None:
        if self._fetcher is not None:
            self.aligned.follow(self._fetcher)
        self._activity.set()

    def _note_instant(self) -> None:
        if self.waiting.chunks:
            self._mark_dirty()

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
        for some time: its other sources have to be asked, too. Under AvailableNow ``None`` says
        that everything has been read.
        """
        limit = self._most if limit is None else limit.tightened(self._most)
        is_catching_up = self._catch_up_to is not None
        if not is_catching_up and self._is_only_asked():
            self._ask(
                self._wait_while(lambda: not (self._is_over or self._is_due()), _PATIENCE_SECONDS)
            )
        if not is_catching_up and self.has_too_little(limit):
            self._raise_if_failed()
            end, chunks = start, list[Chunk]()
        else:
            end, chunks = self._ask(self.take(start, limit))
        if end == start:
            self._empty_at = self._clock.monotonic()
            return None
        self._found_at = self._clock.monotonic()
        return MicroBatch(
            start=start,
            end=end,
            records=sum(map(len, chunks)),
            payload_bytes=sum(one.payload_bytes for one in chunks),
            oldest=oldest(chunks),
            left_records=self.waiting.records,
            left_bytes=self.waiting.payload_bytes,
            partitions=partial(
                partitions_of, chunks, self._query.parallelism, self._most_rows, self._columns
            ),
        )

    def has_too_little(self, limit: BatchLimit) -> bool:
        """Say whether there is nothing new, or less than a micro-batch has at least."""
        if limit.min_records:
            # More than half of the pool would never wait, nor what leaves no room for a page.
            enough = limit.tightened(self._enough)
            enough = enough.tightened(BatchLimit(records=limit.min_records))
            if not self._has_enough(enough):
                return True
        return not (self._polls.held or self._is_due())

    def _is_due(self) -> bool:
        return self._is_dirty or self._clock.monotonic() >= self._next_refresh_check

    def _is_only_asked(self) -> bool:
        now = self._clock.monotonic()
        asks_again = now < self._empty_at + _ASKS_AGAIN_SECONDS
        return asks_again and now >= self._found_at + _RESTLESS_SECONDS

    def replay(self, start: Offset, end: Offset) -> list[RangePartition]:
        groups = balanced(end.ranges_since(start), None, self._query.parallelism)
        return [RangePartition.of(self._query.properties, group) for group in groups]

    async def take(self, start: Offset, limit: BatchLimit) -> tuple[Offset, list[Chunk]]:
        """Take what the next micro-batch has; return where it ends, too."""
        if self._catch_up_to is None:
            return await self._plan(start, limit)
        enough = limit.tightened(self._enough)
        await self._wait_while(
            lambda: not (self._is_caught_up() or self._has_enough(enough)), _GATHER_SECONDS
        )
        while True:
            end, chunks = start, list[Chunk]()
            self._is_dirty |= self._is_caught_up()
            if self.waiting.chunks or self._is_caught_up():
                end, chunks = await self._plan(start, limit)
            is_done = self._is_caught_up() and not self._is_dirty
            if end != start or is_done or self._is_over:
                return end, chunks
            self._activity.clear()
            await self._wait_while(lambda: not self._activity.is_set(), _PATIENCE_SECONDS)

    @property
    def _until(self) -> datetime:
        """Up to which arrival records are handed out."""
        if self._catch_up_to is None or not self.aligned.is_on:
            return self.aligned.until
        # A shard that has been read far enough may have later records.
        end = self._catch_up_to + self._clock.skew + _CLOCKS_DIFFER
        return end if self._is_caught_up() else min(end, self.aligned.until)

    def _is_caught_up(self) -> bool:
        return self._is_over or (self._fetcher is not None and self._fetcher.is_finished)

    def _has_enough(self, limit: BatchLimit) -> bool:
        is_full = self.waiting.fill(limit, self._until)
        return is_full or (self._fetcher is not None and self.waiting.block(self._fetcher.pool))

    async def _wait_while(self, is_early: Callable[[], bool], seconds: float) -> None:
        """Wait for what makes ``is_early()`` false, but not for longer than that."""
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                while is_early():
                    await self._wait_for_activity()

    async def _wait_for_activity(self) -> None:
        self._activity.clear()
        await self._activity.wait()

    async def _plan(self, start: Offset, limit: BatchLimit) -> tuple[Offset, list[Chunk]]:
        await self._prepared()
        if self._fetcher is None:
            return start, []  # It has failed, which _ask() raises.
        if self._polls.held:
            await self._polls.ask()
        if not self._is_due():
            return start, []
        self._is_dirty = False
        self._next_refresh_check = self._clock.monotonic() + _REFRESH_CHECK_SECONDS
        known = Offset.of(self._fetcher.progress)
        taken, rest = take(self.waiting.chunks, limit, self._until)
        if not taken and not needs_refresh(start, known, self._clock.now()):
            return start, []
        end = next_offset(start, taken, rest, known=known, begun=self._begun)
        if taken:
            self.aligned.hand_out(taken)
            self.waiting.hand_out(taken, rest)
        self._is_dirty = bool(rest and taken)
        self._relieve()
        return end, taken

    def _relieve(self) -> None:
        if self._fetcher is not None:
            until = self._until
            self.aligned.relieve(self._fetcher.pool, lambda: self.waiting.are_early(until))

    def lag(self, planned: dict[ShardKey, datetime]) -> Lag | None:
        return None if self._loop is None else self._ask(self._lag(planned))

    async def _lag(self, planned: dict[ShardKey, datetime]) -> Lag:
        return Lag.of(
            [] if self._fetcher is None else self._fetcher.statuses,
            oldest(self.waiting.chunks) | planned,
            self._clock.now(),
            buffered_records=self.waiting.records,
            buffered_bytes=self.waiting.payload_bytes,
            late=self._query.late,
            held_back_shards=len(self.aligned.lost),
            aligned_until=self._query.aligned_until,
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
