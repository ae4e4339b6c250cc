"""Chooses what a round has of each shard, so that the shards stay together in time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeAlias

from kinesis_publishers.assembly import Services
from kinesis_publishers.engine.alignment import (
    Front,
    Patience,
    ReadLimit,
    admit,
    common_instant,
)
from kinesis_publishers.events import ShardLeftBehind
from kinesis_publishers.model import ShardKey
from kinesis_publishers.readers.ranges.rules import (
    BEHIND_NOW,
    INSTANT,
    MOST_RECORDS,
    NO_SAMPLE,
    Portion,
    Sample,
    portion_end,
    whole_millisecond,
)
from kinesis_publishers.readers.ranges.shard_probe import ShardProbe

#: How many of the records that were seen of each shard make its range; ``None`` for all.
Counts: TypeAlias = "dict[ShardKey, int | None]"
Look: TypeAlias = "Callable[[ShardProbe], Awaitable[None]]"
Probes: TypeAlias = Sequence[ShardProbe]

_LOGGER = logging.getLogger(__name__)

# The least that one count of a shard looks at.
_FEWEST_RECORDS = 100
# The counts per round: one shard may have most of what the limit allows.
_COUNTS_PER_ROUND = 4
# A thousand hours of 32 MB a second are more than any stream holds.
_MOST_PORTIONS = 1 << 20
# Shards that are further apart than this at the start are mentioned in the log.
_APART = timedelta(minutes=1)
# Before any record.
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER = datetime.max.replace(tzinfo=UTC)


class Rounds:
    """Finds the instant of each round, and what arrived before it.

    Args:
        for_each: looks at some shards, at once.
        patience_seconds: how long a shard that cannot be read holds the others back; ``None`` if
            the shards do not stay together.

    Attributes:
        lost: the shards that cannot be read, and for which the others no longer wait.
    """

    def __init__(
        self,
        services: Services,
        for_each: Callable[[Probes, Look], Awaitable[None]],
        patience_seconds: float | None,
    ) -> None:
        self._clock, self._events = services.clock, services.events
        self._parents_first = services.discovery.config.parents_first
        self._for_each = for_each
        self._patience: Patience[ShardKey] | None = (
            None if patience_seconds is None else Patience(patience_seconds)
        )
        self.lost: set[ShardKey] = set()
        # The instant of a round that is not complete, or was looked for ahead.
        self._target: datetime | None = None
        self._is_ahead = False
        # How many portions a round has: more where one was not enough.
        self._portions = 1
        self._has_compared = False

    async def find(self, probes: Probes, due: Probes, limit: ReadLimit, portion: Portion) -> Counts:
        """Return what may be handed out; nothing before it is known of all shards.

        Only probes that are ``due`` may be looked at. All shards together have at most ``limit``;
        without one, about ``portion``.
        """
        portion = portion.times(self._portions)
        if self._patience is None and limit.is_unlimited:
            counts = await self._find_apart(probes, due, portion.share(len(probes)))
            return {} if self._are_too_few(probes, limit) else counts
        # A shard that was left behind catches up in several rounds. The others wait for it again as
        # soon as it has moved.
        await self._for_each([one for one in due if one.shard.key in self.lost], ShardProbe.anchor)
        if limit.is_unlimited:
            counts, holders = await self._find_together(probes, due, limit, portion)
        else:
            counts, holders = await self._find_counted(probes, due, limit)
        self._lose_patience(probes, holders)
        return counts

    async def look_ahead(
        self, probes: Probes, due: Probes, limit: ReadLimit, portion: Portion
    ) -> bool:
        """Look for what the next round has; return whether all of it is known.

        Nothing is decided: :meth:`find` decides by its own arguments, and mostly makes no call.
        """
        if self._patience is None and limit.is_unlimited:
            return True
        if limit.is_unlimited:
            self._target, holders, _ = await self._reach(probes, due, portion)
            self._is_ahead = self._target is not None and not holders
        else:
            _, holders = await self._count(probes, due, limit)
            if len(due) < len(probes):
                return False
        return not holders

    def _are_too_few(self, probes: Probes, limit: ReadLimit) -> bool:
        """Return whether fewer records wait than the minimum of a round, after looking for more."""
        if not limit.min_records:
            return False
        is_too_few = sum(probe.waiting_records for probe in probes) < limit.min_records
        self._portions = min(2 * self._portions, _MOST_PORTIONS) if is_too_few else 1
        return is_too_few

    def _waited_for(self, probes: Probes) -> list[ShardProbe]:
        return [one for one in probes if one.shard.key not in self.lost]

    async def _find_together(
        self, probes: Probes, due: Probes, limit: ReadLimit, portion: Portion
    ) -> tuple[Counts, list[ShardProbe]]:
        """Return what arrived before one instant, and the shards of which that is not known.

        While there are such shards, nothing is taken.
        """
        self._target, holders, is_lowered = await self._reach(probes, due, portion)
        self._is_ahead = False
        if self._target is None or holders:
            return {}, holders
        target, self._target = self._target, None
        if self._are_too_few(probes, limit):
            return {}, []
        if not is_lowered and all(one.front.is_idle for one in probes):
            return {one.shard.key: None for one in probes}, []
        known = [one for one in probes if one.knows(target)]
        return {one.shard.key: one.count_until(target) for one in known}, []

    async def _reach(
        self, probes: Probes, due: Probes, portion: Portion
    ) -> tuple[datetime | None, list[ShardProbe], bool]:
        """Look for one instant in all shards.

        Return it, the shards of which it is not known what arrived before, and whether a shard ends
        there.
        """
        waited_for = self._waited_for(probes)
        asked, is_end = self._waited_for(due), False
        target = self._next_instant(waited_for, asked, portion)
        holders = [one for one in waited_for if not one.is_anchored]
        while target is not None:
            look = partial(ShardProbe.look, target=target)
            await self._for_each(asked, look)
            end = self._end_of_parents(probes)
            if end >= target - INSTANT:
                holders = [one for one in waited_for if not one.knows(target)]
                is_end = end == target - INSTANT
                break
            # Later records are in the children, which are read after their parent has ended.
            target = end + INSTANT
            asked = [one for one in probes if one.forget_after(target)]
        return target, holders, is_end

    def _next_instant(self, probes: Probes, due: Probes, portion: Portion) -> datetime | None:
        """Return the instant that is looked for already, or by now one more than twice as far."""
        known = self._target
        if known is None:
            target = self._instant(probes, portion)
            seen = common_instant(one.front for one in probes) if portion.is_first else None
            firsts = [one.seen.first_arrival for one in probes if one.seen.first_arrival]
            if target is None or seen is None or not firsts:
                return target
            # A search through a burst takes seconds. There is a record before this instant.
            return min(target, max(whole_millisecond(seen), min(firsts) + INSTANT))
        if not self._is_ahead or len(due) < len(probes):
            return known
        # What was looked for during a micro-batch could not learn from its duration.
        later = self._instant(probes, portion)
        begins = min((one.begins_at for one in probes if one.begins_at), default=known)
        return later if later is not None and later - known > known - begins else known

    async def _find_apart(self, probes: Probes, due: Probes, share: Portion) -> Counts:
        """Find what arrived before an instant of each shard's own."""

        async def look(probe: ShardProbe) -> None:
            if (target := self._instant([probe], share)) is not None:
                await probe.look(target)

        if not (share.is_first and any(one.seen for one in probes)):
            await self._for_each(due, look)
        return {one.shard.key: None for one in probes}

    def _instant(self, probes: Probes, portion: Portion) -> datetime | None:
        """Return the instant to which to read; ``None`` if a shard does not say where it begins."""
        latest = whole_millisecond(self._clock.now() - BEHIND_NOW)
        # An end without records is known without an instant.
        behind = [
            one for one in probes if not (one.is_idle or (one.seen.has_ended and not one.begins_at))
        ]
        known = [(one.begins_at, one.plan.sample) for one in behind if one.begins_at is not None]
        if len(known) < len(behind):
            return None
        self._compare(probes)
        return min(latest, portion_end(known, portion)) if known else latest

    def _compare(self, probes: Probes) -> None:
        """Say once how far apart the shards are at the start."""
        if self._has_compared or self._patience is None:
            return
        self._has_compared = True
        starts = {
            begun: one.shard.key
            for one in probes
            if (begun := one.progress.as_of or one.progress.position.timestamp) is not None
        }
        if starts and (apart := max(starts) - min(starts)) > _APART:
            _LOGGER.info(
                "The shards begin up to %.0f s apart. %s is the furthest behind, and the others "
                "wait for it.",
                apart.total_seconds(),
                starts[min(starts)],
            )

    def _end_of_parents(self, probes: Probes) -> datetime:
        """Return when the last record arrived of the first shard that ends before its children."""
        if self._patience is None or not self._parents_first:
            return _FOREVER
        ends = (one.seen.latest_arrival or _NEVER for one in probes if one.seen.has_ended)
        return min(ends, default=_FOREVER)

    async def _find_counted(
        self, probes: Probes, due: Probes, limit: ReadLimit
    ) -> tuple[Counts, list[ShardProbe]]:
        """Return what comes first over all shards within ``limit``, else who holds it back."""
        counts, holders = await self._count(probes, due, limit)
        if self._are_too_few(probes, limit):
            return {}, []
        found: Counts = {one.shard.key: n for one, n in zip(probes, counts, strict=True)}
        return found, [] if any(counts) else holders

    async def _count(
        self, probes: Probes, due: Probes, limit: ReadLimit
    ) -> tuple[list[int], list[ShardProbe]]:
        """Count what comes first over all shards; return who keeps the limit from being used up."""

        async def count(probe: ShardProbe) -> None:
            sample = probe.plan.sample or NO_SAMPLE
            await probe.count(_records_to_count(limit, len(probes), sample))

        # Nothing behind a gap can be counted.
        may_ask = set(due)
        asked = [one for one in probes if one.forget_after(_NEVER) or one in may_ask]
        holders = list(probes)
        for _ in range(_COUNTS_PER_ROUND):
            await self._for_each(asked, count)
            bound, holders = self._counted_until(probes)
            counts = admit([one.seen.lane for one in probes], limit, bound.timestamp())
            asked = [one for one in holders if one in may_ask]
            is_full = any(
                count < probe.seen.count_before(bound)
                for probe, count in zip(probes, counts, strict=True)
            )
            if is_full or not asked:
                break
        return counts, [] if is_full else holders

    def _counted_until(self, probes: Probes) -> tuple[datetime, list[ShardProbe]]:
        """Return the instant to which all shards are counted, and those that have no more."""
        waited_for = self._waited_for(probes)
        if self._patience is None or all(one.front.is_idle for one in waited_for):
            return self._end_of_parents(probes), []
        common = common_instant(one.front for one in waited_for)
        holders = [
            one
            for one in waited_for
            if not one.front.is_idle
            and (common is None or one.front.until is None or one.front.until <= common)
        ]
        return min(self._end_of_parents(probes), common or _NEVER), holders

    def _lose_patience(self, probes: Probes, holders: Probes) -> None:
        """Continue without those that have held the others back for too long."""
        if self._patience is None:
            return
        holding = {one.shard.key for one in holders} | self.lost
        fronts = {
            one.shard.key: Front(one.front.until, is_idle=one.shard.key not in holding)
            for one in probes
        }
        before = self.lost
        self.lost = self._patience.lost(fronts, self._clock.monotonic())
        known = [one.until for one in fronts.values() if one.until]
        for key in self.lost - before:
            until = fronts[key].until
            seconds = (max(known) - until).total_seconds() if until else None
            self._events(ShardLeftBehind(shard=key, seconds=seconds))


def _records_to_count(limit: ReadLimit, shards: int, sample: Sample) -> int:
    """Return how many records of a shard to look at, so that the limit can be used up."""
    wanted = MOST_RECORDS
    if limit.records is not None:
        wanted = min(wanted, limit.records)
    if limit.payload_bytes is not None:
        wanted = min(wanted, int(limit.payload_bytes / sample.record_bytes))
    # Twice an even share: a shard with much gets what one with little leaves.
    return max(limit.min_records, min(MOST_RECORDS, max(_FEWEST_RECORDS, 2 * wanted // shards)))
