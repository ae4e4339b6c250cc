"""The leases of one worker, wired: what its checkpointer writes to, and what its fetcher asks."""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from attrs import define, evolve, field

from kinesis_publishers.abc import CheckpointStore, ShardAssigner
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import LeaseConfig
from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.errors import KinesisPublishersError, StaleCheckpointError
from kinesis_publishers.events import (
    CheckpointsSaved,
    ConsumerRegistered,
    Event,
    EventSink,
    LeaseReleased,
    SubscriptionStarted,
    ignore_event,
)
from kinesis_publishers.leases.held import HeldLeases
from kinesis_publishers.leases.rows import LeaseRows
from kinesis_publishers.leases.rules import (
    continued,
    lease_of,
    open_fronts,
    watermark_of,
    with_lease,
)
from kinesis_publishers.leases.taking import LOOK_PART, LeaseTaker, is_bearable
from kinesis_publishers.model import (
    FOUND_LATER,
    Checkpoint,
    ChildShard,
    Shard,
    ShardKey,
    ShardProgress,
    StreamProgress,
)
from kinesis_publishers.progress.rows import (
    Identities,
    KeptProgress,
    Listing,
    OwnedRow,
    Progress,
    ProgressRows,
    Turn,
)

_MOST_TRIES: Final = 10
_LEAVE_SECONDS: Final = 5.0


@define(eq=False)
class LeasedShards(ShardAssigner):
    """Lets a fetcher read the shards that its worker has leases on, as ``SharedReading`` says.

    Attributes:
        has_left: whether the rows were seen after every lease of this worker was released.
    """

    _rows: LeaseRows
    _leases: HeldLeases
    _clock: Clock
    _events: EventSink
    has_left: bool = field(default=False, init=False)

    def on_change(self, wake: Callable[[], None]) -> None:
        self._leases.wake = wake

    def mine(self, startable: Sequence[Shard]) -> set[ShardKey]:
        leases = self._leases
        keys = [shard.key for shard in startable]
        if keys != leases.startable:
            leases.startable = keys
            leases.hurry.set()
        now = self._clock.monotonic()
        found = {
            key
            for key in keys
            if (held := leases.held.get(key)) and held.ready_at <= now and key not in leases.leaving
        }
        for key in found:
            leases.held[key].is_new = False
        return found

    def known_progress(self) -> Mapping[ShardKey, ShardProgress]:
        held = self._leases.held
        return self._rows.removed | {
            key: row.checkpoint.progress
            for key, row in self._rows.progress.current().items()
            if key not in held or held[key].is_new
        }

    def leaving(self) -> Collection[ShardKey]:
        return frozenset(self._leases.leaving)

    def may_deliver(self, shard: ShardKey) -> bool:
        held, until = self._leases.held.get(shard), self._leases.leaving.get(shard, math.inf)
        return held is not None and self._clock.monotonic() < min(held.valid_until, until)

    async def permission(self, shard: ShardKey) -> None:
        leases = self._leases
        # Of what another worker waits for, only what was handed out before is finished.
        while shard in leases.leaving or not self.may_deliver(shard):
            leases.hurry.set()
            leases.has_written.clear()
            await leases.has_written.wait()

    def note_delivery(self, shard: ShardKey, payload_bytes: int) -> None:
        if (held := self._leases.held.get(shard)) is not None:
            held.payload_bytes += payload_bytes

    def note_children(self, shard: ShardKey, children: Sequence[ChildShard]) -> None:
        self._leases.children[shard] = tuple(children)

    async def release(self, shards: Collection[ShardKey]) -> None:
        held = self._leases.held
        async with self._rows.progress.turn:
            if any(held[key].valid_until == -math.inf for key in shards if key in held):
                # A release may have succeeded without an answer.
                await self._rows.progress.load()
            for _ in range(_MOST_TRIES):
                rows = {
                    key: with_lease(held[key].row, self._leases.released(key))
                    for key in shards
                    if key in held
                }
                if not rows:
                    break
                for key in rows:
                    # Even without an answer, the lease may be another worker's now.
                    held[key].valid_until = -math.inf
                for key in await self._rows.save(rows.values()):
                    lease = rows[key].lease
                    self._events(LeaseReleased(shard=key, owner=lease.owner if lease else None))

    def publish(self, fronts: Mapping[ShardKey, Front]) -> None:
        """Tell other workers where shards of this one are, with the next write of each row."""
        for key in fronts.keys() & self._leases.held.keys():
            self._leases.held[key].front = fronts[key]

    def stored_watermarks(self) -> Callable[[ShardKey], datetime | None]:
        """Return a function that returns the watermark which a shard's last reader left."""
        return partial(watermark_of, self._rows.progress.current())

    def other_fronts(self, own: Collection[ShardKey]) -> list[Front]:
        """Return where the open shards of the application are, except this worker's ``own``."""
        rows = self._rows.progress.current()
        return open_fronts(rows, self._leases.view(), own)

    def continued(self, shards: Collection[ShardKey]) -> list[ShardKey]:
        """Return the ended ones of ``shards`` whose children :meth:`other_fronts` has."""
        return continued(self._rows.progress.current(), shards)

    def note_event(self, event: Event) -> None:
        """Track subscriptions, and the stream consumer that this worker has registered."""
        if isinstance(event, SubscriptionStarted):
            if held := self._leases.held.get(event.shard):
                held.subscribed_at = self._clock.monotonic()
        elif isinstance(event, ConsumerRegistered):
            self._leases.consumer_arns[event.stream_arn] = event.consumer_arn

    def unused_consumers(self) -> set[str]:
        """Return the stream consumers to remove after the end of this worker: no other is left.

        A worker that was killed counts as alive until its leases have ended; so do all while the
        store does not answer.
        """
        view = self._leases.view()
        if not self.has_left or any(
            lease_of(row).owner and not view.is_free(key) for key, row in view.rows.items()
        ):
            return set()
        of_rows = (lease_of(row).consumer_arn for row in self._rows.progress.current().values())
        return {*self._leases.consumer_arns.values(), *filter(None, of_rows)}


class Leases(KeptProgress):
    """The leases of one worker, over a store that is open; a ``Checkpointer`` writes to it.

    Attributes:
        shards: what a fetcher asks and tells.
        taker: what renews, takes and asks for leases.
    """

    def __init__(
        self,
        store: CheckpointStore,
        config: LeaseConfig,
        clock: Clock,
        events: EventSink = ignore_event,
    ) -> None:
        self._config, self._clock, self._events = config, clock, events
        self.rows = ProgressRows(store, clock)
        self._rows = rows = LeaseRows(self.rows, clock, config.failover_seconds)
        # No other worker has it, and it shows where this one runs.
        own_id = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        worker = config.worker_id or own_id
        self._held = held = HeldLeases(rows, config, clock, events, worker)
        self.taker = LeaseTaker(rows, held, config, clock, events)
        self.shards = LeasedShards(rows, held, clock, events)

    async def take_over(self, identities: Identities) -> dict[str, StreamProgress]:
        """Return what is stored, per stream (by ARN); nothing is taken yet."""
        rows = self._rows.progress
        rows.name_streams(identities)
        await rows.load()
        if not rows.stored:
            async with rows.asking("load"):
                await rows.foreign.check_first_use()
        # They show a reader without leases that it was replaced.
        marks = [mark.checkpoint for mark in map(rows.mark, identities) if mark]
        await self._rows.save([evolve(mark, progress=FOUND_LATER) for mark in marks])
        return rows.resumable()

    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return what is stored for a shard; ``None`` unless this worker has the lease on it."""
        held = self._held.held.get(key)
        return None if held is None or held.is_new else held.row.checkpoint.progress

    async def follow(self, identities: Identities, listed: Listing, progress: Progress) -> None:
        self._rows.progress.identities = dict(identities)
        await self._rows.follow(listed, progress)

    def note_age(self, key: ShardKey, progress: ShardProgress) -> None:
        # The next renewal writes it.
        if held := self._held.held.get(key):
            held.row = evolve(held.row, checkpoint=evolve(held.row.checkpoint, progress=progress))

    def row_with(self, key: ShardKey, progress: ShardProgress) -> OwnedRow:
        return self._with_progress(key, progress), None

    async def learn(self, keys: Collection[ShardKey], refused: StaleCheckpointError) -> None:
        await self.rows.load()
        if not self._held.held.keys() >= {*keys}:
            raise refused

    async def write(self, progress: Progress) -> None:
        began_at, held = self._clock.monotonic(), self._held.held
        pending = {key: one for key, one in progress.items() if self.get(key) is not None}
        for _ in range(_MOST_TRIES):
            if not pending:
                break
            ended = (key for key, one in pending.items() if one.is_ended)
            await self._rows.create_children(
                Shard.of_child(key.stream_arn, child)
                for key in ended
                for child in self._held.children.get(key, ())
            )
            # That may have shown that a lease is lost.
            changed = [self._with_progress(key, one) for key, one in pending.items() if key in held]
            for row in changed:
                # If the answer is lost, a renewal must not set the progress back.
                held[row.shard].row = evolve(held[row.shard].row, checkpoint=row)
            written = await self._rows.save(changed)
            # A hand-over that was asked for has changed the row; a lease that is lost is gone.
            pending = {
                key: one for key, one in pending.items() if key not in written and key in held
            }
            if written:
                seconds = self._clock.monotonic() - began_at
                self._events(CheckpointsSaved(shards=len(written), seconds=seconds))
        self._held.wake()

    def _with_progress(self, key: ShardKey, progress: ShardProgress) -> Checkpoint:
        lease = evolve(self._held.renewed(key), switches=0)
        if progress.is_ended:
            children = tuple(one.shard_id for one in self._held.children.get(key, ()))
            lease = evolve(lease, owner=None, leaving=None, children=children)
        return evolve(self._rows.progress.stored[key].checkpoint, progress=progress, lease=lease)

    def is_bearable(self, error: KinesisPublishersError) -> bool:
        return is_bearable(error)

    async def keep(self, _: Turn) -> None:
        await self.taker.keep()

    async def close(self) -> None:
        """Release every lease, so that other workers need not wait."""
        self.taker.is_closing = True
        rows = self._rows.progress
        try:
            async with rows.turn, rows.asking("report to"):
                await rows.foreign.report(self._held.worker, is_leaving=True)
        finally:
            await self.shards.release(tuple(self._held.held))
        if rows.identities:
            await self._leave()

    async def _leave(self) -> None:
        """Release leases that still arrive; learn whether another worker is left."""
        looks = 2 * LOOK_PART * self._config.failover_seconds
        until = self._clock.monotonic() + min(looks, _LEAVE_SECONDS)
        while True:
            async with self._rows.progress.turn:
                await self._rows.progress.load()
                await self.taker.settle(has_leader=False)
            await self.shards.release(tuple(self._held.held))
            self.shards.has_left = True
            left = until - self._clock.monotonic()
            # A worker without a lease shows itself when it takes one of those.
            if left <= 0 or not (self._held.asked or self.shards.unused_consumers()):
                break
            await self._clock.sleep(min(left, self.taker.seconds_to_look()))
