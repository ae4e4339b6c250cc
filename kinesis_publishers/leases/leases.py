"""The leases of one worker, for its fetcher and its checkpointer."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from attrs import define, evolve, field

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.errors import (
    KinesisPublishersError,
    RetriesExhaustedError,
)
from kinesis_publishers.events import (
    CheckpointsSaved,
    ConsumerRegistered,
    Event,
    LeaseReleased,
    SubscriptionStarted,
)
from kinesis_publishers.leases.rules import (
    lease_of,
    open_fronts,
    watermark_of,
    with_front,
    with_lease,
)
from kinesis_publishers.leases.worker import LeaseWorker
from kinesis_publishers.model import (
    FOUND_LATER,
    WHOLE_STREAM,
    Checkpoint,
    ChildShard,
    Lease,
    Shard,
    ShardKey,
    ShardProgress,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.progress.single_reader import (
    Turn,
    asking,
    resumable_streams,
)
from kinesis_publishers.tasks import wait_for_event

_LOGGER = logging.getLogger(__name__)

# Of a failover time: between two looks at the rows, and at least while a hand-over is waited for:
# a part of the time for which that has lasted.
_LOOK_PART: Final = 0.16
_ASKED_PART: Final = 0.02
_WAITED_PART: Final = 0.25
_RELEASE_SECONDS: Final = 10.0
_MOST_TRIES: Final = 10
# Another subscription to a shard is refused for so long (AWS API reference, SubscribeToShard).
_RESUBSCRIBE_SECONDS: Final = 5.0


@define(eq=False)
class Leases(LeaseWorker, ShardAssigner):
    """The leases of one worker, for its fetcher; also what its ``Checkpointer`` writes to."""

    _children: dict[ShardKey, tuple[ChildShard, ...]] = field(factory=dict, init=False)
    _hurry: asyncio.Event = field(factory=asyncio.Event, init=False)
    # Whether the rows were seen after everything was released.
    _has_left: bool = field(default=False, init=False)

    # What a checkpointer asks for.

    async def take_over(
        self, identities: Mapping[str, StreamIdentity]
    ) -> dict[str, StreamProgress]:
        """Return what is stored, per stream (by ARN); nothing is taken yet."""
        self._identities = dict(identities)
        self._store.name_streams(tuple(identities.values()))
        # Without a limit: nothing is held yet.
        with asking(self._store, "load"):
            self._learn(await self._store.load())
            if not self.rows:
                await self._store.check_first_use()
        # A reader without leases that still runs learns by them that it has been replaced.
        marks = (self.rows.get(ShardKey(arn, WHOLE_STREAM)) for arn in identities)
        await self._save([evolve(one.checkpoint, progress=FOUND_LATER) for one in marks if one])
        return resumable_streams(self.rows)

    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return what is stored for a shard; ``None`` unless this worker has the lease on it."""
        held = self._held.get(key)
        return None if held is None or held.is_new else held.row.checkpoint.progress

    async def follow(
        self,
        identities: Mapping[str, StreamIdentity],
        listed: Mapping[ShardKey, Shard],
        progress: Mapping[ShardKey, ShardProgress],
    ) -> None:
        """Create the rows of new shards; remove those of shards that are gone and not needed.

        Every worker does: the first one to create a row wins, and the others find it.
        """
        self._identities, self._listed = dict(identities), dict(listed)
        async with self._turn:
            await self._create_missing(progress)
            await self._remove_gone(progress)

    def note_age(self, key: ShardKey, progress: ShardProgress) -> None:
        if held := self._held.get(key):
            # The next renewal writes it.
            held.row = evolve(held.row, checkpoint=evolve(held.row.checkpoint, progress=progress))

    async def write(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        """Write the progress of shards that this worker has the lease on; the rest is dropped.

        Raises:
            KinesisPublishersError: the store has failed; it may be tried again.
        """
        async with self._turn:
            began_at = self._clock.monotonic()
            pending = {key: one for key, one in progress.items() if self.get(key) is not None}
            for _ in range(_MOST_TRIES):
                if not pending:
                    break
                await self._create_children(key for key, one in pending.items() if one.is_ended)
                # That may have shown that a lease is lost.
                changed = [
                    self._with_progress(key, one)
                    for key, one in pending.items()
                    if key in self._held
                ]
                for row in changed:
                    # If the answer is lost, a renewal must not set the progress back.
                    held = self._held[row.shard]
                    held.row = evolve(held.row, checkpoint=row)
                written = await self._save(changed)
                # A hand-over that was asked for has changed the row; a lease that is lost is gone.
                pending = {
                    key: one
                    for key, one in pending.items()
                    if key not in written and key in self._held
                }
                if written:
                    seconds = self._clock.monotonic() - began_at
                    self._events(CheckpointsSaved(shards=len(written), seconds=seconds))
        self._wake()

    def _with_progress(self, key: ShardKey, progress: ShardProgress) -> Checkpoint:
        lease = evolve(self._measured(key), switches=0)
        if progress.is_ended:
            children = tuple(one.shard_id for one in self._children.get(key, ()))
            lease = evolve(lease, owner=None, leaving=None, children=children)
        return evolve(self.rows[key].checkpoint, progress=progress, lease=lease)

    async def _create_children(self, ended: Iterable[ShardKey]) -> None:
        """Create the rows of what continues the shards: only then is their end written.

        One whose other parent has no row is left to a listing: by that parent's child, the parent
        would be taken for one that was read to its end.
        """
        children = [
            Shard.of_child(key.stream_arn, child)
            for key in ended
            for child in self._children.get(key, ())
        ]
        new = [
            one
            for one in children
            if one.key not in self.rows and self.rows.keys() >= {*one.parent_keys}
        ]
        await self._save([self._first_row(one) for one in new])

    def is_bearable(self, error: KinesisPublishersError) -> bool:
        """Say whether work goes on after a write has failed: the store may be back soon."""
        return isinstance(error, RetriesExhaustedError) or getattr(error, "retryable", False)

    async def keep(self, _: Turn) -> None:
        """Look at the rows, renew, take and ask, until cancelled."""
        has_failed = False
        while True:
            pause = min(self._seconds_to_look(), self._seconds_to_expiry())
            await wait_for_event(self._hurry, timeout_seconds=pause, clock=self._clock)
            self._hurry.clear()
            if not self._identities:
                continue  # The store does not know the streams yet.
            try:
                await self.look()
                has_failed = False
            except KinesisPublishersError as error:
                if not self.is_bearable(error):
                    raise
                if not has_failed:
                    _LOGGER.warning(
                        "The leases cannot be renewed: %r. Reading goes on until they end, and "
                        "again when the store answers.",
                        error,
                    )
                has_failed = True

    def _seconds_to_look(self) -> float:
        failover, seconds = self._config.failover_seconds, math.inf
        if self._asked:
            waited = self._clock.monotonic() - max(self._asked.values())
            seconds = max(_ASKED_PART * failover, _WAITED_PART * waited)
        return min(seconds, _LOOK_PART * failover)

    async def close(self) -> None:
        """Give every lease back: the others need not wait for them."""
        self._is_closing = True
        try:
            async with self._clock.timeout(_RELEASE_SECONDS):
                try:
                    await self._store.report(self.worker, is_leaving=True)
                finally:
                    await self.release(tuple(self._held))
                if self._identities:
                    await self._leave()
        except (KinesisPublishersError, TimeoutError) as error:
            _LOGGER.warning(
                "The worker %s could not release its leases, which end in %g seconds: %r",
                self.worker,
                self._config.failover_seconds,
                error,
            )

    async def _leave(self) -> None:
        """Release what still comes, which was asked for; learn whether another worker is left."""
        looks = 2 * _LOOK_PART * self._config.failover_seconds
        until = self._clock.monotonic() + min(looks, _RELEASE_SECONDS / 2)
        while True:
            async with self._turn:
                await self._load()
                await self._settle(has_leader=False)
            await self.release(tuple(self._held))
            self._has_left = True
            left = until - self._clock.monotonic()
            # A worker without a lease shows itself when it takes one of those.
            if left <= 0 or not (self._asked or self.unused_consumers()):
                break
            await self._clock.sleep(min(left, self._seconds_to_look()))

    # What a fetcher asks for.

    def on_change(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def known_progress(self) -> dict[ShardKey, ShardProgress]:
        return self._removed | {
            key: row.checkpoint.progress
            for key, row in self._current_rows().items()
            if key not in self._held or self._held[key].is_new
        }

    def mine(self, startable: Sequence[Shard]) -> set[ShardKey]:
        keys = [shard.key for shard in startable]
        if keys != self._startable:
            self._startable = keys
            self._hurry.set()
        now = self._clock.monotonic()
        found = {
            key
            for key in keys
            if (held := self._held.get(key)) and held.ready_at <= now and key not in self._leaving
        }
        for key in found:
            self._held[key].is_new = False
        return found

    def leaving(self) -> Collection[ShardKey]:
        return frozenset(self._leaving)

    def may_deliver(self, shard: ShardKey) -> bool:
        held = self._held.get(shard)
        # Of what another worker waits for, only what was handed out before is finished.
        if held is None or shard in self._leaving:
            return False
        return self._clock.monotonic() < held.valid_until

    async def permission(self, shard: ShardKey) -> None:
        while not self.may_deliver(shard):
            self._hurry.set()
            self._renewed.clear()
            await self._renewed.wait()

    def note_delivery(self, shard: ShardKey, payload_bytes: int) -> None:
        if shard in self._held:
            self._held[shard].payload_bytes += payload_bytes

    def publish(self, fronts: Mapping[ShardKey, Front]) -> None:
        """Tell other workers where shards of this one are, with the next write of each row."""
        self._fronts |= {key: one for key, one in fronts.items() if key in self._held}

    def stored_watermarks(self) -> Callable[[ShardKey], datetime | None]:
        """Return a function that returns the watermark which a shard's last reader left."""
        return partial(watermark_of, self._current_rows())

    def other_fronts(self, own: Collection[ShardKey]) -> list[Front]:
        """Return where the open shards of the application are, except this worker's ``own``."""
        rows = self._current_rows()
        return open_fronts(rows, self._view(rows), own)

    def note_children(self, shard: ShardKey, children: Sequence[ChildShard]) -> None:
        self._children[shard] = tuple(children)

    def note_event(self, event: Event) -> None:
        """Learn of subscriptions, and of the stream consumer that this worker has registered."""
        if isinstance(event, SubscriptionStarted):
            if held := self._held.get(event.shard):
                held.subscribed_at = self._clock.monotonic()
        elif isinstance(event, ConsumerRegistered):
            self._consumer_arns[event.stream_arn] = event.consumer_arn

    def unused_consumers(self) -> set[str]:
        """Return the stream consumers to remove after :meth:`close`: no worker is left.

        They were registered by workers of the application. A worker that was killed counts as
        alive until its leases have ended; so do all while the store does not answer.
        """
        view = self._view()
        if not self._has_left or any(
            lease_of(row).owner and not view.is_free(key) for key, row in view.rows.items()
        ):
            return set()
        rows = self._current_rows().values()
        of_rows = {arn for row in rows if (arn := lease_of(row).consumer_arn)}
        return of_rows | set(self._consumer_arns.values())

    async def release(self, shards: Collection[ShardKey]) -> None:
        async with self._turn:
            if any(self._held[key].valid_until == -math.inf for key in shards if key in self._held):
                # It may be done, without an answer.
                await self._load()
            for _ in range(_MOST_TRIES):
                held = {key: self._released(key) for key in shards if key in self._held}
                if not held:
                    break
                for key in held:
                    # It may be another worker's even if the answer is lost.
                    self._held[key].valid_until = -math.inf
                for key in await self._save([*held.values()]):
                    self._events(LeaseReleased(shard=key, owner=(held[key].lease or Lease()).owner))

    def _released(self, key: ShardKey) -> Checkpoint:
        held = self._held[key]
        lease = lease_of(held.row)
        owner = lease.owner if lease.owner != self.worker else None
        # What it has waited for itself is still to be waited for.
        until = held.ready_at
        if held.subscribed_at is not None:
            until = held.subscribed_at + _RESUBSCRIBE_SECONDS
        settle = max(0, math.ceil(until - self._clock.monotonic()))
        lease = evolve(
            with_front(lease, self._fronts.get(key)),
            owner=owner,
            leaving=None,
            is_idle=None,
            is_at_tip=None,
            settle_seconds=settle,
            # It may have been registered after the lease was taken.
            consumer_arn=self._consumer_arns.get(key.stream_arn, lease.consumer_arn),
        )
        return with_lease(held.row, lease)
