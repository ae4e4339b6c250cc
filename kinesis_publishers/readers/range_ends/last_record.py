"""Finds the exact last record before a place in a shard, for which Kinesis has no call.

Batches and Trigger.Once end with that record. Arrival times say only where to look: the result
rests on the order of the records alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.delivery import SHARD_NOT_FOUND, MissingShard
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisher

# Enough to see the whole tail of a quiet shard at once; of a busy one it is a sample.
_LOOK_RECORDS = 100
# What a producer can write to a shard in the second that is left in the end (AWS service limits).
_TAIL_RECORDS = 1000
# Only if arrival times say nothing, as when all records bear the same one.
_BULK_RECORDS = 10_000
_FIRST_STEP = timedelta(seconds=1)
_GROWTH = 4
# Further apart than the longest retention (365 days) no two records are.
_LONGEST_STEP = timedelta(days=366)


@frozen(kw_only=True)
class ShardPage:
    """The answer to one GetRecords, which may be empty with records still ahead.

    Attributes:
        has_ended: the shard is closed and nothing follows.
    """

    batch: RecordBatch
    has_ended: bool = False

    @property
    def is_last(self) -> bool:
        """Whether nothing followed when the page was asked for."""
        return self.has_ended or self.batch.millis_behind_latest == 0


ReadPages: TypeAlias = "Callable[[Shard, StartingPosition, int], AsyncGenerator[ShardPage, None]]"
"""Yields the pages of a shard from a position on, of at most so many records each.

It continues beyond the tip, and stops only after the end of a closed shard. A throttle or an
iterator that has expired does not show."""


class TipSearch:
    """Searches shards for the last record before a place.

    The place is a position ``until``, and "before" is what the service's own order makes of it: the
    last record before ``until`` is the one that stands immediately before the first record that
    reading from ``until`` gives. So what ends there and what begins there touch without sharing a
    record; arrival times, which are neither exact nor in order within a shard, do not matter.

    A record is never put in front of one that has been seen. As soon as some record stands at or
    after ``until``, the answer is therefore the same for ever, up to what the retention removes.
    Until then the answer is the last record that the service showed, and one that it shows later
    although it arrived before ``until`` is missing from it.

    Where up to a hundred records are in question, a search costs two looks, three if nothing has
    come after them. Otherwise the number of looks grows with the logarithm of the time that the
    records span. A look is one GetShardIterator and, mostly, one small GetRecords.

    Args:
        clock: where to begin to look for a sequence number that is not there yet.
    """

    def __init__(self, read_pages: ReadPages, clock: Clock) -> None:
        self._read_pages = read_pages
        self._clock = clock

    async def last_record(
        self, shard: Shard, *, since: StartingPosition, until: StartingPosition
    ) -> SequenceNumber | None:
        """Return the last record before ``until``; ``None`` if there is none from ``since`` on.

        Args:
            since: where the reader begins.
            until: an instant or a record; not LATEST. An instant that the service's clock has not
                reached is waited for, up to a minute.

        Raises:
            PositionTrimmedError: the service no longer knows a sequence number.
            ServiceError: a failure that retrying does not cure.
        """
        while True:
            follower, arrival = await self._first_record(shard, until) or (None, None)
            anchor = until.timestamp or self._clock.now()
            if arrival is not None:
                # Where ``until`` is a record, this is when it arrived.
                anchor = min(anchor, arrival)
            last = await _Search(self._read_pages, shard, follower).run(since, anchor)
            # Without a follower the search went to the tip, which may have moved beyond ``until``
            # meanwhile. It goes round at most once: the first follower stays the first.
            if follower is not None or await self._first_record(shard, until) is None:
                return last

    async def is_read_out(self, shard: Shard, position: StartingPosition) -> bool:
        """Say whether a closed shard holds nothing from ``position`` on."""
        return await self._first_record(shard, position) is None

    async def _first_record(
        self, shard: Shard, position: StartingPosition
    ) -> tuple[SequenceNumber, datetime] | None:
        async with aclosing(self._read_pages(shard, position, 1)) as pages:
            async for page in pages:
                batch = page.batch
                if batch.last_arrival is not None:
                    return batch.first_sequence_number, batch.last_arrival
                if page.is_last:
                    break
        return None


@frozen(kw_only=True)
class _Look:
    """What one look has shown.

    Attributes:
        found: whether there were records before the follower.
        is_complete: whether they reach up to the follower, or to the tip.
        arrival: the latest arrival time among them.
    """

    found: bool
    is_complete: bool
    arrival: datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.found and self.is_complete


@define
class _Search:
    """The last record before ``follower``, or before the tip if there is no follower."""

    _read_pages: ReadPages
    _shard: Shard
    _follower: SequenceNumber | None
    _last: SequenceNumber | None = field(default=None, init=False)

    async def run(self, since: StartingPosition, anchor: datetime) -> SequenceNumber | None:
        head = await self._look(since)
        if not head.is_complete and not await self._approach(head, anchor):
            await self._read_on()
        return self._last

    async def _approach(self, head: _Look, anchor: datetime) -> bool:
        """Look ever further back, then closer; say whether the last record has been found."""
        assert head.arrival is not None, "an incomplete look has records"
        low, high, step = head.arrival, anchor, _FIRST_STEP
        while anchor - step > low and step < _LONGEST_STEP:
            instant, step = anchor - step, step * _GROWTH
            look = await self._look(StartingPosition.at_timestamp(instant))
            if look.is_over:
                return True
            if look.found:
                low = instant
                break
            high = instant
        return await self._bisect(low, high)

    async def _bisect(self, low: datetime, high: datetime) -> bool:
        while high - low > _FIRST_STEP:
            middle = low + (high - low) / 2
            look = await self._look(StartingPosition.at_timestamp(middle))
            if look.is_over:
                return True
            if look.found:
                low = middle
            else:
                high = middle
        return False

    async def _read_on(self) -> None:
        """Read from the last record that is known up to the follower or the tip."""
        limit = _TAIL_RECORDS
        while True:
            assert self._last is not None, "an incomplete look has records"
            look = await self._look(StartingPosition.after(self._last), limit)
            if look.is_complete:
                return
            limit = _BULK_RECORDS

    async def _look(self, position: StartingPosition, limit: int = _LOOK_RECORDS) -> _Look:
        async with aclosing(self._read_pages(self._shard, position, limit)) as pages:
            async for page in pages:
                look = self._look_at(page)
                # Otherwise there is nothing to see yet: an empty answer with records still ahead.
                if look.found or look.is_complete:
                    return look
        return _Look(found=False, is_complete=True)

    def _look_at(self, page: ShardPage) -> _Look:
        count = self._count_before_follower(page.batch)
        before = page.batch.slice(0, count)
        if (last := before.last_sequence_number) is not None:
            self._last = last if self._last is None else max(self._last, last)
        return _Look(
            found=count > 0,
            is_complete=count < len(page.batch) or page.is_last,
            arrival=before.last_arrival,
        )

    def _count_before_follower(self, batch: RecordBatch) -> int:
        if self._follower is None:
            return len(batch)
        count = batch.count_up_to(self._follower)
        is_there = batch.slice(0, count).last_sequence_number == self._follower
        return count - 1 if is_there else count


CreatePollingPublisher: TypeAlias = Callable[
    [StartingPosition, Shard], Awaitable[PollingRecordPublisher]
]


async def read_page(publisher: PollingRecordPublisher) -> ShardPage | None:
    """Let ``publisher`` make one call; no page says that it has to be made again later."""
    consumer = _OnePage()
    has_ended = await publisher.run(consumer) is RunResult.COMPLETE
    return None if consumer.batch is None else ShardPage(batch=consumer.batch, has_ended=has_ended)


class _OnePage(RecordBatchConsumer):
    def __init__(self) -> None:
        self.batch: RecordBatch | None = None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Ask for nothing: a search holds one page per shard, and drops it at once."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.batch = batch.in_order()
        return self.batch.last_sequence_number


class PolledPages:
    """Pages of GetRecords: the publisher handles throttles, retries and expired iterators.

    Args:
        missing: makes what decides if the service does not find a shard.
    """

    def __init__(
        self,
        create_publisher: CreatePollingPublisher,
        missing: Callable[[Shard], MissingShard],
    ) -> None:
        self._create_publisher = create_publisher
        self._missing = missing

    async def read(
        self, shard: Shard, position: StartingPosition, limit: int
    ) -> AsyncGenerator[ShardPage, None]:
        """Yield the pages of a shard, as :data:`ReadPages` says."""
        publisher, missing = await self._create_publisher(position, shard), self._missing(shard)
        page = None
        while page is None or not page.has_ended:
            # Before each call: adaptive reads change it.
            publisher.limit = limit
            try:
                page = await read_page(publisher)
            except SHARD_NOT_FOUND as error:
                if await missing.has_left(error, ShardProgress(position=position)):
                    raise
                continue
            if page is not None:
                missing.reset()
                yield page
