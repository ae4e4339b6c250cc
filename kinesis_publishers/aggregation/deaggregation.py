"""Deaggregates deliveries, as the configuration says."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import define, field, frozen

from kinesis_publishers.aggregation import Expansion, decode_aggregate, expand, has_aggregates
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.errors import AggregationError, ShardNotFoundError
from kinesis_publishers.events import AggregatesExpanded
from kinesis_publishers.model import HashRange, Shard, ShardKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from kinesis_publishers.events import EventSink
    from kinesis_publishers.model import RecordBatch

__all__ = ["Deaggregator"]

_LOGGER = logging.getLogger(__name__)


# A shard never changes, but a stream that was deleted and created again has others of the same
# names: what is not theirs must not be left out for the life of a process.
_LISTING_AGE: Final = timedelta(minutes=1)


# More may hold thousands of records: a thread lets the event loop run in between.
_MOST_BYTES_AT_ONCE: Final = 256 * 1024

_T = TypeVar("_T")


@frozen(kw_only=True, eq=False)
class _Listing:
    at: datetime
    shards: Mapping[ShardKey, Shard]


@define(eq=False)
class Deaggregator:
    """Puts the records inside aggregates into the place of the aggregates.

    After a reshard, a KPL that does not know of it yet puts aggregates that hold records of several
    shards, and puts those that came into the wrong one again. In a shard that has parents, records
    in aggregates of the KPL whose hash keys belong to another shard are therefore left out, one by
    one, and counted. All others are delivered: nothing is put twice without a reshard, or by
    producers that aggregate without regard to shards.

    Args:
        mode: what becomes of aggregates.
        events: where it is reported what was found.
        list_shards: lists the shards of a stream (by ARN), where a shard is known by name only.
        fails_on_invalid: whether an invalid aggregate is an error.
    """

    _mode: AggregationMode
    _events: EventSink
    _list_shards: Callable[[str], Awaitable[tuple[Shard, ...]]]
    _fails_on_invalid: bool = field(default=False, kw_only=True)
    # Per stream (by ARN) what was listed, and when.
    _listed: dict[str, _Listing] = field(factory=dict, init=False)
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    # An invalid aggregate and a record that is left out are worth one warning per shard.
    _warned: set[tuple[ShardKey, str]] = field(factory=set, init=False)

    async def expand(self, batch: RecordBatch, shard: Shard | None) -> RecordBatch:
        """Return the records of ``batch`` with its aggregates deaggregated.

        Args:
            batch: whole records, as Kinesis stored them.
            shard: where they come from, as ListShards gives it, with parents and hash keys;
                ``None`` lists the shards when the first aggregate is met.

        Raises:
            AggregationError: an aggregate is invalid, and that is an error.
            ShardNotFoundError: the shard is not listed any more.
            ServiceError: the shards could not be listed.
        """
        if self._mode is AggregationMode.OFF or not has_aggregates(batch.payloads):
            return batch
        hash_range = await self._range_of(shard, batch)
        work = partial(
            expand,
            batch,
            hash_range,
            filters_all=self._mode is AggregationMode.KPL,
            fails_on_invalid=self._fails_on_invalid,
        )
        expansion = await _run(batch, work)
        self._report(batch.shard, expansion)
        return expansion.batch

    async def counts(self, batch: RecordBatch) -> Sequence[int]:
        """Return for each record of ``batch`` as how many records it is delivered, at most."""
        payloads = batch.payloads
        if self._mode is AggregationMode.OFF or not has_aggregates(payloads):
            return [1] * len(payloads)
        return await _run(batch, lambda: [_count(payload) for payload in payloads])

    async def _range_of(self, shard: Shard | None, batch: RecordBatch) -> HashRange | None:
        if self._mode is AggregationMode.UNFILTERED:
            return None
        if shard is None:
            shard = await self._listing_of(batch.shard.key, batch.requested_at)
        is_filtered = shard.parent_keys or self._mode is AggregationMode.KPL
        return HashRange.of(shard) if is_filtered else None

    async def _listing_of(self, key: ShardKey, now: datetime) -> Shard:
        arn = key.stream_arn
        # Many ranges meet their first aggregates at once: the first one asks for all.
        async with self._listing:
            listing = self._listed.get(arn)
            if listing is None or key not in listing.shards or now - listing.at > _LISTING_AGE:
                listed = await self._list_shards(arn)
                listing = _Listing(at=now, shards={one.key: one for one in listed})
                self._listed[arn] = listing
        try:
            return listing.shards[key]
        except KeyError:
            raise ShardNotFoundError(
                f"{key} is not listed any more: which records of its aggregates belong to it "
                "cannot be said. It has left the retention; kinesis.aggregation = unfiltered "
                "delivers all of them.",
                operation="ListShards",
                code="ShardNotListed",
            ) from None

    def _report(self, shard: Shard, found: Expansion) -> None:
        if found.left_out:
            self._warn_once(
                shard,
                "left out",
                f"{found.left_out} of {found.user_records} records inside aggregates were left "
                "out: their hash keys belong to another shard, and after a reshard the KPL puts "
                "them there again. Where a producer does not, set kinesis.aggregation = unfiltered",
            )
        if found.corrupt:
            self._warn_once(
                shard,
                "corrupt",
                f"{found.corrupt} records begin like an aggregate and are not valid ones: they "
                f"were delivered as they are. The first is {found.problem}",
            )
        self._events(
            AggregatesExpanded(
                shard=shard.key,
                aggregates=found.aggregates,
                user_records=found.user_records,
                left_out=found.left_out,
                foreign=found.foreign,
                corrupt=found.corrupt,
            )
        )

    def _warn_once(self, shard: Shard, kind: str, message: str) -> None:
        if (shard.key, kind) not in self._warned:
            self._warned.add((shard.key, kind))
            _LOGGER.warning("%s: %s. This is said once per shard.", shard, message)


async def _run(batch: RecordBatch, work: Callable[[], _T]) -> _T:
    """Return what ``work`` makes of ``batch``, in a thread if that takes long."""
    if batch.payload_bytes <= _MOST_BYTES_AT_ONCE:
        return work()
    return await asyncio.to_thread(work)


def _count(payload: bytes) -> int:
    try:
        inside = decode_aggregate(payload)
    except AggregationError:
        # Reported when it is delivered.
        return 1
    return 1 if inside is None else len(inside)
