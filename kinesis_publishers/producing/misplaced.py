"""Corrects wrong predictions: after a reshard, records go to shards unknown to the producer."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import TypeAlias

from attrs import define, field

from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.errors import KinesisPublishersError, RecordExpiredError
from kinesis_publishers.events import ShardMispredicted
from kinesis_publishers.model import HashRange, ShardKey, hash_key_of
from kinesis_publishers.producing.collector import Part
from kinesis_publishers.producing.outstanding import Outstanding
from kinesis_publishers.producing.queues import ShardQueues
from kinesis_publishers.producing.records import Run
from kinesis_publishers.producing.routing import ShardMap

_LOGGER = logging.getLogger(__name__)

Misplaced: TypeAlias = tuple[Part, tuple[str, str]]
"""A part of one entry, with the shard that has it and its sequence number there."""


@define(eq=False)
class MisplacedRecords:
    """Finds the shards of records, and sends those again that readers of that shard leave out."""

    _services: WritingServices
    _queues: ShardQueues
    _outstanding: Outstanding
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def correct(self, misplaced: Sequence[Misplaced], undecided: list[Part]) -> None:
        """Handle answers that name another shard than predicted, one per part.

        Only the records of aggregates are settled here, and removed from ``undecided``. They wait
        until a listing explains the answer, and so do further records with the same prediction.
        """
        async for part, place in self._explained(misplaced):
            resent = 0
            if part.is_divisible(0):
                resent = self._correct_aggregate(part, place)
                undecided.remove(part)
            if not self._queues.shard_map.choices:
                self._services.events(
                    ShardMispredicted(
                        shard=part.queue.shard,
                        shard_id=place[0],
                        records=part.records,
                        resent=resent,
                    )
                )

    async def _explained(self, misplaced: Sequence[Misplaced]) -> AsyncIterator[Misplaced]:
        """List the shards until all answers are explained, or the time to live is over."""
        clock, retry = self._services.clock, self._services.config.retry
        delay, ttl = retry.base_seconds, self._services.config.expiry_seconds
        left = list(misplaced)
        while unclear := [one for one in left if not self._is_clear(*one)]:
            waiting = [part for part, _ in unclear if part.is_divisible(0)]
            until = min([part.oldest for part in waiting], default=-math.inf) + ttl
            known = self._queues.shard_map
            seconds = until - clock.monotonic() if waiting else math.inf
            with suppress(TimeoutError):
                # Many answers name the same new shards: one listing serves all.
                async with clock.timeout(seconds), self._listing:
                    if self._queues.shard_map is known:
                        await self._list({part.queue.shard for part, _ in unclear})
            now = clock.monotonic()
            unclear = [one for one in unclear if not self._is_clear(*one)]
            if now >= until or not unclear:
                waits = [
                    one for one in unclear if one[0].is_divisible(0) and one[0].oldest + ttl > now
                ]
                for one in left:
                    if one not in waits:
                        yield one
                # List again soon for younger records, not only when their time is over.
                left = unclear = waits
                delay = retry.base_seconds
            waiting = [part for part, _ in unclear if part.is_divisible(0)]
            for part in waiting:
                part.queue.blocked_until = max(part.queue.blocked_until, now + delay)
            if waiting:
                until = min([part.oldest for part in waiting]) + ttl
                await clock.sleep(min(delay, until - now))
                delay = min(2 * delay, retry.max_seconds)
        for one in left:
            yield one

    def _is_clear(self, part: Part, place: tuple[str, str]) -> bool:
        """Return whether the listing explains the shard of a part.

        A listing with the predicted shard still open contradicts the answer: it is older, or the
        stream distributes records itself.
        """
        shard_map = self._queues.shard_map
        if shard_map.choices:
            return True
        hash_range = shard_map.ranges.get(place[0])
        if hash_range is None:
            return False
        is_closed = part.queue.shard not in shard_map.open_keys
        return is_closed or (
            part.is_divisible(0)
            and all(len(_belonging(run, hash_range)) == len(run) for run in part.runs)
        )

    async def refresh(self) -> None:
        """List the shards, and find out whether the stream distributes records itself."""
        async with self._listing:
            await self._list(())

    async def _list(self, predicted: Collection[ShardKey]) -> None:
        """List the shards; also describe the stream unless that explains the answers.

        ``predicted`` are the shards for which answers named others.
        """
        services, is_auto = self._services, self._queues.shard_map.choices > 0
        try:
            shards = await services.list_shards()
            if not predicted or any(one.key in predicted and not one.is_closed for one in shards):
                described = await services.discovery.describe_now(services.arn)
                is_auto = described.is_auto_distributed
        except KinesisPublishersError as error:
            _LOGGER.warning(
                "The shards of %s cannot be listed, or the stream described: %s",
                services.name,
                error,
            )
            return
        shard_map = ShardMap.of(shards, is_auto=is_auto)
        if shard_map.open_shards:
            self._queues.follow(shard_map)
            self._outstanding.buffer.follow()

    def _correct_aggregate(self, part: Part, place: tuple[str, str]) -> int:
        """Send the records of an aggregate again that belong elsewhere; return their number.

        The KCL leaves out such an aggregate as a whole. Its other records are therefore sent again,
        too, as copies: readers that leave out single records do not deliver these.
        """
        now, shard_map = self._services.clock.monotonic(), self._queues.shard_map
        hash_range = shard_map.ranges.get(place[0])
        if not self._is_clear(part, place):
            state = "is not listed" if hash_range is None else "is listed, both as open"
            error = RecordExpiredError(
                f"the record is in {place[0]}, where {part.queue.shard} was expected, and the "
                f"shard {state}: readers that leave out what belongs to another shard may not "
                "deliver it"
            )
            self._outstanding.fail(part, error)
            return 0
        belonging = [_belonging(run, hash_range) for run in part.runs]
        outside = part.records - sum(map(len, belonging))
        if not outside:
            self._outstanding.settle(part, place[:1], place[1:], now)
            return 0
        if shard_map.choices:
            # A copy needs an aggregate, and so the right shard.
            self._outstanding.wait_again(part)
            return part.records
        again: list[Run] = []
        first = 0
        for run, inside in zip(part.runs, belonging, strict=True):
            others = [index for index in range(len(run)) if index not in set(inside)]
            if others:
                again.append(run.pick(others).again())
            if inside:
                known = [(*place, first + one) for one in inside]
                again.append(run.pick(inside).again(known))
            first += len(run)
        self._outstanding.wait_again(part, again)
        return outside


def _belonging(run: Run, hash_range: HashRange | None) -> Sequence[int]:
    """Return the indices of the records in a hash range; none if the range is unknown."""
    if hash_range is None:
        return []
    return [
        index
        for index, key in enumerate(run.partition_keys)
        if hash_key_of(key, run.hash_key_at(index)) in hash_range
    ]
