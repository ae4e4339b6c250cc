"""Finds, for many shards at once, how far each of them may be read now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from kinesis_publishers.assembly import Services
from kinesis_publishers.engine.alignment import LATE_AFTER, ReadLimit, latest_known
from kinesis_publishers.engine.data_loss import SHARD_NOT_FOUND
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.errors import PositionTrimmedError, StreamRecreatedError
from kinesis_publishers.model import ShardKey, StartingPosition, StreamProgress
from kinesis_publishers.readers.ranges.rounds import Counts, Look, Rounds
from kinesis_publishers.readers.ranges.rules import Portion
from kinesis_publishers.readers.ranges.seen_records import RangeEnd, SeenRecords
from kinesis_publishers.readers.ranges.shard_probe import ShardProbe
from kinesis_publishers.readers.shard_table import ShardTable
from kinesis_publishers.tasks import TaskScope

_T = TypeVar("_T")
#: The ends of the ranges that one round found; shards with nothing new are left out.
Ends: TypeAlias = dict[ShardKey, RangeEnd]

# Nearer to the tip, the next round takes fewer calls than a look ahead of it.
_BACKLOG_AGE = timedelta(seconds=5)
# The number of shards in one look.
_LOOKS_AT_ONCE = 64
# Looks take at most two of the five calls a second that a shard allows. The others are for the
# readers, which run elsewhere and do not know about the looks.
_LOOK_INTERVAL_SECONDS = 0.5
_TIP_LASTS_SECONDS = 1.5
# The limit for all shards: a thousand idle ones must not keep the driver busy.
_LOOKS_PER_SECOND = 400
_LEAST = Portion()
# Where that limit binds, the shards form this many groups: a round per shard costs a sixth more.
_GROUPS = 10


class KinesisRangeFinder:
    """Finds in each round how far each shard may be read. Others read the records.

    A range ends with an existing record or immediately before one, so that every read of it returns
    the same records. A shard begins in a round after those in which all of its parents ended.

    Args:
        resume: how far each stream (by ARN) had been read before; other streams begin at the
            configured initial position.
        piece_records: the approximate number of user records per piece, if several tasks may share
            a large range; ``None`` cuts no range.
        patience_seconds: how long an unreadable shard holds the others back; ``None`` if the shards
            do not stay together in time.
        late: counts the user records of each shard that come after much younger ones of others;
            an estimate where records were not seen.

    Attributes:
        rounds: chooses what each round has of each shard.
        aligned_until: the latest arrival in all ranges so far, ``None`` before the first.
    """

    def __init__(
        self,
        services: Services,
        *,
        resume: Mapping[str, StreamProgress] | None = None,
        piece_records: int | None = None,
        patience_seconds: float | None = None,
        late: Counter[ShardKey] | None = None,
        aligned_until: datetime | None = None,
    ) -> None:
        self._services = services
        self._piece_records = piece_records
        self._late = Counter[ShardKey]() if late is None else late
        self._is_aligned = patience_seconds is not None
        self.rounds = Rounds(services, self._for_each, patience_seconds)
        self.aligned_until = aligned_until
        self._shards = ShardTable(services, dict(resume or {}))
        self._probes: dict[ShardKey, ShardProbe] = {}
        self._next_discovery = 0.0
        # Whether a shard has ended whose children the listing may lack.
        self._is_listing_stale = False
        self._next_round = float("-inf")

    @property
    def progress(self) -> dict[str, StreamProgress]:
        """How far ranges were found, per stream (by ARN)."""
        return self._shards.by_stream(self._shards.progress)

    @property
    def statuses(self) -> list[ShardStatus]:
        """How far each shard that is not read to its end has been looked at."""
        return [probe.status for probe in self._probes.values()]

    @property
    def waiting_since(self) -> dict[ShardKey, datetime]:
        """When the first record of a shard arrived that was found and is in no range yet."""
        found = {key: probe.seen.waiting_since for key, probe in self._probes.items()}
        return {key: instant for key, instant in found.items() if instant is not None}

    async def prepare(self) -> None:
        """Find the streams and their shards, and fix where each shard begins; reads nothing.

        It raises what :meth:`KinesisDataFetcher.prepare` raises.
        """
        streams = self._services.streams
        await self._list(lambda: self._shards.add(*streams))

    async def find(
        self, limit: ReadLimit, portion: Portion = _LEAST, *, until: datetime | None = None
    ) -> Ends:
        """Return what may be read now; a backlog takes several rounds.

        Aligned shards are read to one instant. Without a limit this costs at most one
        GetShardIterator and one small GetRecords per shard, and a few more where a busy shard has
        fallen silent. With a limit it counts the records, which fetches their bytes twice.

        Args:
            limit: of all ranges together.
            portion: the approximate size of a round of a backlog, without a limit.
            until: everything that arrived before this instant is enough (Trigger.AvailableNow).
        """
        if self._services.clock.monotonic() < self._next_round:
            return {}
        return await self._find_or_begin_again(lambda: self._find(limit, portion, until))

    async def _find_or_begin_again(self, find: Callable[[], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await find()
            except StreamRecreatedError:
                if self._services.data_loss.fails:
                    raise
            self._shards, self._probes = self._shards.renewed(), {}
            await self.prepare()

    async def look_ahead(
        self, limit: ReadLimit, portion: Portion = _LEAST, *, until: datetime | None = None
    ) -> bool:
        """Look for what the next round has of a backlog; return whether there is no more to do.

        It makes no range. :meth:`find`, with any arguments, then has few calls left.
        """

        async def look() -> bool:
            now = self._services.clock.now()
            if min(self.waiting_since.values(), default=now) > now - _BACKLOG_AGE:
                return True
            due = await self._anchored(until)
            return await self.rounds.look_ahead(list(self._probes.values()), due, limit, portion)

        return await self._find_or_begin_again(look)

    async def _anchored(self, until: datetime | None) -> list[ShardProbe]:
        """Return the probes that are due; the beginnings of their shards are known, if readable."""
        await self._discover_if_due(until)
        # Aligned shards are all looked at: the lagging ones catch up with the others.
        due = self._due_probes(None if self._is_aligned else until)
        if until is None or not self.is_caught_up(until):
            # The first records of a shard show its beginning in time, and its rate.
            await self._for_each([one for one in due if not one.is_anchored], ShardProbe.anchor)
        return due

    async def _find(self, limit: ReadLimit, portion: Portion, until: datetime | None) -> Ends:
        due = await self._anchored(until)
        if until is not None and self.is_caught_up(until):
            return {}
        probes = list(self._probes.values())
        ends = await self._take(await self.rounds.find(probes, due, limit, portion))
        if not ends:
            self._pause(due)
        return ends

    async def find_tip(self) -> Ends:
        """Return everything that is there now, however much it is."""
        return await self._find_or_begin_again(self._find_tip)

    async def _find_tip(self) -> Ends:
        now = self._services.clock.now()
        await self._discover_if_due()
        probes = self._startable_probes()
        await self._for_each(probes, lambda probe: probe.reach_tip(now))
        return await self._take({one.shard.key: None for one in probes})

    def is_caught_up(self, until: datetime) -> bool:
        """Return whether everything that arrived before ``until`` is in ranges.

        That includes the children of shards that have ended by now.
        """
        keys = [shard.key for shard in self._shards.startable()]
        return not self._misses_shards(until) and all(
            key in self._probes and self._probes[key].is_caught_up(until) for key in keys
        )

    async def _list(self, listing: Callable[[], Awaitable[object]]) -> None:
        await listing()
        interval = self._services.discovery.config.interval_seconds
        self._next_discovery = self._services.clock.monotonic() + interval
        self._is_listing_stale = False

    def _misses_shards(self, until: datetime | None) -> bool:
        # A shard may have closed since the listing. Its tip says nothing about its children, and
        # its end may come in a separate answer.
        is_late = until is not None and self._shards.listed_at < until
        return self._is_listing_stale or is_late

    async def _discover_if_due(self, until: datetime | None = None) -> None:
        if self._misses_shards(until) or self._services.clock.monotonic() >= self._next_discovery:
            await self._list(self._shards.discover)

    def _startable_probes(self) -> list[ShardProbe]:
        before, self._probes = self._probes, {}
        startable = self._shards.startable()
        # With more shards, each is asked less often.
        tip_lasts = timedelta(seconds=max(_TIP_LASTS_SECONDS, 3 * _look_interval(len(startable))))
        for shard in startable:
            probe = before.get(shard.key)
            if probe is None:
                seen = SeenRecords(self._shards.progress[shard.key])
                probe = ShardProbe(shard, seen, self._services, self._piece_records)
            probe.shard, probe.tip_lasts = shard, tip_lasts
            self._probes[shard.key] = probe
        return list(self._probes.values())

    def _due_probes(self, until: datetime | None) -> list[ShardProbe]:
        probes = self._startable_probes()
        if until is not None:
            probes = [probe for probe in probes if not probe.has_seen(until)]
        interval = _look_interval(len(probes))
        due = [probe for probe in probes if probe.wait(interval) <= 0]
        if due and interval == _LOOK_INTERVAL_SECONDS:
            # Bring the dates of few shards together: else each would have its own micro-batches.
            due = [probe for probe in probes if probe.wait(interval / 2) <= 0]
        return due

    def _pause(self, due: Sequence[ShardProbe]) -> None:
        """Wait until a shard comes due, or several of many."""
        interval = _look_interval(len(self._probes))
        if not due:
            wait = min((probe.wait(interval) for probe in self._probes.values()), default=interval)
            self._next_round = min(self._services.clock.monotonic() + wait, self._next_discovery)
        if interval > _LOOK_INTERVAL_SECONDS:
            pause = self._services.clock.monotonic() + interval / _GROUPS
            self._next_round = min(max(self._next_round, pause), self._next_discovery)

    async def _for_each(self, probes: Sequence[ShardProbe], look: Look) -> None:
        waiting = list(reversed(probes))

        async def work() -> None:
            while waiting:
                await self._look_at(waiting.pop(), look)

        async with TaskScope() as scope:
            for number in range(min(_LOOKS_AT_ONCE, len(waiting))):
                scope.spawn(work(), name=f"look at shards ({number})")

    async def _look_at(self, probe: ShardProbe, look: Look) -> None:
        guard, is_over = self._services.data_loss, False
        if probe.last_look == float("-inf"):
            # Later losses show with the first record after them.
            now = self._services.clock.now()
            await guard.check_retention(probe.shard, probe.progress, now)
        missing = guard.missing(probe.shard)
        # Retry within the round: Trigger.Once has only one.
        while not is_over:
            try:
                await look(probe)
                is_over = True
            except PositionTrimmedError as error:
                await guard.report_trimmed(probe.shard, probe.progress, cause=error)
                horizon = StartingPosition.trim_horizon()
                probe.begin_again(await self._services.polling.create(horizon, probe.shard))
            except SHARD_NOT_FOUND as error:
                if is_over := await missing.has_left(error, probe.progress):
                    # The service no longer knows the shard.
                    probe.seen = SeenRecords(probe.progress.ended())
        self._shards.progress[probe.shard.key] = probe.progress

    async def _take(self, counts: Counts) -> Ends:
        ends: Ends = {}
        until, late_before = self.aligned_until, None
        if until is not None and self._is_aligned:
            late_before = until - LATE_AFTER
        check, now = self._services.data_loss.check_beginning, self._services.clock.now()
        # Concurrently: shards that are far behind share one question for the retention.
        async with TaskScope() as scope:
            for key, count in counts.items():
                probe = self._probes[key]
                shard, before = probe.shard, probe.progress
                if late_before is not None:
                    late = probe.seen.count_late(late_before, count, probe.plan.sample)
                    self._late.update({key: late} if late else ())
                end = probe.take(count)
                if end is None:
                    continue
                # Without its first record, the reader of the range sees what is missing.
                if end.first is not None:
                    checking = check(shard, before, now, end.first, end.first_arrival)
                    scope.spawn(checking, name=f"check the beginning of {shard}")
                ends[key] = end
                self._shards.progress[key] = end.progress
        self.aligned_until = latest_known(until, *(end.progress.as_of for end in ends.values()))
        self._is_listing_stale |= any(end.progress.is_ended for end in ends.values())
        return ends


def _look_interval(shards: int) -> float:
    return max(_LOOK_INTERVAL_SECONDS, shards / _LOOKS_PER_SECOND)
