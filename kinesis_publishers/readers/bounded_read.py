"""Plans a batch read: exactly which records of which shards, before any of them is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Self

from attrs import evolve, field, frozen

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.assembly import open_services
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPositionConfig,
    Properties,
    StreamsConfig,
)
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import InvalidOptionError, PositionTrimmedError
from kinesis_publishers.events import EventSink
from kinesis_publishers.model import Shard, ShardKey, ShardProgress, ShardRange, StartingPosition
from kinesis_publishers.readers.range_ends.last_record import PolledPages, TipSearch
from kinesis_publishers.readers.range_reader import RangePublishers
from kinesis_publishers.tasks import TaskScope

_LOOKS_AT_ONCE = 32
# A record can typically be read less than a second after it was put (AWS, Kinesis FAQs). Later no
# record from before the end appears, so that each action and each attempt reads the same ones.
_VISIBLE_AFTER = timedelta(seconds=1)


async def plan_batch(
    properties: Properties,
    bounds: BatchBounds,
    narrowing: Narrowing,
    *,
    events: EventSink | None = None,
    clock: Clock | None = None,
) -> list[ShardRange]:
    """Return the ranges between ``bounds`` in a fixed order.

    A look at the end of the batch gives the record that follows it, before which the range ends.
    Where nothing follows, the range has no last record: it ends at an instant, or with its closed
    shard. Whether there are records is not looked at: a range may be empty.

    Args:
        properties: which streams, and how to reach them; with a region.
        bounds: between which positions the records stand.
        narrowing: what is not needed is neither searched nor read.

    Raises:
        StreamNotFoundError: a stream does not exist.
        InvalidOptionError: the options end an open shard at SHARD_END.
        DataLossError: a position or a shard that is named is gone, and loss is not tolerated.
    """
    streams = StreamsConfig.from_properties(properties).streams
    names = [one.reference for one in streams if narrowing.needs_stream(one.name)]
    async with open_services(properties, events=events, clock=clock) as services:
        # Always by polling: a subscription belongs to one reader.
        pages = PolledPages(services.polling.create, services.missing)
        arns = [(await services.discovery.describe(name)).identity.arn for name in names]
        # LATEST was taken from this machine's clock, before the service had told the time.
        bounds = bounds.corrected(properties, services.clock.skew)
        plan = _BatchPlan(
            services.discovery,
            TipSearch(pages.read),
            services.data_loss,
            services.assigner,
            RangePublishers.select(properties, services).plain is services.polling,
        )
        bounds = bounds.narrowed(narrowing)
        # Shards that begin later hold nothing from before the end, either.
        await services.clock.sleep((bounds.settled_at - services.clock.now()).total_seconds())
        return await plan.ranges(arns, bounds, narrowing)


@frozen
class _BatchPlan:
    _discovery: ShardDiscovery
    _search: TipSearch
    _data_loss: DataLossGuard
    _assigner: ShardAssigner
    # Whether an empty answer shows the tip to what reads the ranges.
    _shows_tip: bool

    async def ranges(
        self, streams: Sequence[str], bounds: BatchBounds, narrowing: Narrowing
    ) -> list[ShardRange]:
        found: dict[ShardKey, ShardRange | None] = {}
        turns = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def look(shard: Shard) -> None:
            async with turns:
                found[shard.key] = await self._range_of(shard, bounds)

        shards = await self._list_shards(streams, bounds)
        self._data_loss.check_named(bounds.named_shards, shards)
        async with TaskScope() as scope:
            for shard in shards:
                if narrowing.needs_shard(shard) and not bounds.is_empty(shard.shard_id):
                    scope.spawn(look(shard), name=f"find the end of {shard}")
        keys = sorted(found, key=lambda key: (streams.index(key.stream_arn), key.shard_id))
        return [one for key in keys if (one := found[key]) is not None]

    async def _list_shards(self, streams: Sequence[str], bounds: BatchBounds) -> list[Shard]:
        shards: list[Shard] = []
        for arn in streams:
            listed = await self._discovery.list_shards(arn, since=bounds.listed_since)
            self._assigner.check_listing(listed)
            shards += filter(self._assigner.reads, listed)
        return shards

    async def _range_of(self, shard: Shard, bounds: BatchBounds) -> ShardRange | None:
        start, until = bounds.start_of(shard.shard_id), bounds.until_of(shard.shard_id)
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
                self._data_loss.report(
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
        following = await self._search.first_record(shard, until)
        if start.sequence_number is not None or until.sequence_number is not None:
            # A number and an instant are not comparable, and a number may be gone.
            first = await self._search.first_record(shard, start)
            if first is None or (following is not None and first >= following):
                return None
        excludes_end = following is not None
        one = ShardRange(shard=shard.key, start=start, end=following, excludes_end=excludes_end)
        if excludes_end or (until.timestamp is not None and shard.is_closed):
            return one
        if until.timestamp is None:
            return evolve(one, end=until.sequence_number)
        if self._shows_tip:
            return evolve(one, until=until.timestamp)
        end = await self._search.last_record(shard, since=start, until=until.timestamp)
        return None if end is None else evolve(one, end=end)


# How far arrival times may be out of order within a shard. Records are found by the service's own
# index of times; a record may bear another time than its neighbours.
_SLACK = timedelta(minutes=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class Narrowing:
    """What a query does not need; ``None`` needs all.

    Attributes:
        arrived_since: records that arrived earlier are not needed.
        arrived_until: records that arrived later are not needed.
    """

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

    Reading begins at the first position and ends before the second one: a batch that begins where
    another one ends continues without a gap and without repeating a record.

    Attributes:
        start: where shards begin.
        until: before which position they end.
        shard_starts: the same as ``start`` for single shards, by shard id; ``None`` reads nothing.
        shard_untils: the same as ``until`` for single shards; ``None`` is the end of the shard.
        loaded_at: the instant that LATEST means, by this machine's clock.
    """

    start: StartingPosition
    until: StartingPosition
    shard_starts: Mapping[str, StartingPosition | None] = field(factory=dict)
    shard_untils: Mapping[str, StartingPosition | None] = field(factory=dict)
    loaded_at: datetime | None = field(default=None, eq=False)

    @classmethod
    def from_properties(cls, properties: Properties, *, loaded_at: datetime) -> Self:
        """Read the bounds, without checking that they can work.

        Args:
            properties: the configuration; without a starting position, reading begins at
                TRIM_HORIZON.
            loaded_at: the instant that LATEST means, and the latest possible end.
        """
        initial = InitialPositionConfig.from_properties(properties)
        ends = EndingPositionConfig.from_properties(properties)
        loaded_at = _next_millisecond(loaded_at)
        latest = StartingPosition.at_timestamp(loaded_at)
        return cls(
            start=_later(StartingPosition.trim_horizon(), initial.timestamp),
            until=_earlier(latest, ends.timestamp),
            shard_starts={name: _position(one, loaded_at) for name, one in initial.shards},
            # What has not arrived yet would be in one action and not in the one before it.
            shard_untils={
                shard_id: (end := _position(one, loaded_at)) and _earlier(end, loaded_at)
                for shard_id, one in ends.shards
            },
            loaded_at=loaded_at,
        )

    def corrected(self, properties: Properties, skew: timedelta) -> Self:
        """Return the bounds that ``properties`` mean by a clock that differs so much."""
        if self.loaded_at is None or not skew:
            return self
        return self.from_properties(properties, loaded_at=self.loaded_at + skew)

    @property
    def named_shards(self) -> frozenset[str]:
        """The ids of the shards that have positions of their own."""
        return frozenset((*self.shard_starts, *self.shard_untils))

    @property
    def settled_at(self) -> datetime:
        """When everything that arrived before the end can be read."""
        ends = (self.until, *self.shard_untils.values())
        instants = [one.timestamp for one in ends if one is not None and one.timestamp]
        return max(instants, default=_EPOCH) + _VISIBLE_AFTER

    @property
    def listed_since(self) -> datetime | None:
        """The instant before which closed shards are of no interest; ``None`` if all are."""
        return None if self.named_shards else self.start.timestamp

    def start_of(self, shard_id: str) -> StartingPosition | None:
        """Return where a shard begins, ``None`` if nothing of it is read."""
        return self.shard_starts.get(shard_id, self.start)

    def until_of(self, shard_id: str) -> StartingPosition | None:
        """Return before which position a shard ends, ``None`` for its very end."""
        return self.shard_untils.get(shard_id, self.until)

    def narrowed(self, narrowing: Narrowing) -> BatchBounds:
        """Return bounds within these that hold every record that is needed.

        Arrival times are neither exact nor in order: a minute more is read on either side, and a
        reader that needs exactly these times must check each record. Sequence numbers of single
        shards stay as they are.
        """
        lowest = _shifted(narrowing.arrived_since, -_SLACK)
        highest = _shifted(narrowing.arrived_until, _SLACK)
        return evolve(
            self,
            start=_later(self.start, lowest),
            until=_earlier(self.until, highest),
            shard_starts={
                key: one and _later(one, lowest) for key, one in self.shard_starts.items()
            },
            shard_untils={
                key: one and _earlier(one, highest) for key, one in self.shard_untils.items()
            },
        )

    def is_empty(self, shard_id: str) -> bool:
        """Say whether nothing of a shard is read."""
        start, until = self.start_of(shard_id), self.until_of(shard_id)
        return start is None or (until is not None and not _is_before(start, until))


def _next_millisecond(instant: datetime) -> datetime:
    # Instants travel in milliseconds: records that arrived in this one are among the rows.
    return instant + timedelta(microseconds=-instant.microsecond % 1000)


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
    if position.timestamp is not None and position.timestamp >= instant:
        return position
    return StartingPosition.at_timestamp(instant)


def _earlier(position: StartingPosition, instant: datetime | None) -> StartingPosition:
    if instant is None or position.timestamp is None:
        return position
    return position if position.timestamp <= instant else StartingPosition.at_timestamp(instant)


def _position(progress: ShardProgress, latest: datetime) -> StartingPosition | None:
    return None if progress.is_ended else progress.position.pinned(latest)


def is_after(start: StartingPosition, until: StartingPosition) -> bool:
    """Say whether one is certainly later; a number and an instant cannot be compared."""
    if start.timestamp is not None and until.timestamp is not None:
        return start.timestamp > until.timestamp
    if start.sequence_number is not None and until.sequence_number is not None:
        return start.sequence_number > until.sequence_number
    return False


def _is_before(start: StartingPosition, until: StartingPosition) -> bool:
    """Say whether something may stand between the two."""
    if start.timestamp is not None and until.timestamp is not None:
        return start.timestamp < until.timestamp
    return start != until and not is_after(start, until)
