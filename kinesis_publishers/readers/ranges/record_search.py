"""Finds the first record after a place in a shard, and the last record of a silent shard."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TypeAlias

from attrs import define, field, frozen

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.engine.alignment import count_before
from kinesis_publishers.engine.consumer_context import SHARD_NOT_FOUND, MissingShard
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisher

# The whole tail of a quiet shard, and a sample of a busier one.
_LOOK_RECORDS = 100
# What producers can write to a shard in the second that is left in the end (AWS service limits).
_TAIL_RECORDS = 1000
# Where arrival times do not help, as when all records bear the same one.
_BULK_RECORDS = 10_000
_FIRST_STEP = timedelta(seconds=1)
_GROWTH = 4


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
"""Yields the pages of a shard from a position on, of at most ``limit`` records each.

It continues beyond the tip, and stops only after the end of a closed shard. A throttle or an
iterator that has expired does not show."""


class RecordSearch:
    """Searches shards for records that no call of Kinesis finds.

    A look is one GetShardIterator and, mostly, one small GetRecords.
    """

    def __init__(self, read_pages: ReadPages) -> None:
        self._read_pages = read_pages

    async def first_record(self, shard: Shard, position: StartingPosition) -> SequenceNumber | None:
        """Return the record that reading from ``position`` begins with, in one look.

        What ends immediately before it and what begins at ``position`` touch without sharing a
        record, for any arrival times: those are neither exact nor in order. A record is
        never put in front of one that has been seen. So a record that was found stays the first
        one, up to what the retention removes.

        Args:
            position: an instant or a record; not LATEST. An instant that the service's clock has
                not reached is waited for, up to a minute.

        Returns:
            ``None`` if there is no such record yet, or the shard has ended before it.

        Raises:
            PositionTrimmedError: the service no longer knows a sequence number.
            ServiceError: a failure that retrying does not cure.
        """
        async with aclosing(self._read_pages(shard, position, 1)) as pages:
            async for page in pages:
                if len(page.batch):
                    return page.batch.first_sequence_number
                if page.is_last:
                    break
        return None

    async def last_record(
        self, shard: Shard, *, since: StartingPosition, until: datetime
    ) -> SequenceNumber | None:
        """Return the last record of a shard in which there was none from ``until`` on.

        Where up to a hundred records are in question that is one look, and a second one finds the
        end of a shard that has been silent for no more than a second. Otherwise the number of looks
        grows with the logarithm of the time that the records span.

        Args:
            since: where to begin.
            until: an instant so long ago that everything that had arrived before it is visible.
                What has come since is recognized by its arrival time.

        Returns:
            ``None`` if there is no record from ``since`` on.

        Raises:
            PositionTrimmedError: the service no longer knows a sequence number.
            ServiceError: a failure that retrying does not cure.
        """
        return await _LastRecordSearch(self._read_pages, shard, until).run(since)


@frozen(kw_only=True)
class _Look:
    """What one look has shown.

    Attributes:
        found: whether there were records before the instant.
        is_complete: whether they are all that there is from there on.
        arrival: the latest arrival time among them.
    """

    found: bool
    is_complete: bool
    arrival: datetime | None = None


@define
class _LastRecordSearch:
    """The last record of a shard before the tip, or before what has arrived from ``until`` on."""

    _read_pages: ReadPages
    _shard: Shard
    _until: datetime
    _last: SequenceNumber | None = field(default=None, init=False)

    async def run(self, since: StartingPosition) -> SequenceNumber | None:
        head = await self._look(since)
        if not head.is_complete and not await self._approach(head):
            await self._read_on()
        return self._last

    async def _approach(self, head: _Look) -> bool:
        """Look ever further back, then closer; say whether the last record has been found."""
        assert head.arrival is not None, "an incomplete look has records"
        low, high, step = head.arrival, self._until, _FIRST_STEP
        while high - low > _FIRST_STEP:
            instant = max(high - step, low + (high - low) / 2)
            look = await self._look(StartingPosition.at_timestamp(instant))
            if look.found and look.is_complete:
                return True
            if look.found:
                low, step = instant, high - low
            else:
                high, step = instant, min(step * _GROWTH, high - low)
        return False

    async def _read_on(self) -> None:
        """Read from the last record that is known to the end."""
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
                before = page.batch.slice(
                    0, count_before(page.batch.arrival_epoch_seconds, self._until)
                )
                if (last := before.last_sequence_number) is not None:
                    self._last = last if self._last is None else max(self._last, last)
                # Otherwise there is nothing to see yet: an empty answer with records still ahead.
                if len(page.batch) or page.is_last:
                    # One that its Limit cuts off may have the arrival time of the tip.
                    is_cut = len(page.batch) >= limit and not page.has_ended
                    return _Look(
                        found=len(before) > 0,
                        is_complete=len(before) < len(page.batch) or (page.is_last and not is_cut),
                        arrival=before.last_arrival,
                    )
        return _Look(found=False, is_complete=True)


CreatePollingPublisher: TypeAlias = Callable[
    [StartingPosition, Shard], Awaitable[PollingRecordPublisher]
]


async def read_page(publisher: PollingRecordPublisher) -> ShardPage | None:
    """Let ``publisher`` make one call; without a page, the call has to be made again later."""
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


async def polled_pages(
    create_publisher: CreatePollingPublisher,
    missing_of: Callable[[Shard], MissingShard],
    shard: Shard,
    position: StartingPosition,
    limit: int,
) -> AsyncGenerator[ShardPage, None]:
    """Yield the pages of a shard as :data:`ReadPages` says."""
    publisher, missing = await create_publisher(position, shard), missing_of(shard)
    page: ShardPage | None = None
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
