"""Plans a batch read: exactly which records of which shards, before any of them is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.assembly import open_services
from kinesis_publishers.config import PollingConfig, StreamsConfig
from kinesis_publishers.errors import (
    DataLossError,
    InvalidOptionError,
    PositionTrimmedError,
)
from kinesis_publishers.model import Shard, ShardKey, ShardRange, StartingPosition
from kinesis_publishers.readers.range_ends.last_record import TipSearch
from kinesis_publishers.readers.range_ends.page_reader import PolledPages
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import Properties
    from kinesis_publishers.engine.data_loss import DataLossGuard
    from kinesis_publishers.engine.discovery import ShardDiscovery
    from kinesis_publishers.events import EventSink
    from kinesis_publishers.readers.batch_bounds import BatchBounds, Narrowing

__all__ = ["plan_batch"]

# Each holds a page of a hundred records, or in the end of some thousands.
_SEARCHES_AT_ONCE = 32


async def plan_batch(
    properties: Properties,
    bounds: BatchBounds,
    narrowing: Narrowing,
    *,
    events: EventSink | None = None,
    clock: Clock | None = None,
) -> list[ShardRange]:
    """Return the ranges between ``bounds`` in a fixed order.

    An open shard without any record there is left out. A closed one that ends before the end of the
    batch is there whole, without a look at whether it has records.

    Args:
        properties: which streams, and how to reach them; with a region.
        bounds: between which positions the records stand.
        narrowing: what is not needed is neither searched nor read.
        events: takes diagnostic events, beside the sinks that the properties name.
        clock: the only source of time, this machine's unless it is given.

    Raises:
        StreamNotFoundError: a stream does not exist.
        InvalidOptionError: an open shard is to be read to its end.
        DataLossError: a position or a shard that is named is gone, and loss is not tolerated.
    """
    streams = StreamsConfig.from_properties(properties).streams
    names = [one.reference for one in streams if narrowing.needs_stream(one.name)]
    polling = PollingConfig.from_properties(properties)
    async with open_services(properties, events=events, clock=clock) as services:
        # By polling, whatever the publisher: a subscription belongs to one reader.
        pages = PolledPages(
            services.polling.create,
            services.missing,
            interval_seconds=polling.interval_seconds,
            clock=services.clock,
        )
        arns = [(await services.discovery.describe(name)).identity.arn for name in names]
        # LATEST was taken from this machine's clock, before the service had told the time.
        bounds = bounds.corrected(properties, services.clock.skew)
        plan = _BatchPlan(services.discovery, TipSearch(pages, services.clock), services.data_loss)
        return await plan.ranges(arns, bounds.narrowed(narrowing), narrowing)


@frozen
class _BatchPlan:
    _discovery: ShardDiscovery
    _search: TipSearch
    _data_loss: DataLossGuard

    async def ranges(
        self, streams: Sequence[str], bounds: BatchBounds, narrowing: Narrowing
    ) -> list[ShardRange]:
        shards = await self._list_shards(streams, bounds)
        self._check_named_shards(shards, bounds)
        needed = [
            shard
            for shard in shards
            if narrowing.needs_shard(shard) and not bounds.is_empty(shard.shard_id)
        ]
        found: dict[ShardKey, ShardRange] = {}
        turns = asyncio.Semaphore(_SEARCHES_AT_ONCE)

        async def search(shard: Shard) -> None:
            async with turns:
                one = await self._range_of(shard, bounds)
            if one is not None:
                found[shard.key] = one

        async with TaskScope() as scope:
            for shard in needed:
                scope.spawn(search(shard), name=f"find the end of {shard}")
        return [found[shard.key] for shard in needed if shard.key in found]

    async def _list_shards(self, streams: Sequence[str], bounds: BatchBounds) -> list[Shard]:
        shards: list[Shard] = []
        for arn in streams:
            listed = await self._discovery.list_shards(arn, since=bounds.listed_since)
            shards += sorted(listed, key=lambda shard: shard.shard_id)
        return shards

    def _check_named_shards(self, shards: Sequence[Shard], bounds: BatchBounds) -> None:
        if not shards:
            return
        listed = {shard.shard_id for shard in shards}
        for shard_id in sorted(bounds.named_shards - listed):
            self._data_loss.report(
                ShardKey(shards[0].stream_arn, shard_id),
                "the options give a position for this shard, but no stream lists it: it has left "
                "the retention, or its name is misspelt.",
                kind=DataLossError,
            )

    async def _range_of(self, shard: Shard, bounds: BatchBounds) -> ShardRange | None:
        start, until = bounds.start_of(shard.shard_id), bounds.until_of(shard.shard_id)
        assert start is not None, "an empty range is not searched"
        whole = ShardRange(shard=shard.key, start=start, end=None)
        if until is None:
            _check_is_closed(shard)
            return whole
        for begin in (start, StartingPosition.trim_horizon()):
            try:
                if shard.is_closed and await self._search.is_read_out(shard, until):
                    return whole
                end = await self._search.last_record(shard, since=begin, until=until)
            except PositionTrimmedError as error:
                self._report_trimmed(shard, begin, until, error)
            else:
                return None if end is None else ShardRange(shard=shard.key, start=begin, end=end)
        # The end itself is gone, and so is everything before it.
        return None

    def _report_trimmed(
        self,
        shard: Shard,
        start: StartingPosition,
        until: StartingPosition,
        cause: PositionTrimmedError,
    ) -> None:
        self._data_loss.report(
            shard.key,
            f"the batch is to be read from {start} to {until}, and one of these positions is not "
            "available any more.",
            cause=cause,
        )


def _check_is_closed(shard: Shard) -> None:
    if not shard.is_closed:
        raise InvalidOptionError(
            f"{shard} ends at SHARD_END by the options, but it is open: it has no end yet. Use "
            "LATEST for what it holds now."
        )
