"""What a fetcher asks the leases of its worker: what to read now, and what to hand over."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from attrs import define, field

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.events import (
    ConsumerRegistered,
    Event,
    EventSink,
    LeaseReleased,
    SubscriptionStarted,
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
from kinesis_publishers.model import ChildShard, Shard, ShardKey, ShardProgress

MOST_TRIES: Final = 10


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
            for key, row in self._rows.current().items()
            if key not in held or held[key].is_new
        }

    def leaving(self) -> Collection[ShardKey]:
        return frozenset(self._leases.leaving)

    def may_deliver(self, shard: ShardKey) -> bool:
        held = self._leases.held.get(shard)
        # Of what another worker waits for, only what was handed out before is finished.
        if held is None or shard in self._leases.leaving:
            return False
        return self._clock.monotonic() < held.valid_until

    async def permission(self, shard: ShardKey) -> None:
        leases = self._leases
        while not self.may_deliver(shard):
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
        async with self._rows.turn:
            if any(held[key].valid_until == -math.inf for key in shards if key in held):
                # A release may have succeeded without an answer.
                await self._rows.progress.load()
            for _ in range(MOST_TRIES):
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
        return partial(watermark_of, self._rows.current())

    def other_fronts(self, own: Collection[ShardKey]) -> list[Front]:
        """Return where the open shards of the application are, except this worker's ``own``."""
        rows = self._rows.current()
        return open_fronts(rows, self._leases.view(rows), own)

    def continued(self, shards: Collection[ShardKey]) -> list[ShardKey]:
        """Return the ended ones of ``shards`` whose children :meth:`other_fronts` has."""
        return continued(self._rows.current(), shards)

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
        of_rows = (lease_of(row).consumer_arn for row in self._rows.current().values())
        return {*self._leases.consumer_arns.values(), *filter(None, of_rows)}
