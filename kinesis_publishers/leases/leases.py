"""The leases of one worker, wired: what its checkpointer writes to, and what its fetcher asks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from attrs import evolve

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import LeaseConfig
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.events import CheckpointsSaved, EventSink, ignore_event
from kinesis_publishers.leases.assigned import MOST_TRIES, LeasedShards
from kinesis_publishers.leases.held import HeldLeases, default_worker_id
from kinesis_publishers.leases.rows import LeaseRows
from kinesis_publishers.leases.taking import LOOK_PART, LeaseTaker, is_bearable
from kinesis_publishers.model import (
    FOUND_LATER,
    Checkpoint,
    Shard,
    ShardKey,
    ShardProgress,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.progress.checkpointer import KeptProgress, Turn
from kinesis_publishers.progress.rows import ProgressRows

_LOGGER = logging.getLogger(__name__)

_RELEASE_SECONDS: Final = 10.0


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
        self._rows = rows = LeaseRows(ProgressRows(store, clock), clock, config.failover_seconds)
        worker = config.worker_id or default_worker_id()
        self._held = held = HeldLeases(rows, config, clock, events, worker)
        self.taker = LeaseTaker(rows, held, config, clock, events)
        self.shards = LeasedShards(rows, held, clock, events)

    async def take_over(
        self, identities: Mapping[str, StreamIdentity]
    ) -> dict[str, StreamProgress]:
        """Return what is stored, per stream (by ARN); nothing is taken yet."""
        rows = self._rows.progress
        rows.name_streams(identities)
        await rows.load()
        if not rows.stored:
            await rows.check_first_use()
        # They show a reader without leases that it was replaced.
        marks = [mark.checkpoint for mark in map(rows.mark, identities) if mark]
        await self._rows.save([evolve(mark, progress=FOUND_LATER) for mark in marks])
        return rows.resumable()

    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return what is stored for a shard; ``None`` unless this worker has the lease on it."""
        held = self._held.held.get(key)
        return None if held is None or held.is_new else held.row.checkpoint.progress

    async def follow(
        self,
        identities: Mapping[str, StreamIdentity],
        listed: Mapping[ShardKey, Shard],
        progress: Mapping[ShardKey, ShardProgress],
    ) -> None:
        self._rows.progress.identities = dict(identities)
        async with self._rows.turn:
            await self._rows.follow(listed, progress)

    def note_age(self, key: ShardKey, progress: ShardProgress) -> None:
        # The next renewal writes it.
        if held := self._held.held.get(key):
            held.row = evolve(held.row, checkpoint=evolve(held.row.checkpoint, progress=progress))

    async def write(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        async with self._rows.turn:
            began_at, held = self._clock.monotonic(), self._held.held
            pending = {key: one for key, one in progress.items() if self.get(key) is not None}
            for _ in range(MOST_TRIES):
                if not pending:
                    break
                ended = (key for key, one in pending.items() if one.is_ended)
                await self._rows.create_children(
                    Shard.of_child(key.stream_arn, child)
                    for key in ended
                    for child in self._held.children.get(key, ())
                )
                # That may have shown that a lease is lost.
                changed = [
                    self._with_progress(key, one) for key, one in pending.items() if key in held
                ]
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
        return evolve(self._rows.stored[key].checkpoint, progress=progress, lease=lease)

    def is_bearable(self, error: KinesisPublishersError) -> bool:
        """Return whether work continues after a failed write: the store may be back soon."""
        return is_bearable(error)

    async def keep(self, _: Turn) -> None:
        await self.taker.keep()

    async def close(self) -> None:
        """Release every lease, so that other workers need not wait."""
        self.taker.is_closing = True
        rows, worker = self._rows.progress, self._held.worker
        try:
            async with self._clock.timeout(_RELEASE_SECONDS):
                try:
                    await rows.report(worker, is_leaving=True)
                finally:
                    await self._release_all()
                if rows.identities:
                    await self._leave()
        except (KinesisPublishersError, TimeoutError) as error:
            _LOGGER.warning(
                "The worker %s could not release its leases, which end in %g seconds: %r",
                worker,
                self._config.failover_seconds,
                error,
            )

    async def _release_all(self) -> None:
        await self.shards.release(tuple(self._held.held))

    async def _leave(self) -> None:
        """Release leases that still arrive; learn whether another worker is left."""
        looks = 2 * LOOK_PART * self._config.failover_seconds
        until = self._clock.monotonic() + min(looks, _RELEASE_SECONDS / 2)
        while True:
            async with self._rows.turn:
                await self._rows.progress.load()
                await self.taker.settle(has_leader=False)
            await self._release_all()
            self.shards.has_left = True
            left = until - self._clock.monotonic()
            # A worker without a lease shows itself when it takes one of those.
            if left <= 0 or not (self._held.asked or self.shards.unused_consumers()):
                break
            await self._clock.sleep(min(left, self.taker.seconds_to_look()))
