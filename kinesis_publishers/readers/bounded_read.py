"""Plans a batch read: exactly which records of which shards, before any of them is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self, TypeVar

from attrs import evolve, frozen

from kinesis_publishers.assembly import Services, open_services
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPositionConfig,
    Properties,
    StreamsConfig,
)
from kinesis_publishers.engine.data_loss import SHARD_NOT_FOUND
from kinesis_publishers.engine.ending import VISIBLE_AFTER, next_millisecond
from kinesis_publishers.errors import InvalidOptionError, PositionTrimmedError
from kinesis_publishers.events import EventSink
from kinesis_publishers.model import (
    Positions,
    PositionType,
    Scope,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    ShardRange,
    StartingPosition,
    is_after,
)
from kinesis_publishers.readers.ranges.seen_records import SeenRecords
from kinesis_publishers.readers.ranges.shard_probe import ShardProbe, read_page
from kinesis_publishers.tasks import TaskScope

_T = TypeVar("_T")

_LOOKS_AT_ONCE = 32


async def plan_batch(
    properties: Properties,
    loaded_at: datetime,
    narrowing: Narrowing,
    *,
    events: EventSink | None = None,
    clock: Clock | None = None,
) -> list[ShardRange]:
    """Return the ranges of a batch that was loaded at an instant, in a fixed order.

    A look at the end of the batch gives the record that follows it, before which the range ends.
    Where nothing follows, the range ends at an instant, or with its closed shard. It may be empty.
    What ``narrowing`` leaves out is neither searched nor read.

    Raises:
        StreamNotFoundError: a stream does not exist.
        InvalidOptionError: the options end an open shard at SHARD_END.
        DataLossError: a position or a shard that is named is gone, and loss is not tolerated.
    """
    streams = StreamsConfig.from_properties(properties).streams
    names = [one.reference for one in streams if narrowing.needs_stream(one.name)]
    async with open_services(properties, events=events, clock=clock) as services:
        arns = [(await services.discovery.describe(name)).identity.arn for name in names]
        # LATEST was taken from this machine's clock, before the service had told the time.
        loaded_at += services.clock.skew
        bounds = BatchBounds.from_properties(properties, loaded_at=loaded_at).narrowed(narrowing)
        plan = _BatchPlan(services, bounds)
        # Shards that begin later hold nothing from before the end, either.
        await services.clock.sleep((bounds.settled_at - services.clock.now()).total_seconds())
        return await plan.ranges(arns, narrowing)


@frozen
class _BatchPlan:
    _services: Services
    _bounds: BatchBounds

    async def ranges(self, streams: Sequence[str], narrowing: Narrowing) -> list[ShardRange]:
        found: dict[ShardKey, ShardRange | None] = {}
        turns = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def look(shard: Shard) -> None:
            async with turns:
                found[shard.key] = await self._range_of(shard)

        listed = [shard for arn in streams for shard in await self._list_shards(arn)]
        async with TaskScope() as scope:
            for shard in listed:
                if narrowing.needs_shard(shard) and not self._bounds.is_empty(shard.key):
                    scope.spawn(look(shard), name=f"find the end of {shard}")
        keys = sorted(found, key=lambda key: (streams.index(key.stream_arn), key.shard_id))
        return [one for key in keys if (one := found[key]) is not None]

    async def _list_shards(self, stream_arn: str) -> list[Shard]:
        services, bounds = self._services, self._bounds
        since = bounds.listed_since(stream_arn)
        listed = await services.discovery.list_shards(stream_arn, since=since)
        services.assigner.check_listing(listed)
        shards = list(filter(services.assigner.reads, listed))
        services.data_loss.check_named(stream_arn, bounds.named_shards(stream_arn), shards)
        return shards

    async def _range_of(self, shard: Shard) -> ShardRange | None:
        start, until = self._bounds.starts.of(shard.key), self._bounds.ends.of(shard.key)
        assert start is not None, "an empty range is not searched"
        whole = ShardRange(shard=shard.key, start=start, end=None)
        if until is None:
            if shard.is_closed:
                return whole
            raise InvalidOptionError(
                f"{shard} ends at SHARD_END by the options, but it is open: it has no end yet. Use "
                "LATEST for what it holds now."
            )
        for begin in (start, StartingPosition.trim_horizon()):
            try:
                return await self._range_between(shard, begin, until)
            except PositionTrimmedError as error:
                self._services.data_loss.report(
                    shard.key,
                    f"the batch reads from {begin} to {until}, and one of these positions is no "
                    "longer available.",
                    cause=error,
                )
        # The end itself is gone, and so is everything before it.
        return None

    async def _range_between(
        self, shard: Shard, start: StartingPosition, until: StartingPosition
    ) -> ShardRange | None:
        following = await self._first_record(shard, until)
        if start.sequence_number is not None or until.sequence_number is not None:
            # A number and an instant are not comparable, and a number may be gone.
            first = await self._first_record(shard, start)
            if first is None or (following is not None and first >= following):
                return None
        excludes_end = following is not None
        one = ShardRange(shard=shard.key, start=start, end=following, excludes_end=excludes_end)
        if excludes_end or (until.timestamp is not None and shard.is_closed):
            return one
        if until.timestamp is None:
            return evolve(one, end=until.sequence_number)
        # An empty answer shows the tip to what polls.
        if self._services.range_factory is self._services.polling:
            return evolve(one, until=until.timestamp)
        return await self._ended_range(shard, one, until.timestamp)

    async def _first_record(
        self, shard: Shard, position: StartingPosition
    ) -> SequenceNumber | None:
        """Return the record that reading from ``position`` begins with, ``None`` without one.

        What ends immediately before it and what begins at ``position`` touch without sharing a
        record, for any arrival times: those are neither exact nor in order. A record is never put
        in front of one that has been seen, so it stays the first one until the retention removes
        it. An instant that the service's clock has not reached is waited for, up to a minute.
        """
        # Always by polling: a subscription belongs to one reader.
        publisher = await self._services.polling.create(position, shard)
        page = None
        while page is None or not (len(page.batch) or page.is_last):
            page = await self._found(shard, position, partial(read_page, publisher, 1))
        return page.batch.first_sequence_number if len(page.batch) else None

    async def _ended_range(
        self, shard: Shard, one: ShardRange, until: datetime
    ) -> ShardRange | None:
        """Return ``one`` with a last record, behind which nothing had arrived before ``until``."""
        seen = SeenRecords(ShardProgress(position=one.start))
        probe = ShardProbe(shard, seen, self._services)
        await self._found(shard, one.start, lambda: probe.reach_tip(until))
        end = probe.take(probe.seen.count_before(until))
        if end is None or (position := end.progress.position) == one.start:
            return None
        excludes_end = position.type is PositionType.AT_SEQUENCE_NUMBER
        return evolve(one, end=position.sequence_number, excludes_end=excludes_end)

    async def _found(
        self, shard: Shard, position: StartingPosition, look: Callable[[], Awaitable[_T]]
    ) -> _T:
        """Look, again while the service does not find a shard that it lists."""
        missing = self._services.data_loss.missing(shard)
        while True:
            try:
                return await look()
            except SHARD_NOT_FOUND as error:
                if await missing.has_left(error, ShardProgress(position=position)):
                    raise


# How far arrival times may be out of order within a shard. Records are found by the service's own
# index of times; a record may bear another time than its neighbours.
_SLACK = timedelta(minutes=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class Narrowing:
    """What a query needs: these streams, shards and times of arrival; ``None`` needs all."""

    stream_names: frozenset[str] | None = None
    shard_ids: frozenset[str] | None = None
    arrived_since: datetime | None = None
    arrived_until: datetime | None = None

    def needs_stream(self, name: str) -> bool:
        return self.stream_names is None or name in self.stream_names

    def needs_shard(self, shard: Shard) -> bool:
        return self.needs_stream(shard.stream_name) and (
            self.shard_ids is None or shard.shard_id in self.shard_ids
        )


@frozen(kw_only=True)
class BatchBounds:
    """Between which positions the records of a batch stand.

    Reading begins at ``starts`` and ends before ``ends``: a batch that begins where another one
    ends continues without a gap and without repeating a record.
    """

    starts: Positions
    ends: Positions

    @classmethod
    def from_properties(cls, properties: Properties, *, loaded_at: datetime) -> Self:
        """Read the bounds, without checking that they can work.

        Without a starting position, reading begins at TRIM_HORIZON. ``loaded_at`` is the instant
        that LATEST means, and the latest possible end.
        """
        loaded_at = next_millisecond(loaded_at)
        initial = InitialPositionConfig.from_properties(properties)
        has_start = initial.timestamp is not None
        start = initial.positions.default if has_start else StartingPosition.trim_horizon()
        starts = evolve(initial.positions, default=start)
        ends = EndingPositionConfig.from_properties(properties).positions
        return cls(
            starts=starts.moved(lambda one: one.pinned(loaded_at)),
            # What has not arrived yet would be in one action and not in the one before it.
            ends=ends.moved(lambda one: _earlier(one.pinned(loaded_at), loaded_at)),
        )

    @property
    def scopes(self) -> frozenset[Scope]:
        """The shards and streams that have positions of their own."""
        return frozenset((*self.starts.own, *self.ends.own))

    def named_shards(self, stream_arn: str) -> frozenset[str]:
        """Return the ids of the shards of a stream that have positions of their own."""
        return frozenset((*self.starts.of_shards(stream_arn), *self.ends.of_shards(stream_arn)))

    @property
    def settled_at(self) -> datetime:
        """When everything that arrived before the end can be read.

        Later no record from before it appears: each action and each attempt reads the same ones.
        """
        instants = [one.timestamp for one in self.ends if one.timestamp]
        return max(instants, default=_EPOCH) + VISIBLE_AFTER

    def listed_since(self, stream_arn: str) -> datetime | None:
        """Return the instant before which closed shards do not matter; ``None`` if all do."""
        if self.named_shards(stream_arn):
            return None
        return self.starts.of_stream(stream_arn).timestamp

    def narrowed(self, narrowing: Narrowing) -> BatchBounds:
        """Return bounds within these that hold every record that is needed, and some more.

        A reader that needs exactly these times must check each record. Sequence numbers of single
        shards stay as they are.
        """
        lowest = _shifted(narrowing.arrived_since, -_SLACK)
        highest = _shifted(narrowing.arrived_until, _SLACK)
        return evolve(
            self,
            starts=self.starts.moved(lambda one: _later(one, lowest)),
            ends=self.ends.moved(lambda one: _earlier(one, highest)),
        )

    def is_empty(self, shard: ShardKey) -> bool:
        """Return whether nothing of a shard is read."""
        start, until = self.starts.of(shard), self.ends.of(shard)
        return start is None or (until is not None and (start == until or is_after(start, until)))


def _shifted(instant: datetime | None, by: timedelta) -> datetime | None:
    if instant is None:
        return None
    try:
        return max(_EPOCH, instant + by)
    except OverflowError:  # the first or the last day of all: no bound
        return None


def _later(position: StartingPosition, instant: datetime | None) -> StartingPosition:
    if instant is None or position.sequence_number is not None:
        return position
    return StartingPosition.at_timestamp(max(instant, position.timestamp or instant))


def _earlier(position: StartingPosition, instant: datetime | None) -> StartingPosition:
    if instant is None or position.timestamp is None:
        return position
    return StartingPosition.at_timestamp(min(instant, position.timestamp))
