"""The prefetch planner: a micro-batch is what has been fetched and not yet handed out."""

from __future__ import annotations

import math
import sys
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from kinesis_publishers import KinesisDataFetcher, ShardKey
from kinesis_publishers.config import PendingConfig
from kinesis_publishers.event_loop import EventLoopThread
from kinesis_publishers_spark.chunks import Chunk, next_offset
from kinesis_publishers_spark.fetched import FetchedRecords
from kinesis_publishers_spark.lag import Lag
from kinesis_publishers_spark.limits import BatchLimit, balanced
from kinesis_publishers_spark.micro_batches import MicroBatch, Query, Session
from kinesis_publishers_spark.offsets import Offset, needs_refresh
from kinesis_publishers_spark.options import SparkConfig
from kinesis_publishers_spark.partitions import RangePartition
from kinesis_publishers_spark.processes import freeze_source
from kinesis_publishers_spark.schema import Columns
from kinesis_publishers_spark.waiting import oldest, partitions_of, take

_T = TypeVar("_T")

# How often an idle source checks whether its offset has become too old.
_REFRESH_CHECK_SECONDS = 60.0
# Spark asks again after 10 ms if this is its only source: a question within the first time proves
# it. After the second time without records, each question waits for them, at most for the third.
_ASKS_AGAIN_SECONDS = 0.05
_RESTLESS_SECONDS = 2.0
_PATIENCE_SECONDS = 0.1
# How long AvailableNow waits for more records before it hands out a small micro-batch.
_GATHER_SECONDS = 1.0


class PrefetchSession(Session):
    """Runs a :class:`~kinesis_publishers.KinesisDataFetcher` in a thread, and plans what it reads.

    Spark's thread calls the methods of :class:`Session`. Calls that wait for an answer run on the
    thread of the fetcher. The executors read a replayed micro-batch by range.

    Attributes:
        fetched: the deliveries of the fetcher; used on its event loop alone.
    """

    def __init__(self, query: Query, resume: Offset, catch_up_to: datetime | None = None) -> None:
        super().__init__(query, resume, catch_up_to)
        spark = SparkConfig.from_properties(query.properties)
        self._columns = Columns.of(spark)
        self._most_rows = spark.max_records_per_partition or sys.maxsize
        pending = PendingConfig.from_properties(query.properties)
        # The whole pool: it becomes free when the micro-batch is planned, and fills up while Spark
        # processes it.
        self._most = BatchLimit(records=pending.max_records, payload_bytes=pending.max_bytes)
        # AvailableNow hands out a micro-batch of this size immediately. It is smaller than the
        # pool: a page without room leaves the pool below its limit.
        self._enough = BatchLimit(
            records=max(1, pending.max_records // 2), payload_bytes=max(1, pending.max_bytes // 2)
        )
        self.fetched = FetchedRecords(query, catch_up_to)
        self._next_refresh_check = 0.0
        # The times of the last answers to Spark with records, and without.
        self._found_at = self._empty_at = -math.inf
        self._loop: EventLoopThread | None = None
        self._result: Future[None] | None = None

    async def _run(self) -> None:
        try:
            async with KinesisDataFetcher.from_properties(
                self._query.properties,
                self.fetched,
                resume=self._resume,
                clock=self._clock,
                guard=self._query.guard,
            ) as fetcher:
                await fetcher.prepare()
                freeze_source()
                async with self.fetched.attached(fetcher):
                    await fetcher.run()
        finally:
            # The result itself is set slightly later, when this task is done.
            self.fetched.end()

    @property
    def begun(self) -> Offset:
        return self._ask(self.fetched.prepared())

    def plan(self, start: Offset, limit: BatchLimit | None) -> MicroBatch | None:
        """Take the records of the next micro-batch.

        This waits for answers that are due. It waits for records only after Spark has been idle for
        some time: Spark has to ask its other sources, too. Under AvailableNow, ``None`` means that
        everything has been read.
        """
        limit = self._most if limit is None else limit.tightened(self._most)
        is_catching_up = self._catch_up_to is not None
        if not is_catching_up and self._is_only_asked():
            self._ask(
                self.fetched.wait_while(
                    lambda: not (self.fetched.is_over or self._is_due()), _PATIENCE_SECONDS
                )
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
            left_records=self.fetched.waiting.records,
            left_bytes=self.fetched.waiting.payload_bytes,
            partitions=partial(
                partitions_of, chunks, self._query.parallelism, self._most_rows, self._columns
            ),
        )

    def has_too_little(self, limit: BatchLimit) -> bool:
        """Return whether there is nothing new, or less than the minimum of a micro-batch."""
        if limit.min_records:
            # More than half of the pool can never wait, nor an amount that leaves no room for a
            # page.
            enough = limit.tightened(self._enough)
            enough = enough.tightened(BatchLimit(records=limit.min_records))
            if not self._has_enough(enough):
                return True
        return not (self.fetched.polls.held or self._is_due())

    def _is_due(self) -> bool:
        return self.fetched.is_dirty or self._clock.monotonic() >= self._next_refresh_check

    def _is_only_asked(self) -> bool:
        now = self._clock.monotonic()
        asks_again = now < self._empty_at + _ASKS_AGAIN_SECONDS
        return asks_again and now >= self._found_at + _RESTLESS_SECONDS

    def look_ahead(self) -> None:
        """Do nothing: the fetcher reads ahead."""

    def replay(self, start: Offset, end: Offset) -> list[RangePartition]:
        groups = balanced(end.ranges_since(start), None, self._query.parallelism)
        return [RangePartition.of(self._query.properties, group) for group in groups]

    async def take(self, start: Offset, limit: BatchLimit) -> tuple[Offset, list[Chunk]]:
        """Take the records of the next micro-batch; return them with its end."""
        if self._catch_up_to is None:
            return await self._plan(start, limit)
        fetched = self.fetched
        enough = limit.tightened(self._enough)
        await fetched.wait_while(
            lambda: not (fetched.is_caught_up or self._has_enough(enough)), _GATHER_SECONDS
        )
        while True:
            end, chunks = start, list[Chunk]()
            fetched.is_dirty |= fetched.is_caught_up
            if fetched.waiting.chunks or fetched.is_caught_up:
                end, chunks = await self._plan(start, limit)
            is_done = fetched.is_caught_up and not fetched.is_dirty
            if end != start or is_done or fetched.is_over:
                return end, chunks
            with suppress(TimeoutError):
                async with self._clock.timeout(_PATIENCE_SECONDS):
                    await fetched.wait_for_activity()

    def _has_enough(self, limit: BatchLimit) -> bool:
        waiting, fetcher = self.fetched.waiting, self.fetched.fetcher
        is_full = waiting.fill(limit, self.fetched.until)
        return is_full or (fetcher is not None and waiting.block(fetcher.pool))

    async def _plan(self, start: Offset, limit: BatchLimit) -> tuple[Offset, list[Chunk]]:
        fetched = self.fetched
        await fetched.prepared()
        if fetched.fetcher is None:
            return start, []  # It has failed, which _ask() raises.
        if fetched.polls.held:
            await fetched.polls.ask()
        if not self._is_due():
            return start, []
        fetched.is_dirty = False
        self._next_refresh_check = self._clock.monotonic() + _REFRESH_CHECK_SECONDS
        known = Offset.of(fetched.fetcher.progress)
        taken, rest = take(fetched.waiting.chunks, limit, fetched.until)
        if not taken and not needs_refresh(start, known, self._clock.now()):
            return start, []
        end = next_offset(start, taken, rest, known=known, begun=fetched.begun)
        if taken:
            fetched.aligned.hand_out(taken)
            fetched.waiting.hand_out(taken, rest)
        fetched.is_dirty = bool(rest and taken)
        fetched.relieve()
        return end, taken

    def lag(self, planned: dict[ShardKey, datetime]) -> Lag | None:
        return None if self._loop is None else self._ask(self._lag(planned))

    async def _lag(self, planned: dict[ShardKey, datetime]) -> Lag:
        fetched = self.fetched
        return Lag.of(
            [] if fetched.fetcher is None else fetched.fetcher.statuses,
            oldest(fetched.waiting.chunks) | planned,
            self._clock.now(),
            buffered_records=fetched.waiting.records,
            buffered_bytes=fetched.waiting.payload_bytes,
            late=self._query.late,
            held_back_shards=len(fetched.aligned.lost),
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
        if self.fetched.is_over and self._result is not None:
            self._result.result()

    def close(self) -> None:
        """Stop fetching, close the connections, and drop the records that were not handed out."""
        # Not self._result.cancel(): that future would be done before the fetcher has cleaned up.
        if self._loop is not None:
            self._loop.close()
