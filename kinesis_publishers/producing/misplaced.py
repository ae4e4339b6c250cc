"""Mends wrong predictions: after a reshard records go to other shards than their producer knew."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress

from attrs import define, field

from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.errors import ClosedError, KinesisPublishersError, RecordExpiredError
from kinesis_publishers.events import ShardMispredicted
from kinesis_publishers.model import HashRange, hash_key_of
from kinesis_publishers.producing.buffer import Buffer
from kinesis_publishers.producing.collector import Part
from kinesis_publishers.producing.outstanding import Outstanding
from kinesis_publishers.producing.queues import KeyOrder, ShardQueues
from kinesis_publishers.producing.records import KnownPuts, Run, Written
from kinesis_publishers.producing.routing import ShardMap

_LOGGER = logging.getLogger(__name__)


@define(eq=False)
class Mender:
    """Learns where shards are, and sends again what readers of the wrong shard leave out."""

    _services: WritingServices
    _queues: ShardQueues
    _buffer: Buffer
    _order: KeyOrder | None
    _outstanding: Outstanding
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def mend(self, misplaced: Sequence[tuple[Part, tuple[str, str]]]) -> None:
        """Follow the answers that name another shard than was predicted, one for each part.

        The records of aggregates are settled here, all others have been. An aggregate waits, and
        what else is predicted so, until its shard is listed.
        """
        aggregates = [part for part, _ in misplaced if part.is_divisible(0)]
        try:
            await self._learn({shard_id for _, (shard_id, _) in misplaced}, aggregates)
        except asyncio.CancelledError:
            lost = ClosedError("the producer was closed before it knew where the record belongs")
            for part in aggregates:
                self._outstanding.fail(part, lost)
            raise
        for part, place in misplaced:
            resent = self._mend_aggregate(part, place) if part.is_divisible(0) else 0
            self._services.events(
                ShardMispredicted(
                    shard=part.queue.shard,
                    shard_id=place[0],
                    records=part.records,
                    resent=resent,
                )
            )

    async def _learn(self, shard_ids: Iterable[str], waiting: Sequence[Part]) -> None:
        """List the shards until these are known, as long as records are waiting for that."""
        clock, retry = self._services.clock, self._services.config.retry
        oldest = min([part.oldest for part in waiting], default=-math.inf)
        until = oldest + self._services.config.ttl_seconds
        wanted, delay = set(shard_ids), retry.base_seconds
        while not self._queues.shard_map.ranges.keys() >= wanted:
            known = self._queues.shard_map
            seconds = until - clock.monotonic() if waiting else math.inf
            with suppress(TimeoutError):
                # The answers of many calls name the same new shards.
                async with clock.timeout(seconds), self._listing:
                    if self._queues.shard_map is known:
                        await self._list()
            now = clock.monotonic()
            if self._queues.shard_map.ranges.keys() >= wanted or now >= until:
                return
            for part in waiting:
                part.queue.blocked_until = max(part.queue.blocked_until, now + delay)
            await clock.sleep(min(delay, until - now))
            delay = min(2 * delay, retry.max_seconds)

    async def _list(self) -> None:
        try:
            shard_map = ShardMap.of(await self._services.list_shards())
        except KinesisPublishersError as error:
            _LOGGER.warning(
                "Records for %s have gone to other shards, which cannot be listed: %s",
                self._services.name,
                error,
            )
            return
        if shard_map.open_shards:
            self._queues.follow(shard_map, self._order or ())
            self._buffer.follow()

    def _mend_aggregate(self, part: Part, place: tuple[str, str]) -> int:
        """Send again what of an aggregate does not belong to its shard; return how many.

        The KCL leaves out such an aggregate as a whole. So the others are sent again too, as
        copies, which readers that leave out single records do not deliver.
        """
        now, shard_map = self._services.clock.monotonic(), self._queues.shard_map
        hash_range = shard_map.ranges.get(place[0])
        if hash_range is None:
            self._outstanding.fail(
                part,
                RecordExpiredError(
                    f"the record is in {place[0]}, where {part.queue.shard} was expected, and the "
                    "shard is not listed: readers that leave out what belongs to another shard may "
                    "not deliver it"
                ),
            )
            return 0
        belonging = [_belonging(run, hash_range) for run in part.runs]
        outside = part.records - sum(map(len, belonging))
        # A service that contradicts its own listing would do so again.
        is_contradicted = part.queue.shard in shard_map.open_keys
        if not outside or is_contradicted:
            self._outstanding.settle(part, place[:1], place[1:], now)
            return 0
        again: list[Run] = []
        first = 0
        for run, inside in zip(part.runs, belonging, strict=True):
            others = [index for index in range(len(run)) if index not in set(inside)]
            if others:
                again.append(run.pick(others).again())
            if inside:
                kept = run.pick(inside)
                known = Written(
                    shard_ids=place[:1] * len(inside),
                    sequence_numbers=place[1:] * len(inside),
                    sub_sequence_numbers=[first + index for index in inside],
                    attempts=run.attempts + 1,
                    put_at=run.put_at,
                    at=now,
                )
                again.append(kept.again(put=KnownPuts(kept, known), is_copy=True))
            first += len(run)
        self._outstanding.wait_again(part, again)
        return outside


def _belonging(run: Run, hash_range: HashRange) -> Sequence[int]:
    """Return the indices of the records that belong to a shard."""
    return [
        index
        for index, key in enumerate(run.partition_keys)
        if hash_key_of(key, run.hash_key_at(index)) in hash_range
    ]
