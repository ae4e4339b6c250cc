"""The ranges planner: the driver finds the ends of ranges, the executors read the records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from kinesis_publishers.config import (
    RegistrationConfig,
    RegistrationStrategy,
)
from kinesis_publishers.event_loop import OpenInThread
from kinesis_publishers.readers import (
    ConsumerGuard,
    Ends,
    KinesisRangeFinder,
    Portion,
    open_services,
    publisher_factory_class,
    register_consumers,
)
from kinesis_publishers_spark.lag import Lag
from kinesis_publishers_spark.limits import BatchLimit, balanced
from kinesis_publishers_spark.micro_batches import MicroBatch, Query, Session
from kinesis_publishers_spark.offsets import Offset, ShardOffset, needs_refresh
from kinesis_publishers_spark.options import Alignment, SparkConfig
from kinesis_publishers_spark.partitions import RangePartition
from kinesis_publishers_spark.processes import freeze_source

if TYPE_CHECKING:
    from kinesis_publishers import Properties, ShardKey

# How long AvailableNow waits between two looks that found nothing.
_PAUSE_SECONDS = 0.1
# How long the end of a shard may wait for its micro-batch, which has no records.
_SETTLED_SECONDS = 1.0
# The most that a micro-batch of a backlog has for each core, unless the configuration says so.
_CORE_BYTES = 256 * 1024 * 1024


class RangeSession(Session):
    """Looks at a few records of each shard to plan, in its own thread."""

    def __init__(self, query: Query, resume: Offset, catch_up_to: datetime | None = None) -> None:
        super().__init__(query, resume, catch_up_to)
        # The start for which there was nothing to write, and how long not to look again: Spark
        # asks a hundred times a second, and comparing many shards takes its time.
        self._settled_at: Offset | None = None
        self._settled_until = float("-inf")
        self._thread: OpenInThread[KinesisRangeFinder] | None = None
        self._executor_properties: Properties | None = None
        config = SparkConfig.from_properties(query.properties)
        most_bytes = config.target_batch_bytes or _CORE_BYTES * query.parallelism
        self._portion = Portion(most_bytes=most_bytes)
        self._target_seconds = config.target_batch_seconds
        self._most_records = config.max_records_per_partition
        is_aligned = config.alignment is Alignment.ARRIVAL
        self._patience_seconds = config.alignment_patience_seconds if is_aligned else None
        # What looks for the end of the next micro-batch, within the limit of the last one, until
        # Spark asks for it.
        self._ahead: Future[None] | None = None
        self._limit: BatchLimit | None = None
        self._is_asked = asyncio.Event()
        # The size of the last micro-batch, and since when Spark works on it.
        self._at_work: tuple[int, float] | None = None

    def _opened(self) -> OpenInThread[KinesisRangeFinder]:
        if self._thread is None:
            self._thread = OpenInThread(self._prepared_finder(), name="kinesis-ranges")
        return self._thread

    @asynccontextmanager
    async def _prepared_finder(self) -> AsyncIterator[KinesisRangeFinder]:
        properties = self._query.properties
        # Of two tasks with subscriptions to one shard each would end the other's.
        cuts = not publisher_factory_class(properties).subscribes
        async with open_services(properties, clock=self._clock) as services:
            finder = KinesisRangeFinder(
                services,
                resume=self._resume,
                piece_records=self._most_records if cuts else None,
                patience_seconds=self._patience_seconds,
                late=self._query.late,
                aligned_until=self._query.aligned_until,
            )
            await finder.prepare()
            freeze_source()
            yield finder

    @property
    def begun(self) -> Offset:
        return Offset.of(self._opened().value.progress)

    def plan(self, start: Offset, limit: BatchLimit | None) -> MicroBatch | None:
        """Find where the next micro-batch ends, and about how large it is.

        Under AvailableNow it waits until there is something or everything is found.
        """
        opened = self._opened()
        ahead, self._ahead, self._limit = self._ahead, None, limit
        if ahead is not None:
            # It ends after the calls under way: their answers would be missing.
            opened.loop.call(self._is_asked.set)
            ahead.result()
        return opened.loop.start(self._plan(opened.value, start, limit)).result()

    def look_ahead(self) -> None:
        if self._thread is not None and self._ahead is None and self._limit is not None:
            self._is_asked.clear()
            work = self._look_ahead(self._thread.value, self._limit)
            self._ahead = self._thread.loop.start(work)

    async def _look_ahead(self, finder: KinesisRangeFinder, limit: BatchLimit) -> None:
        while not await finder.look_ahead(limit, self._portion, until=self._until):
            with suppress(TimeoutError):
                async with self._clock.timeout(_PAUSE_SECONDS):
                    await self._is_asked.wait()
                return

    @property
    def _until(self) -> datetime | None:
        return None if self._catch_up_to is None else self._catch_up_to + self._clock.skew

    async def _plan(
        self, finder: KinesisRangeFinder, start: Offset, limit: BatchLimit | None
    ) -> MicroBatch | None:
        if limit is None:
            return self._batch(finder, start, await finder.find_tip())
        until = self._until
        self._learn_rate()
        is_first = not self._resume and self._query.aligned_until is None and until is None
        portion = evolve(self._portion, is_first=is_first)
        found = await finder.find(limit, portion, until=until)
        while until is not None and not found and not finder.is_caught_up(until):
            await self._clock.sleep(_PAUSE_SECONDS)
            found = await finder.find(limit, portion, until=until)
        is_settled = start is self._settled_at and self._clock.monotonic() < self._settled_until
        if until is None and not found and is_settled:
            return None
        return self._batch(finder, start, found)

    def _learn_rate(self) -> None:
        """Learn from Spark's coming back how long the last micro-batch took."""
        if self._at_work is None:
            return
        payload_bytes, since = self._at_work
        seconds = self._clock.monotonic() - since
        self._portion = self._portion.after(
            payload_bytes, seconds, target_seconds=self._target_seconds
        )
        self._at_work = None

    def _batch(self, finder: KinesisRangeFinder, start: Offset, found: Ends) -> MicroBatch | None:
        self._query.aligned_until = finder.aligned_until
        known = Offset.of(finder.progress)
        if not found and not needs_refresh(start, known, self._clock.now()):
            self._settled_at = start
            self._settled_until = self._clock.monotonic() + _SETTLED_SECONDS
            return None
        shards = {
            key: ShardOffset(
                progress=one.progress, first=found[key].first if key in found else None
            )
            for key, one in known.shards.items()
        }
        end = evolve(known, shards=shards)
        if end == start:
            return None
        payload_bytes = sum(one.payload_bytes or 0 for one in found.values())
        self._at_work = payload_bytes, self._clock.monotonic()
        # Shards that have ended without records are found, too.
        is_empty = all(one.size is not None and one.size.records == 0 for one in found.values())
        return MicroBatch(
            start=start,
            end=end,
            records=0 if is_empty else None,
            payload_bytes=payload_bytes,
            oldest=_oldest(start, found),
            partitions=partial(self._partitions, start, end, found),
        )

    def replay(self, start: Offset, end: Offset) -> list[RangePartition]:
        return self._partitions(start, end, None)

    def _partitions(self, start: Offset, end: Offset, found: Ends | None) -> list[RangePartition]:
        """Return the tasks for the records between two offsets, balanced by expected bytes."""
        ranges = end.ranges_since(start)
        if not ranges:
            return []
        if self._executor_properties is None:
            self._executor_properties = executor_properties(
                self._query.properties, end.streams.keys() - end.left_out, self._query.guard
            )
        task = partial(RangePartition, self._executor_properties)
        if found is None:
            return [task(group) for group in balanced(ranges, None, self._query.parallelism)]
        cut = [
            found[one.shard].divided(one) if one.shard in found else [(one, 0)] for one in ranges
        ]
        whole = [pieces[0] for pieces in cut if len(pieces) == 1]
        groups = balanced(
            whole,
            [size for _, size in whole],
            self._query.parallelism,
            capacity=self._capacity(found),
        )
        # The pieces of a shard are never in one task, which would read them at the same time.
        alone = [(piece,) for pieces in cut if len(pieces) > 1 for piece in pieces]
        return [
            task(tuple(one for one, _ in group), sum(size for _, size in group))
            for group in [*alone, *groups]
        ]

    def _capacity(self, found: Ends) -> int:
        """Return how many bytes a task of several shards has at most."""
        payload_bytes = sum(one.payload_bytes or 0 for one in found.values())
        records = sum(one.user_records for one in found.values())
        if self._most_records is None or not records:
            return sys.maxsize
        return max(1, payload_bytes * self._most_records // records)

    def lag(self, planned: dict[ShardKey, datetime]) -> Lag | None:
        if self._thread is None:
            return None
        # On the loop, which may look ahead.
        return self._thread.loop.start(self._lag(self._thread.value, planned)).result()

    async def _lag(self, finder: KinesisRangeFinder, planned: dict[ShardKey, datetime]) -> Lag:
        return Lag.of(
            finder.statuses,
            finder.waiting_since | planned,
            self._clock.now(),
            late=self._query.late,
            held_back_shards=len(finder.rounds.lost),
            aligned_until=self._query.aligned_until,
        )

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
        if self._thread is not None:
            self._thread.close()


def _oldest(start: Offset, found: Ends) -> dict[ShardKey, datetime]:
    oldest = {}
    for key, end in found.items():
        arrival, before = end.first_arrival, start.shards.get(key)
        if arrival is None and before is not None:
            # The first record was not looked at: what arrived earlier is committed.
            arrival = before.progress.as_of
        if arrival is not None:
            oldest[key] = arrival
    return oldest


def executor_properties(
    properties: Properties, stream_arns: Iterable[str], guard: ConsumerGuard | None
) -> Properties:
    """Register the stream consumers that are needed; return properties that name them.

    Args:
        properties: the configuration of the source.
        stream_arns: the streams that are read.
        guard: removes the consumers after the end of this process; ``None`` to keep them.

    Raises:
        AccessDeniedError: the credentials do not allow it; the missing action is named.
        LimitExceededError: a stream has as many consumers as it may have.
    """
    if not publisher_factory_class(properties).needs_registration:
        return properties
    if guard is not None:
        # Before anything is registered: whenever this process is killed, either the guard holds a
        # lease on its consumers or it has not made any.
        guard.hold(stream_arns)
    if RegistrationConfig.from_properties(properties).strategy is RegistrationStrategy.NONE:
        return properties
    registered = register_consumers(_with_strategy(properties, RegistrationStrategy.EAGER))
    return _with_strategy(registered, RegistrationStrategy.NONE)


def _with_strategy(properties: Properties, strategy: RegistrationStrategy) -> Properties:
    return properties.with_values({RegistrationConfig.strategy: strategy.value})
