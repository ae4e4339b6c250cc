"""Holds what a fetcher delivers for prefetched micro-batches until it is handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from kinesis_publishers import Delivery, DeliverySink, KinesisDataFetcher, ShardKey, ShardStatus
from kinesis_publishers.readers import TaskScope
from kinesis_publishers_spark.alignment import AlignedShards
from kinesis_publishers_spark.chunks import Chunk
from kinesis_publishers_spark.offsets import Offset
from kinesis_publishers_spark.options import SparkConfig
from kinesis_publishers_spark.schema import Columns, to_spark_arrow
from kinesis_publishers_spark.tip_polls import TipPolls
from kinesis_publishers_spark.waiting import WaitingChunks

if TYPE_CHECKING:
    from kinesis_publishers_spark.micro_batches import Query

# Converting this many rows takes about ten milliseconds. Only aggregates exceed it in one answer.
_MOST_ROWS_IN_LOOP = 10_000
# How often the shards are checked for changes without an answer.
_LOOK_SECONDS = 1.0
# How far the service's clock may be ahead unnoticed: its answers have whole seconds.
_CLOCKS_DIFFER = timedelta(seconds=1)


class FetchedRecords(DeliverySink):
    """Converts what a fetcher delivers, and keeps it until a micro-batch takes it.

    Buffered records hold their share of the pending pool: fetching pauses when Spark does not keep
    up. Everything runs on one event loop, without locks.

    Attributes:
        fetcher: reads the shards, ``None`` until it is prepared.
        begun: where each shard begins.
        waiting: the fetched records that were not handed out.
        aligned: the positions of the shards in time.
        polls: the polls of shards at their tips.
        is_dirty: whether something has changed since the last micro-batch was planned.
        is_over: whether the fetcher has ended, or failed.
    """

    packs_columns = True

    def __init__(self, query: Query, catch_up_to: datetime | None = None) -> None:
        self._clock, self._catch_up_to = query.clock, catch_up_to
        self._columns = Columns.of(SparkConfig.from_properties(query.properties))
        self.fetcher: KinesisDataFetcher | None = None
        self.begun = Offset()
        self.waiting = WaitingChunks()
        self.aligned = AlignedShards(query, self._note_instant)
        self.polls = TipPolls(self._clock)
        self.is_dirty = self.is_over = False
        self._activity = asyncio.Event()

    @asynccontextmanager
    async def attached(self, fetcher: KinesisDataFetcher) -> AsyncIterator[None]:
        """Take what ``fetcher`` reads meanwhile; it is prepared and has this as its sink."""
        self.begun = Offset.of(fetcher.progress)
        self.fetcher = fetcher
        self._activity.set()
        async with TaskScope() as scope:
            looking = scope.spawn(self._look_periodically(fetcher), name="look at the shards")
            try:
                yield
            finally:
                looking.cancel()

    def end(self) -> None:
        """Record that the deliveries have ended."""
        self.is_over = True
        self._activity.set()

    async def _look_periodically(self, fetcher: KinesisDataFetcher) -> None:
        # Not when Spark asks: its next question may be a minute away.
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.aligned.look(fetcher, is_waiting=bool(self.waiting.chunks))
            self.relieve()

    async def deliver(self, delivery: Delivery) -> None:
        shard, fetcher, batch = delivery.shard, self.fetcher, delivery.batch
        convert = partial(to_spark_arrow, batch, self._columns)
        # Aggregates may hold a million records, and the loop reads other shards meanwhile.
        is_small = len(batch) <= _MOST_ROWS_IN_LOOP
        rows = convert() if is_small else await asyncio.to_thread(convert)
        ancestors = frozenset() if fetcher is None else fetcher.ancestors_of(shard.key)
        # The rows now have the records: only the delivery's share of the pool is kept.
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
        if self.fetcher is not None:
            await self.aligned.wait(shard, self.fetcher.pool)
        # Not now, but when the shard waits for room.
        asyncio.get_running_loop().call_soon(self.relieve)
        if self._catch_up_to is None:
            await self.polls.wait(shard)

    def observe(self, status: ShardStatus) -> None:
        self.polls.observe(status)
        self.aligned.observe(status)
        self.relieve()
        if status.progress.is_ended:
            self._mark_dirty()
        until, fetcher = self._catch_up_to, self.fetcher
        if until is None or fetcher is None:
            return
        if status.is_read_until(until + self._clock.skew):
            fetcher.finish_shard(status.shard.key)
            self.aligned.finish(status.shard.key)
            self._activity.set()

    def observe_discovery(self) -> None:
        if self.fetcher is not None:
            self.aligned.follow(self.fetcher)
        self._activity.set()

    def _note_instant(self) -> None:
        if self.waiting.chunks:
            self._mark_dirty()

    def _mark_dirty(self) -> None:
        self.is_dirty = True
        self._activity.set()

    def relieve(self) -> None:
        """Let shards continue if that frees room, or if there is room."""
        if self.fetcher is not None:
            until = self.until
            self.aligned.relieve(self.fetcher.pool, lambda: self.waiting.are_early(until))

    @property
    def until(self) -> datetime:
        """The arrival up to which records are handed out."""
        if self._catch_up_to is None or not self.aligned.is_on:
            return self.aligned.until
        # A shard that was read far enough may have later records.
        end = self._catch_up_to + self._clock.skew + _CLOCKS_DIFFER
        return end if self.is_caught_up else min(end, self.aligned.until)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that AvailableNow reads has been fetched."""
        return self.is_over or (self.fetcher is not None and self.fetcher.is_finished)

    async def prepared(self) -> Offset:
        """Return the start of each shard, once it is known or the fetcher has failed."""
        while self.fetcher is None and not self.is_over:
            await self.wait_for_activity()
        return self.begun

    async def wait_while(self, is_early: Callable[[], bool], seconds: float) -> None:
        """Wait until an activity makes ``is_early()`` false, for ``seconds`` at most."""
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                while is_early():
                    await self.wait_for_activity()

    async def wait_for_activity(self) -> None:
        """Wait until something is delivered, observed or discovered."""
        self._activity.clear()
        await self._activity.wait()
