"""The loop of one worker over the rows: it renews, takes and asks for leases by the rules."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Final

from attrs import define, evolve, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import LeaseConfig
from kinesis_publishers.errors import KinesisPublishersError, RetriesExhaustedError
from kinesis_publishers.events import EventSink, LeasesCounted
from kinesis_publishers.leases.held import HeldLeases
from kinesis_publishers.leases.rows import LeaseRows, parents_of
from kinesis_publishers.leases.rules import (
    free_to_take,
    given_to,
    lease_of,
    spilled,
    to_request,
    to_settle,
    with_lease,
)
from kinesis_publishers.model import Checkpoint, HashRange, ShardKey
from kinesis_publishers.tasks import wait_for_event

_LOGGER = logging.getLogger(__name__)

# A fraction of the failover time. With the looks that follow, a lease is renewed after about half
# of it: early enough for a second attempt, with fewer writes than the KCL, which renews after a
# third.
_RENEW_PART: Final = 0.37
# The pause between two looks is a fraction of the failover time. While a hand-over is pending, it
# is a fraction of how long that has lasted, and at least a smaller one of the failover time.
LOOK_PART: Final = 0.16
_ASKED_PART: Final = 0.02
_WAITED_PART: Final = 0.25
# In seconds. The rest of a lease may be shorter than the clock can measure.
_SHORTEST_PAUSE: Final = 0.001


def is_bearable(error: KinesisPublishersError) -> bool:
    """Return whether a store that failed with ``error`` may be back soon."""
    return isinstance(error, RetriesExhaustedError) or getattr(error, "retryable", False)


@define(eq=False)
class LeaseTaker:
    """Follows the rules, one :meth:`look` after the other."""

    _rows: LeaseRows
    _leases: HeldLeases
    _config: LeaseConfig
    _clock: Clock
    _events: EventSink
    is_closing: bool = field(default=False, init=False)

    async def keep(self) -> None:
        """Look at the rows, renew, take and ask, until cancelled."""
        has_failed = False
        while True:
            pause = min(self.seconds_to_look(), self._seconds_to_expiry())
            await wait_for_event(self._leases.hurry, timeout_seconds=pause, clock=self._clock)
            self._leases.hurry.clear()
            if not self._rows.progress.identities:
                continue  # The store does not know the streams yet.
            try:
                await self.look()
                has_failed = False
            except KinesisPublishersError as error:
                if not is_bearable(error):
                    raise
                if not has_failed:
                    _LOGGER.warning(
                        "The leases cannot be renewed: %r. Reading continues until they end, "
                        "and resumes when the store answers.",
                        error,
                    )
                has_failed = True

    def seconds_to_look(self) -> float:
        """Return how long to wait between two looks: less while a hand-over is waited for."""
        failover, seconds = self._config.failover_seconds, math.inf
        if self._leases.asked:
            waited = self._clock.monotonic() - max(self._leases.asked.values())
            seconds = max(_ASKED_PART * failover, _WAITED_PART * waited)
        return min(seconds, LOOK_PART * failover)

    def _seconds_to_expiry(self) -> float:
        """Return when the next lease of another worker ends unless that renews it."""
        failover, ages = self._config.failover_seconds, self._rows.ages()
        rows = self._rows.progress.stored
        left = (
            failover - ages[key]
            for key in self._leases.startable
            if key in ages and key not in self._leases.held and lease_of(rows[key]).owner
        )
        return max(_SHORTEST_PAUSE, min((one for one in left if one > 0), default=failover))

    async def look(self) -> None:
        """Renew what is due, look at the rows, and do what the rules say; one pass."""
        leases = self._leases
        async with self._rows.progress.turn:
            await self._renew()
            await self._rows.progress.load()
            if self.is_closing:
                return
            async with self._rows.progress.asking("report to"):
                has_leader = await self._rows.progress.foreign.report(leases.worker)
            await self.settle(has_leader=has_leader)
            await self._take(free_to_take(leases.view(), leases.startable))
            await self._ask([] if has_leader else to_request(leases.view(), leases.startable))
            if any(one.is_new for one in leases.held.values()):
                # A shard may have waited until a subscription is accepted again.
                leases.wake()
            self._count()

    async def _renew(self) -> None:
        latest = self._clock.monotonic() - _RENEW_PART * self._config.failover_seconds
        due = [(key, one) for key, one in self._leases.held.items() if one.renewed_at <= latest]
        await self._rows.save([with_lease(one.row, self._leases.renewed(key)) for key, one in due])

    async def settle(self, *, has_leader: bool) -> None:
        """Begin with what was asked for and has been handed over; pass on what others ask for."""
        leases, rows = self._leases, self._rows.progress.stored
        now, view = self._clock.monotonic(), leases.view()
        leases.asked |= dict.fromkeys(given_to(view) if has_leader else (), now)
        asked = {key: now - since for key, since in leases.asked.items()}
        keys = to_settle(view, asked, self._config.handover_seconds)
        for key in asked:
            row = rows.get(key)
            if row is None or lease_of(row).owner != leases.worker:
                del leases.asked[key]
                # A third worker has asked for it before this one began.
                if row is not None and lease_of(row).leaving == leases.worker:
                    keys.append(key)
        settled = (rows[key] for key in keys)
        await self._hold([with_lease(row, evolve(lease_of(row), leaving=None)) for row in settled])

    async def _take(self, keys: Sequence[ShardKey]) -> None:
        await self._hold([self._taken(key, leaving=None) for key in keys])

    def _taken(self, key: ShardKey, *, leaving: str | None) -> Checkpoint:
        row = self._rows.progress.stored[key]
        lease = lease_of(row)
        if lease.hash_range is None and (shard := self._rows.listed.get(key)):
            # The row of a reader without leases.
            lease = evolve(lease, parents=parents_of(shard), hash_range=HashRange.of(shard))
        switches = lease.switches + 1
        taken = evolve(lease, owner=self._leases.worker, leaving=leaving, switches=switches)
        return with_lease(row, evolve(taken, is_idle=None, is_at_tip=None))

    async def _hold(self, rows: Sequence[Checkpoint]) -> None:
        """Write rows that make this worker the holder, and begin with those that were written."""
        now, asked = self._clock.monotonic(), self._leases.asked
        asked |= {row.shard: now for row in rows if row.shard not in asked}
        # A refused row may be this worker's all the same, to be handed on: the next look shows it.
        for key in await self._rows.save(rows):
            asked.pop(key, None)

    async def _ask(self, keys: Sequence[ShardKey]) -> None:
        if self._config.handover_seconds == 0:
            await self._take(keys)
            return
        now, stored = self._clock.monotonic(), self._rows.progress.stored
        rows = [self._taken(key, leaving=lease_of(stored[key]).owner) for key in keys]
        self._leases.asked |= dict.fromkeys(keys, now)
        for key in await self._rows.save(rows) & self._rows.progress.stored.keys():
            self._rows.sightings.note_request(key, self._rows.progress.stored[key].version)

    def _count(self) -> None:
        view = self._leases.view()
        self._events(
            LeasesCounted(
                worker=self._leases.worker,
                current=len(self._leases.held),
                total=len(view.rows),
                workers=len(view.owners()),
                free=sum(map(view.is_free, view.rows)),
                spilled=spilled(view, self._leases.startable),
            )
        )
