"""One worker of an application: takes leases, renews them, asks for some, and loses some."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from attrs import Factory, define, evolve, field

from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.errors import LeaseError
from kinesis_publishers.events import (
    EventSink,
    LeaseLost,
    LeasesCounted,
    LeaseTaken,
    ignore_event,
)
from kinesis_publishers.leases.rows import LeaseRows
from kinesis_publishers.leases.rules import (
    Rows,
    View,
    free_to_take,
    given_to,
    lease_of,
    spilled,
    to_request,
    to_settle,
    with_front,
    with_lease,
)
from kinesis_publishers.model import Checkpoint, Lease, ShardKey, StoredCheckpoint

_LOGGER = logging.getLogger(__name__)

# Of a failover time. With the looks that follow, a lease is renewed after about half of it: in time
# for a second attempt, and with fewer writes than the KCL's, which renews after a third.
_RENEW_PART: Final = 0.37
# How many failover times the throughput is measured for: the KCL's 30 seconds. In less, what is
# slower than the stream, and gets its records in bursts, seems to have now much to do, now nothing.
_MEASURE_PARTS: Final = 3
# In seconds: what is left of a lease may be less than a clock can tell.
_SHORTEST_PAUSE: Final = 0.001


def default_worker_id() -> str:
    """Return a name that no other worker has, and that shows where this one runs."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


@define
class Held:
    """A lease that this worker holds.

    Attributes:
        row: as this worker has written it last.
        valid_until: when it ends unless it is renewed, by this machine's monotonic clock: the
            failover time after the last write that succeeded was *sent*.
        renewed_at: when that was.
        measured_at: since when the throughput is measured.
        payload_bytes: how much has been delivered since then.
        is_new: whether the shard has not been read by this worker since it got the lease.
        ready_at: before that, a subscription would be refused.
        subscribed_at: when this worker has subscribed to the shard; ``None`` while it has not.
    """

    row: StoredCheckpoint
    valid_until: float
    renewed_at: float
    measured_at: float
    payload_bytes: int = 0
    is_new: bool = True
    ready_at: float = 0.0
    subscribed_at: float | None = None


@define(eq=False)
class LeaseWorker(LeaseRows):
    """Follows the rules, one :meth:`look` after the other.

    What does not succeed within the failover time suspends the delivery of records; it goes on as
    soon as the lease has been renewed on the version that this worker wrote, which shows that
    no other worker has had it meanwhile.
    """

    _events: EventSink = ignore_event
    worker: str = field(
        init=False,
        default=Factory(
            lambda self: self._config.worker_id or default_worker_id(), takes_self=True
        ),
    )
    _held: dict[ShardKey, Held] = field(factory=dict, init=False)
    # What was asked for or is being taken, and since when.
    _asked: dict[ShardKey, float] = field(factory=dict, init=False)
    # What another worker has asked for.
    _leaving: set[ShardKey] = field(factory=set, init=False)
    _startable: list[ShardKey] = field(factory=list, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _renewed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _wake: Callable[[], None] = field(default=lambda: None, init=False)
    _is_closing: bool = field(default=False, init=False)
    # What a process of this name has written that is not this one.
    _twins: set[ShardKey] = field(factory=set, init=False)
    # The stream consumers that this worker has registered, by stream.
    _consumer_arns: dict[str, str] = field(factory=dict, init=False)
    # Where each shard is, by event time: the next write of its row says so.
    _fronts: dict[ShardKey, Front] = field(factory=dict, init=False)

    @property
    def _may_lose(self) -> bool:
        return bool(self._held)

    async def look(self) -> None:
        """Renew what is due, look at the rows, and do what the rules say; one pass."""
        async with self._turn:
            await self._renew()
            await self._load()
            if self._is_closing:
                return
            async with self._limited("report to"):
                has_leader = await self._store.report(self.worker)
            await self._settle(has_leader=has_leader)
            await self._take(free_to_take(self._view(), self._startable))
            await self._ask([] if has_leader else to_request(self._view(), self._startable))
            if any(one.is_new for one in self._held.values()):
                # It may have been waiting until a subscription is accepted.
                self._wake()
            self._count()

    def _seconds_to_expiry(self) -> float:
        """Return when the next lease of another worker ends unless that renews it."""
        failover = self._config.failover_seconds
        ages = self._sightings.ages(self._clock.monotonic())
        left = (
            failover - ages[key]
            for key in self._startable
            if key in ages and key not in self._held and lease_of(self.rows[key]).owner
        )
        return max(_SHORTEST_PAUSE, min((one for one in left if one > 0), default=failover))

    def _view(self, rows: Rows | None = None) -> View:
        return View(
            worker=self.worker,
            rows={
                key: row
                for key, row in (rows or self._current_rows()).items()
                if not row.checkpoint.progress.is_ended
            },
            ages=self._sightings.ages(self._clock.monotonic()),
            own=self._held.keys() | self._asked.keys(),
            failover_seconds=self._config.failover_seconds,
            max_leases=self._config.max_leases,
        )

    async def _renew(self) -> None:
        latest = self._clock.monotonic() - _RENEW_PART * self._config.failover_seconds
        due = [key for key, held in self._held.items() if held.renewed_at <= latest]
        await self._save([with_lease(self._held[key].row, self._measured(key)) for key in due])

    def _measured(self, key: ShardKey) -> Lease:
        """Return a lease to write, with the moving average of the throughput."""
        held, now = self._held[key], self._clock.monotonic()
        lease = lease_of(held.row)
        average = lease.bytes_per_second
        if (seconds := now - held.measured_at) >= _MEASURE_PARTS * self._config.failover_seconds:
            rate = held.payload_bytes / seconds
            average = round(rate if average is None else (rate + average) / 2)
            held.measured_at, held.payload_bytes = now, 0
        return evolve(
            with_front(lease, self._fronts.get(key)),
            bytes_per_second=average,
            settle_seconds=0,
            consumer_arn=self._consumer_arns.get(key.stream_arn, lease.consumer_arn),
        )

    async def _settle(self, *, has_leader: bool) -> None:
        """Begin with what was asked for and has been handed over; pass on what others ask for."""
        now, view = self._clock.monotonic(), self._view()
        self._asked |= dict.fromkeys(given_to(view) if has_leader else (), now)
        asked = {key: now - since for key, since in self._asked.items()}
        keys = to_settle(view, asked, self._config.handover_seconds)
        for key in asked:
            row = self.rows.get(key)
            if row is None or lease_of(row).owner != self.worker:
                del self._asked[key]
                # A third worker has asked before this one has begun.
                if row is not None and lease_of(row).leaving == self.worker:
                    keys.append(key)
        await self._hold(
            [
                with_lease(row, evolve(lease_of(row), leaving=None))
                for row in (self.rows[key] for key in keys)
            ]
        )

    async def _take(self, keys: Sequence[ShardKey]) -> None:
        await self._hold([self._taken(key, leaving=None) for key in keys])

    def _taken(self, key: ShardKey, *, leaving: str | None) -> Checkpoint:
        row = self.rows[key]
        lease = lease_of(row)
        if lease.hash_range is None and key in self._listed:
            # The row of a reader without leases.
            known = self._first_row(self._listed[key]).lease or lease
            lease = evolve(lease, parents=known.parents, hash_range=known.hash_range)
        switches = lease.switches + 1
        taken = evolve(lease, owner=self.worker, leaving=leaving, switches=switches)
        return with_lease(row, evolve(taken, is_idle=None, is_at_tip=None))

    async def _hold(self, rows: Sequence[Checkpoint]) -> None:
        """Write rows that make this worker the holder, and begin with those that were written."""
        now = self._clock.monotonic()
        self._asked |= {row.shard: now for row in rows if row.shard not in self._asked}
        # What was refused may be this worker's all the same, to be passed on: the next look tells.
        for key in await self._save(rows):
            self._asked.pop(key, None)

    async def _ask(self, keys: Sequence[ShardKey]) -> None:
        if self._config.handover_seconds == 0:
            await self._take(keys)
            return
        now = self._clock.monotonic()
        rows = [self._taken(key, leaving=lease_of(self.rows[key]).owner) for key in keys]
        self._asked |= dict.fromkeys(keys, now)
        for key in await self._save(rows) & self.rows.keys():
            self._sightings.note_request(key, self.rows[key].version)

    def _count(self) -> None:
        view = self._view()
        self._events(
            LeasesCounted(
                worker=self.worker,
                current=len(self._held),
                total=len(view.rows),
                workers=len(view.owners()),
                free=sum(map(view.is_free, view.rows)),
                spilled=spilled(view, self._startable),
            )
        )

    def _note_loaded(self, before: Rows) -> None:
        # All of them before an error is raised: what is held is written on what is known of it.
        strangers = [key for key in tuple(self._held) if not self._reconcile(key)]
        seen = {key for key, row in before.items() if self._is_written_by_twin(key, row)}
        # The first time it may be the last write of a former run, which has come late.
        strangers += seen & self._twins
        self._twins |= seen
        if _outline(self.rows) != _outline(before):
            self._wake()
        for key in strangers:
            raise LeaseError(
                f"{self.rows[key].version.writer} has written the lease on {key} in the name of "
                f"{self.worker}, which this process has. Give each worker a "
                "kinesis.lease.workerid of its own, or leave the option out; a reader of this "
                "application without kinesis.lease.enabled must not run beside workers with it."
            )

    def _note_written(self, keys: Iterable[ShardKey], sent_at: float) -> None:
        for key in keys:
            row, held = self.rows[key], self._held.get(key)
            valid_until = sent_at + self._config.failover_seconds
            if lease_of(row).holder != self.worker:
                self._drop(key)
            elif held is None:
                self._held[key] = Held(
                    row=row,
                    valid_until=valid_until,
                    renewed_at=sent_at,
                    measured_at=sent_at,
                    ready_at=sent_at + lease_of(row).settle_seconds,
                )
                self._events(LeaseTaken(shard=key))
                self._wake()
            else:
                held.row, held.renewed_at, held.valid_until = row, sent_at, valid_until
        self._renewed.set()

    def _reconcile(self, key: ShardKey) -> bool:
        """Learn what has become of a lease: it is held on, asked for, or lost.

        Return ``False`` if another process writes in the name of this worker.
        """
        held, row = self._held[key], self.rows.get(key)
        lease = Lease() if row is None else lease_of(row)
        if row is None or lease.holder != self.worker:
            if row is None:
                self._removed[key] = held.row.checkpoint.progress
            self._lose(key, lease.owner)
        elif lease.owner != self.worker:
            held.row = row
            self._leaving.add(key)
            self._wake()
        elif row.version == held.row.version or row.version.writer == held.row.version.writer:
            # Perhaps by a call whose answer was lost. A later one may still be under way, and must
            # not be undone: what was sent last is what is written next.
            held.row = evolve(held.row, version=row.version)
        else:
            self._drop(key)
            return False
        return True

    def _is_written_by_twin(self, key: ShardKey, before: StoredCheckpoint) -> bool:
        """Say whether another live process of this name has renewed what this one does not hold."""
        row = self.rows.get(key, before)
        return (
            # Not by the hand-over to a former run of this one.
            lease_of(row).holder == lease_of(before).holder == self.worker
            and key not in self._held
            and key not in self._asked
            and row.version.number > before.version.number
            and row.version.writer == before.version.writer
            and not row.version.is_foreign
        )

    def _lose(self, key: ShardKey, owner: str | None) -> None:
        is_removed = key not in self.rows
        to = f"to {owner}" if owner else "by a release: no worker has it"
        if is_removed:
            to = (
                "because its row was removed, and the checkpoint with it: the row is created "
                "again, and records may be repeated. Remove rows only while no worker runs"
            )
        _LOGGER.warning("%s has lost the lease on %s %s.", self.worker, key, to)
        self._events(LeaseLost(shard=key, owner=owner, is_removed=is_removed))
        self._drop(key)
        # Not taken again before the fetcher has been told: it may have read further than the row.
        self._startable = [one for one in self._startable if one != key]
        self._wake()

    def _drop(self, key: ShardKey) -> None:
        self._held.pop(key, None)
        self._fronts.pop(key, None)
        self._leaving.discard(key)


def _outline(rows: Rows) -> dict[ShardKey, object]:
    """Return what decides who reads what: it changes far less often than the rows."""
    return {
        key: (lease_of(row).owner, lease_of(row).leaving, row.checkpoint.progress.is_ended)
        for key, row in rows.items()
    }
