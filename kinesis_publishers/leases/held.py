"""The leases of one worker: which it has, which it has asked for, and which it must give up."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

from attrs import define, evolve, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import LeaseConfig
from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.errors import LeaseError
from kinesis_publishers.events import EventSink, LeaseLost, LeaseTaken
from kinesis_publishers.leases.rows import LeaseRows
from kinesis_publishers.leases.rules import Rows, View, lease_of, with_front
from kinesis_publishers.model import ChildShard, Lease, ShardKey, StoredCheckpoint

_LOGGER = logging.getLogger(__name__)

# A fraction of the failover time: a call that takes longer is abandoned and repeated.
_CALL_PART: Final = 1 / 3
# The throughput is measured over three failover times: 30 seconds, as in the KCL. With a shorter
# window, a slow reader that receives bursts looks alternately busy and idle.
_MEASURE_PARTS: Final = 3
# AWS refuses another subscription to a shard for this long (API reference, SubscribeToShard).
_RESUBSCRIBE_SECONDS: Final = 5.0


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
        front: where the shard is by event time, for the other workers; ``None`` while unknown.
    """

    row: StoredCheckpoint
    valid_until: float
    renewed_at: float
    measured_at: float
    payload_bytes: int = 0
    is_new: bool = True
    ready_at: float = 0.0
    subscribed_at: float | None = None
    front: Front | None = None


@define(eq=False)
class HeldLeases:
    """What one worker holds, has asked for and hands over; it learns that from the rows.

    If a renewal fails for the failover time, delivery pauses. It resumes when a renewal succeeds on
    the version that this worker wrote: no other worker has had the lease meanwhile.

    Attributes:
        asked: what was asked for or is being taken, and since when.
        leaving: what another worker has asked for, and until when this one may surely finish what
            it has begun.
        startable: the shards that may be read now, by the worker with the lease.
        consumer_arns: the stream consumers that this worker has registered, by stream.
        children: what continues shards that have ended.
        hurry: set to load the rows soon.
        wake: is called when the shards to read may have changed.
    """

    _rows: LeaseRows
    _config: LeaseConfig
    _clock: Clock
    _events: EventSink
    worker: str
    held: dict[ShardKey, Held] = field(factory=dict, init=False)
    asked: dict[ShardKey, float] = field(factory=dict, init=False)
    leaving: dict[ShardKey, float] = field(factory=dict, init=False)
    startable: list[ShardKey] = field(factory=list, init=False)
    consumer_arns: dict[str, str] = field(factory=dict, init=False)
    children: dict[ShardKey, tuple[ChildShard, ...]] = field(factory=dict, init=False)
    hurry: asyncio.Event = field(factory=asyncio.Event, init=False)
    has_written: asyncio.Event = field(factory=asyncio.Event, init=False)
    wake: Callable[[], None] = field(default=lambda: None, init=False)
    # What another process has written in the name of this worker.
    _twins: set[ShardKey] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._rows.on_loaded = self._note_loaded
        self._rows.progress.on_written = self._note_written
        self._rows.progress.call_seconds = self._call_seconds

    def _call_seconds(self) -> float | None:
        """Return after how many seconds a call may cost this worker a lease."""
        return _CALL_PART * self._config.failover_seconds if self.held else None

    def view(self) -> View:
        rows = self._rows.progress.current()
        return View(
            worker=self.worker,
            rows={key: row for key, row in rows.items() if not row.checkpoint.progress.is_ended},
            ages=self._rows.ages(),
            own=self.held.keys() | self.asked.keys(),
            failover_seconds=self._config.failover_seconds,
            max_leases=self._config.max_leases,
        )

    def renewed(self, key: ShardKey) -> Lease:
        """Return a lease to write, with the moving average of its throughput."""
        held, now, lease = self.held[key], self._clock.monotonic(), self._lease(key)
        average, seconds = lease.bytes_per_second, now - held.measured_at
        if seconds >= _MEASURE_PARTS * self._config.failover_seconds:
            rate = held.payload_bytes / seconds
            average = round(rate if average is None else (rate + average) / 2)
            held.measured_at, held.payload_bytes = now, 0
        return evolve(lease, bytes_per_second=average, settle_seconds=0)

    def released(self, key: ShardKey) -> Lease:
        """Return a lease to write that this worker gives up, to the one that has asked for it."""
        held, lease = self.held[key], self._lease(key)
        # What this worker has waited for itself is still to be waited for.
        until = held.ready_at
        if held.subscribed_at is not None:
            until = held.subscribed_at + _RESUBSCRIBE_SECONDS
        return evolve(
            lease,
            owner=lease.owner if lease.owner != self.worker else None,
            leaving=None,
            is_idle=None,
            is_at_tip=None,
            settle_seconds=max(0, math.ceil(until - self._clock.monotonic())),
        )

    def _lease(self, key: ShardKey) -> Lease:
        lease = with_front(lease_of(self.held[key].row), self.held[key].front)
        # The consumer may have been registered after the lease was taken.
        arn = self.consumer_arns.get(key.stream_arn, lease.consumer_arn)
        return evolve(lease, consumer_arn=arn)

    def _note_loaded(self, before: Rows) -> None:
        rows = self._rows.progress.stored
        # Reconcile all of them before raising: a release writes on what is known of each.
        strangers = [key for key in tuple(self.held) if not self._reconcile(key)]
        seen = {key for key, row in before.items() if self._is_written_by_twin(key, row)}
        # At first sight it may be the late last write of a former run.
        strangers += seen & self._twins
        self._twins |= seen
        if _outline(rows) != _outline(before):
            self.wake()
        for key in strangers:
            raise LeaseError(
                f"{rows[key].version.writer} has written the lease on {key} in the name of "
                f"{self.worker}, which this process has. Give each worker a "
                "kinesis.lease.workerid of its own, or leave the option out. A reader of this "
                "application without kinesis.lease.enabled must not run together with its workers."
            )

    def _note_written(self, keys: Iterable[ShardKey], sent_at: float) -> None:
        for key in keys:
            row, held = self._rows.progress.stored[key], self.held.get(key)
            valid_until = sent_at + self._config.failover_seconds
            if lease_of(row).holder != self.worker:
                self._drop(key)
            elif held is None:
                self.held[key] = Held(
                    row=row,
                    valid_until=valid_until,
                    renewed_at=sent_at,
                    measured_at=sent_at,
                    ready_at=sent_at + lease_of(row).settle_seconds,
                )
                self._events(LeaseTaken(shard=key))
                self.wake()
            else:
                held.row, held.renewed_at, held.valid_until = row, sent_at, valid_until
        self.has_written.set()

    def _reconcile(self, key: ShardKey) -> bool:
        """Update a lease: it is still held, requested, or lost.

        Return ``False`` if another process writes in the name of this worker.
        """
        held, row = self.held[key], self._rows.progress.stored.get(key)
        lease = Lease() if row is None else lease_of(row)
        if row is None or lease.holder != self.worker:
            if row is None:
                self._rows.removed[key] = held.row.checkpoint.progress
            self._lose(key, lease.owner)
        elif lease.owner != self.worker:
            held.row = row
            # It was asked for after the last write of this worker, from when on the other waits.
            self.leaving.setdefault(key, held.renewed_at + self._config.handover_seconds)
            self.wake()
        elif row.version == held.row.version or row.version.writer == held.row.version.writer:
            # Perhaps by a call whose answer was lost. A later call may still be under way and must
            # not be undone: the next write is what was sent last.
            held.row = evolve(held.row, version=row.version)
        else:
            self._drop(key)
            return False
        return True

    def _is_written_by_twin(self, key: ShardKey, before: StoredCheckpoint) -> bool:
        """Return whether another live process of this name renewed a lease not held here."""
        row = self._rows.progress.stored.get(key, before)
        return (
            # Not by the hand-over to a former run of this one.
            lease_of(row).holder == lease_of(before).holder == self.worker
            and key not in self.held
            and key not in self.asked
            and row.version.number > before.version.number
            and row.version.writer == before.version.writer
            and not row.version.is_foreign
        )

    def _lose(self, key: ShardKey, owner: str | None) -> None:
        if is_removed := key not in self._rows.progress.stored:
            _LOGGER.warning(
                "The row of %s was removed, and the checkpoint with it. Worker %s creates the row "
                "again, and records may be repeated. Remove rows only while no worker runs.",
                key,
                self.worker,
            )
        self._events(LeaseLost(shard=key, owner=owner, is_removed=is_removed))
        self._drop(key)
        # The fetcher may have read further than the row: take the shard again once it knows.
        self.startable = [one for one in self.startable if one != key]
        self.wake()

    def _drop(self, key: ShardKey) -> None:
        self.held.pop(key, None)
        self.leaving.pop(key, None)


def _outline(rows: Rows) -> dict[ShardKey, object]:
    """Return what decides who reads what: it changes far less often than the rows."""
    return {
        key: (lease_of(row).owner, lease_of(row).leaving, row.checkpoint.progress.is_ended)
        for key, row in rows.items()
    }
