"""Deaggregates deliveries according to the configuration."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeVar

from attrs import define, evolve, field, frozen

from kinesis_publishers.aggregation.codec import (
    KPL_PARTITION_KEY,
    UserRecordColumns,
    decode_aggregate,
    has_aggregates,
)
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.errors import AggregationError, ShardNotFoundError
from kinesis_publishers.events import AggregatesExpanded, EventSink
from kinesis_publishers.model import (
    HashRange,
    RecordBatch,
    Shard,
    ShardKey,
    hash_key_of,
    hash_keys_of,
)
from kinesis_publishers.model.records import AGGREGATE_MAGIC

_LOGGER = logging.getLogger(__name__)

# A shard never changes, but a stream that was deleted and created again has other shards with the
# same ids: an old listing must not decide for the life of a process which records are left out.
_LISTING_AGE: Final = timedelta(minutes=1)
# A larger batch may hold thousands of records: it is processed in a thread.
_MOST_BYTES_AT_ONCE: Final = 256 * 1024

_T = TypeVar("_T")


@define(eq=False)
class Deaggregator:
    """Replaces aggregates by the records inside them.

    A KPL that does not know of a reshard yet puts aggregates with records of several shards, and
    later puts the records again that arrived in the wrong shard. In a shard with parents, records
    in KPL aggregates whose hash keys belong to another shard are therefore left out, one by one,
    and counted. All other records are delivered: without a reshard nothing is put twice, and
    producers that aggregate without regard to shards put nothing twice. Nothing is left out of a
    stream that distributes records itself, or has done so: which records the service placed is
    unknown.

    Args:
        list_shards: lists the shards of a stream (by ARN) if a shard is known only by name.
        was_auto: returns whether a stream (by ARN) distributes records itself, or is known to have
            done so; by default no stream does.
        clock: the service's clock, by which records arrive.
    """

    _mode: AggregationMode
    _events: EventSink
    _list_shards: Callable[[str], Awaitable[tuple[Shard, ...]]]
    _fails_on_invalid: bool = field(default=False, kw_only=True)
    _was_auto: Callable[[str], Awaitable[bool]] | None = field(default=None, kw_only=True)
    _clock: Clock = field(factory=SystemClock, kw_only=True)
    # Streams that are known to have done so, and up to when others have not, in epoch seconds.
    _auto: set[str] = field(factory=set, init=False)
    _keyed_until: dict[str, float] = field(factory=dict, init=False)
    # The last listing of each stream, by ARN, and when it was made.
    _listed: dict[str, tuple[datetime, Mapping[ShardKey, Shard]]] = field(factory=dict, init=False)
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    # An invalid aggregate and a record that is left out are worth one warning per shard.
    _warned: set[tuple[ShardKey, str]] = field(factory=set, init=False)

    async def expand(self, batch: RecordBatch, shard: Shard | None) -> RecordBatch:
        """Return the records of ``batch``, as they are stored, with its aggregates deaggregated.

        ``shard`` is theirs from ListShards, with parents and hash keys; with ``None`` the first
        aggregate causes a listing.

        Raises:
            AggregationError: an aggregate is invalid, and that is an error.
            ServiceError: the shards cannot be listed, or the stream described; a
                ``ShardNotFoundError`` if the shard is no longer listed.
        """
        if self._mode is AggregationMode.OFF or not has_aggregates(batch.payloads):
            return batch
        hash_range = await self._range_of(shard, batch)
        work = partial(expand, batch, hash_range, fails_on_invalid=self._fails_on_invalid)
        filters = True if self._mode is AggregationMode.KPL else None
        if batch.shard.stream_arn in self._auto:
            filters = False
        expansion = await _run(batch, partial(work, filters=filters))
        if expansion.found.left_out and await self._is_auto(batch):
            expansion = await _run(batch, partial(work, filters=False))
        self._report(batch.shard, expansion.found, expansion.problem)
        return expansion.batch

    async def _is_auto(self, batch: RecordBatch) -> bool:
        """Return whether the service may have chosen the shard of the records."""
        arn, newest = batch.shard.stream_arn, max(batch.arrival_epoch_seconds)
        if None in batch.partition_keys:
            self._auto.add(arn)
        if arn not in self._auto and newest > self._keyed_until.get(arn, 0.0):
            # A batch may arrive long after its request: with fan-out, that opened the subscription.
            asked_at = self._clock.now().timestamp()
            if self._was_auto is not None and await self._was_auto(arn):
                self._auto.add(arn)
            self._keyed_until[arn] = max(asked_at, self._keyed_until.get(arn, 0.0))
        return arn in self._auto

    async def counts(self, batch: RecordBatch) -> Sequence[int]:
        """Return for each record of ``batch`` how many records it is delivered as, at most."""
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
        # Many ranges meet their first aggregates at once: one listing serves all of them.
        async with self._listing:
            at, shards = self._listed.get(arn, (now, {}))
            if key not in shards or now - at > _LISTING_AGE:
                shards = {one.key: one for one in await self._list_shards(arn)}
                self._listed[arn] = now, shards
        if (shard := shards.get(key)) is None:
            raise ShardNotFoundError(
                f"{key} is no longer listed, because it has left the retention: nothing tells "
                "which records of its aggregates belong to it. kinesis.aggregation = unfiltered "
                "delivers all of them.",
                operation="ListShards",
                code="ShardNotListed",
            )
        return shard

    def _report(self, shard: Shard, found: AggregatesExpanded, problem: str) -> None:
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
                f"{found.corrupt} records begin like an aggregate and are not valid: they were "
                f"delivered as they are. The first is {problem}",
            )
        self._events(found)

    def _warn_once(self, shard: Shard, kind: str, message: str) -> None:
        if (shard.key, kind) not in self._warned:
            self._warned.add((shard.key, kind))
            _LOGGER.warning("%s: %s. This is logged once per shard.", shard, message)


async def _run(batch: RecordBatch, work: Callable[[], _T]) -> _T:
    """Return the result of ``work`` on ``batch``; a large batch takes a thread."""
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


@frozen(kw_only=True, eq=False)
class Expansion:
    """A deaggregated delivery, its counts, and the problem of the first invalid aggregate."""

    batch: RecordBatch
    found: AggregatesExpanded
    problem: str = ""


def expand(
    batch: RecordBatch,
    hash_range: HashRange | None = None,
    *,
    filters: bool | None = None,
    fails_on_invalid: bool = False,
) -> Expansion:
    """Deaggregate the aggregates in ``batch``; other records stay unchanged.

    Args:
        hash_range: the hash keys of the shard. Records in KPL aggregates with other hash keys are
            left out; ``None`` leaves out nothing.
        filters: leave them out of the aggregates of every producer, or of none.
        fails_on_invalid: raise an AggregationError, which names the record, for an invalid
            aggregate instead of returning it unchanged.
    """
    batch = batch.unpacked()
    columns = _Columns(batch, hash_range, filters, fails_on_invalid)
    for index, payload in enumerate(batch.payloads):
        columns.add(index, payload)
    return columns.expansion()


@define(eq=False)
class _Columns:
    _batch: RecordBatch
    _range: HashRange | None
    _filters: bool | None
    _fails_on_invalid: bool
    # The index of the stored record that each record of the result comes from.
    _origins: list[int] = field(factory=list, init=False)
    _payloads: list[bytes] = field(factory=list, init=False)
    _partition_keys: list[str | None] = field(factory=list, init=False)
    _sub_sequence_numbers: list[int | None] = field(factory=list, init=False)
    _explicit_hash_keys: list[str | None] = field(factory=list, init=False)
    _markers: list[str | None] = field(factory=list, init=False)
    # By the names of the attributes of AggregatesExpanded.
    _counts: Counter[str] = field(factory=Counter, init=False)
    _problem: str = field(default="", init=False)

    def add(self, index: int, payload: bytes) -> None:
        if payload.startswith(AGGREGATE_MAGIC):
            try:
                inside = decode_aggregate(payload)
                if inside is not None:
                    self._add_aggregate(index, inside)
                    return
                problem = "its checksum is wrong, or it does not parse"
            except AggregationError as error:
                problem = str(error)
            self._add_problem(index, problem)
        self._add_plain(index, payload)

    def _add_problem(self, index: int, problem: str) -> None:
        problem = f"record {self._batch.sequence_numbers[index]}: {problem}"
        if self._fails_on_invalid:
            raise AggregationError(
                f"{self._batch.shard}: {problem}. It is not a valid aggregate; "
                "kinesis.aggregation.on-invalid = plain delivers it as it is.",
                valid_records=index,
            )
        self._counts["corrupt"] += 1
        self._problem = self._problem or problem

    def _add_plain(self, index: int, payload: bytes) -> None:
        self._origins.append(index)
        self._payloads.append(payload)
        self._partition_keys.append(self._batch.partition_keys[index])
        self._sub_sequence_numbers.append(None)
        self._explicit_hash_keys.append(None)
        self._markers.append(None)

    def _add_aggregate(self, index: int, inside: UserRecordColumns) -> None:
        filters = self._filters
        if filters is None:
            filters = self._batch.partition_keys[index] == KPL_PARTITION_KEY
        needed = self._belonging(inside, filters=filters)
        foreign = len(inside) - len(needed)
        if not filters:
            needed = range(len(inside))
        if inside.copies:
            needed = [one for one in needed if one not in inside.copies]
            self._counts["copies"] += len(inside.copies)
        columns: tuple[tuple[list[Any], Sequence[Any]], ...] = (
            (self._payloads, inside.payloads),
            (self._partition_keys, inside.partition_keys),
            (self._explicit_hash_keys, inside.explicit_hash_keys),
            (self._markers, inside.markers or [None] * len(inside)),
        )
        for own, column in columns:
            own.extend(column if len(needed) == len(inside) else [column[one] for one in needed])
        self._sub_sequence_numbers += needed
        self._origins += repeat(index, len(needed))
        self._counts["aggregates"] += 1
        self._counts["user_records"] += len(inside)
        self._counts["left_out" if filters else "foreign"] += foreign

    def _belonging(self, inside: UserRecordColumns, *, filters: bool) -> Sequence[int]:
        """Return the sub-sequence numbers of the records that belong to the shard."""
        hash_range, everything = self._range, range(len(inside))
        if hash_range is None:
            return everything
        keys, explicit = inside.partition_keys, inside.explicit_hash_keys
        try:
            if explicit.count(None) == len(explicit):
                hash_keys = hash_keys_of(keys)
            else:
                hash_keys = list(map(hash_key_of, keys, explicit))
            return [number for number, one in enumerate(hash_keys) if one in hash_range]
        except ValueError as error:
            if filters:
                raise AggregationError(f"a sub-record has an explicit hash key {error}") from error
            # Nothing is left out; only the count of records of other shards stays unknown.
            return everything

    def expansion(self) -> Expansion:
        batch, origins = self._batch, self._origins
        types = batch.encryption_types
        expanded = evolve(
            batch,
            payloads=self._payloads,
            partition_keys=self._partition_keys,
            sequence_numbers=[batch.sequence_numbers[one] for one in origins],
            arrival_epoch_seconds=[batch.arrival_epoch_seconds[one] for one in origins],
            encryption_types=None if types is None else [types[one] for one in origins],
            sub_sequence_numbers=self._sub_sequence_numbers,
            explicit_hash_keys=self._explicit_hash_keys,
            markers=self._markers if any(self._markers) else None,
        )
        return Expansion(
            batch=expanded if self._counts["aggregates"] else batch,
            found=AggregatesExpanded(shard=batch.shard.key, **self._counts),
            problem=self._problem,
        )
