"""The rules by which the workers of an application share its shards: pure functions over the rows.

The rules never compare the wall clocks of two machines. A lease is free when *this* worker has seen
the same version of its row for the failover time, on its own monotonic clock. Workers are known by
the rows alone: a worker without a shard is unknown to the others.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from kinesis_publishers.engine.alignment import Front, common_instant
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    Lease,
    ShardKey,
    StoredCheckpoint,
)

Rows: TypeAlias = Mapping[ShardKey, StoredCheckpoint]

_NO_LEASE = Lease()
# A lease that has been free for this many failover times is taken first: no other worker wants it.
_VERY_OLD = 3
# Workers that start together do not see each other: each of them takes a part per pass, so that
# few shards move again. The same holds for the part of a fair share that is asked for per pass.
_PARTS = 4
_ASKED_PARTS = 2
_SMALLEST_PART = 16
# Bytes per second of an average shard, a thousandth of what one can carry. Of a stream with less,
# chance and old averages decide which shards seem to have the load.
_LEAST_RATE = 1024.0


@define
class Sightings:
    """When each version of each row was first seen, in seconds of this machine's clock.

    ``longest_gap`` is the longest time between two looks that is usual.
    """

    _longest_gap: float
    _seen: dict[ShardKey, tuple[CheckpointVersion, float]] = field(factory=dict, init=False)
    _noted_at: float | None = field(default=None, init=False)

    def note(self, rows: Rows, now: float) -> None:
        """Take note of ``rows``, which were asked for before ``now``.

        After a gap all of them count as new: the store may have been away for every worker, or
        this one was paused, and the others have had no time to renew them since.
        """
        if self.is_gap(now):
            self._seen = {}
        self._noted_at = now
        self._seen = {
            key: known
            if (known := self._seen.get(key)) is not None and known[0] == row.version
            else (row.version, now)
            for key, row in rows.items()
        }

    def is_gap(self, now: float) -> bool:
        """Return whether the last look is too old to tell which holders are alive."""
        return self._noted_at is not None and now - self._noted_at > self._longest_gap

    def note_request(self, key: ShardKey, version: CheckpointVersion) -> None:
        """Let a version be as old as the one before it: it is no sign of life of the holder."""
        self._seen[key] = version, self._seen[key][1]

    def ages(self, now: float) -> dict[ShardKey, float]:
        """Return for how many seconds each row has been unchanged."""
        return {key: now - since for key, (_, since) in self._seen.items()}


def lease_of(row: StoredCheckpoint) -> Lease:
    """Return the lease in a row; a row of a single reader has no owner."""
    return row.checkpoint.lease or _NO_LEASE


def with_lease(row: StoredCheckpoint, lease: Lease) -> Checkpoint:
    return evolve(row.checkpoint, lease=lease)


@frozen(kw_only=True)
class View:
    """One worker's knowledge of the rows at one moment.

    Attributes:
        rows: those of the shards that have not ended.
        ages: for how many seconds each row has been the same.
        own: the shards that it holds, or has asked for.
        failover_seconds: how long a lease lasts without being renewed.
        max_leases: how many shards it may have; ``None`` for any number.
    """

    worker: str
    rows: Rows
    ages: Mapping[ShardKey, float]
    own: Collection[ShardKey]
    failover_seconds: float
    max_leases: int | None = None

    def is_free(self, key: ShardKey) -> bool:
        """Return whether no live worker holds the shard."""
        if key in self.own:
            return False
        is_owned = lease_of(self.rows[key]).owner is not None
        return not is_owned or self.ages[key] >= self.failover_seconds

    @property
    def has_room(self) -> int:
        """How many shards more this worker may have."""
        most = len(self.rows) if self.max_leases is None else self.max_leases
        return max(0, most - len(self.own))

    def owners(self) -> dict[str, list[ShardKey]]:
        """Return the shards of each live worker, this one included."""
        found: defaultdict[str, list[ShardKey]] = defaultdict(list, {self.worker: [*self.own]})
        for key, row in self.rows.items():
            if key not in self.own and not self.is_free(key):
                owner = lease_of(row).owner or ""
                # A former run of this worker, or another one of the same name, counts as another.
                found[owner if owner != self.worker else f"{owner} (another)"].append(key)
        return found

    def weights(self) -> dict[ShardKey, float]:
        """Return what each shard counts: the same for all, and as much again by its throughput.

        A shard whose throughput is not known yet counts as an average one. Of a stream that
        carries next to nothing, the throughput counts next to nothing.
        """
        known = {
            key: rate
            for key, row in self.rows.items()
            if (rate := lease_of(row).bytes_per_second) is not None
        }
        mean = sum(known.values()) / max(1, len(known))
        scale = max(mean, _LEAST_RATE)
        return {key: 1.0 + known.get(key, mean) / scale for key in self.rows}


def free_to_take(view: View, startable: Iterable[ShardKey]) -> list[ShardKey]:
    """Return the free shards that this worker takes now: up to its share, the oldest first.

    What has been free for very long is taken beyond the share: those that have less may be full.

    ``startable`` are the shards whose ancestors have all ended.
    """
    free = [key for key in startable if key in view.rows and view.is_free(key)]
    weights, owners = view.weights(), view.owners()
    share, most = sum(weights.values()) / len(owners), view.has_room
    if len(owners) == 1:
        most = min(most, max(_SMALLEST_PART, math.ceil(len(view.rows) / _PARTS)))
    mine = sum(weights[key] for key in view.own if key in weights)
    taken: list[ShardKey] = []
    for key in sorted(free, key=lambda key: _order_of_taking(view, key)):
        if len(taken) >= most or (mine >= share and not _is_very_old(view, key)):
            break
        taken.append(key)
        mine += weights[key]
    return taken


def _is_very_old(view: View, key: ShardKey) -> bool:
    return view.ages[key] >= _VERY_OLD * view.failover_seconds


def _order_of_taking(view: View, key: ShardKey) -> tuple[bool, int]:
    # Each worker has another order, so that two rarely want the same shard.
    return not _is_very_old(view, key), zlib.crc32(f"{view.worker} {key}".encode())


def to_request(view: View, startable: Collection[ShardKey]) -> list[ShardKey]:
    """Return the shards to ask other workers for: from the one with the most, never just to swap.

    Nothing is asked for while there is something free, or while a hand-over to this worker lasts.
    """
    candidates = {key for key in startable if key in view.rows}
    if any(view.is_free(key) for key in candidates):
        return []
    if any(lease_of(view.rows[key]).leaving for key in view.own if key in view.rows):
        return []
    weights, owners = view.weights(), view.owners()
    loads = {owner: sum(weights.get(key, 0.0) for key in keys) for owner, keys in owners.items()}
    share = sum(loads.values()) / len(loads)
    margin = sum(weights.values()) / max(1, len(weights)) / 2
    most = min(view.has_room, max(1, math.ceil(len(view.rows) / len(owners) / _ASKED_PARTS)))
    owner_of = {key: owner for owner, keys in owners.items() for key in keys}
    askable: dict[str, dict[ShardKey, float]] = {owner: {} for owner in owners}
    for key in sorted(candidates, key=lambda key: _order_of_taking(view, key), reverse=True):
        lease = lease_of(view.rows[key])
        # Another process of this name is not asked: it would not tell the request from its own.
        if not lease.leaving and lease.owner != view.worker:
            askable[owner_of[key]][key] = weights[key]
    wanted: list[ShardKey] = []
    while len(wanted) < most:
        victim = max(loads, key=lambda owner: (loads[owner], owner))
        gap = loads[victim] - loads[view.worker]
        # Afterwards the victim still has more: a shard never goes back for the same reason. After
        # the first step, only up to the share: others ask at the same time.
        limit = min(gap - margin, share - loads[view.worker] if wanted else gap)
        # What brings both closest together; ties go by this worker's own order.
        fitting = {
            abs(gap / 2 - weight): key for key, weight in askable[victim].items() if weight <= limit
        }
        if victim == view.worker or not fitting:
            break
        best = fitting[min(fitting)]
        loads[view.worker] += weights[best]
        loads[victim] -= askable[victim].pop(best)
        wanted.append(best)
    return wanted


def given_to(view: View) -> list[ShardKey]:
    """Return the shards that a leader of the KCL has given to this worker without being asked."""
    return [
        key
        for key, row in view.rows.items()
        if key not in view.own and row.version.is_foreign and lease_of(row).owner == view.worker
    ]


def to_settle(
    view: View, asked_seconds: Mapping[ShardKey, float], patience: float
) -> list[ShardKey]:
    """Return the shards that were asked for and are this worker's now.

    Their former holder has handed them over, has been silent for the failover time, or has taken
    longer than ``patience``; ``asked_seconds`` says how long ago each was asked for.
    """
    return [
        key
        for key, seconds in asked_seconds.items()
        if (row := view.rows.get(key)) is not None
        and lease_of(row).owner == view.worker
        and (
            lease_of(row).leaving is None
            or seconds >= patience
            or view.ages[key] >= view.failover_seconds
        )
    ]


def spilled(view: View, startable: Iterable[ShardKey]) -> int:
    """Return how many shards are free and too many for this worker: ``LeaseSpillover``."""
    free = sum(key in view.rows and view.is_free(key) for key in startable)
    return max(0, free - view.has_room)


def with_front(lease: Lease, front: Front | None) -> Lease:
    """Return a lease that tells other workers where its shard is; ``None`` changes nothing."""
    if front is None:
        return lease
    # Versions without a field can read rows that leave it out.
    is_idle, is_at_tip = front.is_idle or None, front.is_at_tip or None
    return evolve(lease, watermark=front.until, is_idle=is_idle, is_at_tip=is_at_tip)


def watermark_of(rows: Rows, key: ShardKey) -> datetime | None:
    """Return the watermark of a shard's last reader; without one, that of its ended parents."""
    if key not in rows:
        return None
    ended = [one for one in _parents(rows, key) if one.checkpoint.progress.is_ended]
    inherited = common_instant(Front(lease_of(one).watermark) for one in ended)
    return lease_of(rows[key]).watermark or inherited


def open_fronts(rows: Rows, view: View, own: Collection[ShardKey]) -> list[Front]:
    """Return where the open shards are that are not this worker's ``own``.

    A shard is left out while all of its parents are open: it begins where they end. One that no
    live worker reads is not idle, even if its row says so.
    """
    fronts = []
    for key, row in view.rows.items():
        ended = [one.checkpoint.progress.is_ended for one in _parents(rows, key)]
        if key not in own and (not ended or any(ended)):
            lease = _NO_LEASE if view.is_free(key) else lease_of(row)
            idle, at_tip = bool(lease.is_idle), bool(lease.is_at_tip)
            fronts.append(Front(watermark_of(rows, key), idle, at_tip))
    return fronts


def continued(rows: Rows, keys: Iterable[ShardKey]) -> list[ShardKey]:
    """Return the ended shards among ``keys`` whose places the rows of their children hold.

    A child without a watermark of its own has that of its parents, once all of them have ended.
    """
    found = []
    for key in keys:
        lease = lease_of(rows[key]) if key in rows else _NO_LEASE
        children = [ShardKey(key.stream_arn, one) for one in lease.children]
        parents = [one for child in children if child in rows for one in _parents(rows, child)]
        has_rows = children and rows.keys() >= {*children}
        if has_rows and all(one.checkpoint.progress.is_ended for one in parents):
            found.append(key)
    return found


def _parents(rows: Rows, key: ShardKey) -> list[StoredCheckpoint]:
    keys = (ShardKey(key.stream_arn, one) for one in lease_of(rows[key]).parents)
    return [rows[one] for one in keys if one in rows]
