"""The leases of one worker: takes, renews, hands over and loses them, and writes their progress."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from attrs import Factory, define, evolve, field

from kinesis_publishers.abc import CheckpointStore, ShardAssigner
from kinesis_publishers.checkpoints.stored_progress import (
    FOUND_LATER,
    STREAM,
    Turn,
    asking,
    resumable_streams,
)
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import LeaseConfig
from kinesis_publishers.engine.lineage import generations
from kinesis_publishers.errors import (
    ConnectionFailedError,
    KinesisPublishersError,
    LeaseError,
    RetriesExhaustedError,
    StaleCheckpointError,
)
from kinesis_publishers.events import (
    CheckpointsSaved,
    EventSink,
    LeaseLost,
    LeaseReleased,
    LeasesCounted,
    LeaseTaken,
    ignore_event,
)
from kinesis_publishers.leases.rules import (
    Sightings,
    View,
    free_to_take,
    lease_of,
    spilled,
    to_request,
    to_settle,
    with_lease,
)
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    ChildShard,
    HashRange,
    Lease,
    Shard,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.tasks import wait_for_event

_LOGGER = logging.getLogger(__name__)

# Parts of the failover time: between two looks at the rows; while something was asked for; after
# which a lease is renewed (with the look, about a third: as in the KCL); and what a call may take.
_LOOK_PART: Final = 0.1
_ASKED_PART: Final = 0.02
_RENEW_PART: Final = 0.28
_CALL_PART: Final = 1 / 3
_RELEASE_SECONDS: Final = 10.0
_MOST_TRIES: Final = 10
# How much of the moving average of the throughput is new; as in the KCL.
_NEW_PART: Final = 0.5
_SHORTEST_SECONDS: Final = 0.1


def default_worker_id() -> str:
    """Return a name that no other worker has, and that shows where this one runs."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


@define
class _Held:
    """A lease that this worker holds.

    Attributes:
        row: as this worker has written it last.
        valid_until: when it ends unless it is renewed, by this machine's monotonic clock: the
            failover time after the last write that succeeded was *sent*.
        renewed_at: when that was.
        payload_bytes: how much has been delivered since then.
        is_new: whether the shard has not been read by this worker since it got the lease.
    """

    row: StoredCheckpoint
    valid_until: float
    renewed_at: float
    payload_bytes: int = 0
    is_new: bool = True


@define(eq=False)
class Leases(ShardAssigner):
    """What one worker knows and holds; also what a ``Checkpointer`` writes to.

    The store is open, and nothing else in this process writes to it. What does not succeed within
    the failover time suspends the delivery of records; it goes on as soon as the lease has been
    renewed on the version that this worker wrote, which shows that nobody has had it meanwhile.
    """

    _store: CheckpointStore
    _config: LeaseConfig
    _clock: Clock
    _events: EventSink = ignore_event
    worker: str = field(
        init=False,
        default=Factory(
            lambda self: self._config.worker_id or default_worker_id(), takes_self=True
        ),
    )
    rows: dict[ShardKey, StoredCheckpoint] = field(factory=dict, init=False)
    _identities: dict[str, StreamIdentity] = field(factory=dict, init=False)
    _sightings: Sightings = field(factory=Sightings, init=False)
    _held: dict[ShardKey, _Held] = field(factory=dict, init=False)
    # What was asked for or is being taken, and since when.
    _asked: dict[ShardKey, float] = field(factory=dict, init=False)
    _leaving: set[ShardKey] = field(factory=set, init=False)
    _startable: list[ShardKey] = field(factory=list, init=False)
    _listed: Mapping[ShardKey, Shard] = field(factory=dict, init=False)
    _children: dict[ShardKey, tuple[ChildShard, ...]] = field(factory=dict, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _hurry: asyncio.Event = field(factory=asyncio.Event, init=False)
    _renewed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _wake: Callable[[], None] = field(default=lambda: None, init=False)
    _is_closing: bool = field(default=False, init=False)

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
        return resumable_streams(self.rows)

    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return what is stored for a shard; ``None`` unless this worker has the lease on it."""
        held = self._held.get(key)
        return None if held is None else held.row.checkpoint.progress

    async def follow(
        self,
        identities: Mapping[str, StreamIdentity],
        listed: Mapping[ShardKey, Shard],
        progress: Mapping[ShardKey, ShardProgress],
    ) -> None:
        """Create the rows of new shards; remove those of shards that are gone and not needed.

        Every worker does: the first one to create a row wins, and the others find it.
        """
        new = [
            shard
            for key, shard in listed.items()
            if key in progress and not self._is_begun(key, identities[key.stream_arn])
        ]
        self._listed = dict(listed)
        async with self._turn:
            for generation in generations(new):
                await self._create(self._first_row(one, progress[one.key]) for one in generation)
            # Last of all: they say that the first row of every shard is there.
            await self._create(
                Checkpoint(
                    shard=ShardKey(arn, STREAM),
                    stream_created_at=identity.created_at,
                    progress=FOUND_LATER,
                )
                for arn, identity in identities.items()
                if not self._is_begun(ShardKey(arn, STREAM), identity)
            )
            await self._remove_gone()

    def _is_begun(self, key: ShardKey, identity: StreamIdentity) -> bool:
        row = self.rows.get(key)
        # A stream that was created again has shards of the same ids.
        return row is not None and row.checkpoint.stream_created_at == identity.created_at

    def _first_row(self, shard: Shard, progress: ShardProgress) -> Checkpoint:
        return Checkpoint(
            shard=shard.key,
            stream_created_at=self._identities[shard.stream_arn].created_at,
            progress=progress,
            lease=Lease(
                parents=tuple(key.shard_id for key in shard.parent_keys),
                hash_range=HashRange.of(shard),
            ),
        )

    async def _create(self, rows: Iterable[Checkpoint]) -> None:
        if missing := list(rows):
            await self._save(missing)

    async def _remove_gone(self) -> None:
        """Remove the rows of ended shards that have left the listing and whose children are read.

        Until then they say that a child may start, and that it was not read before.
        """
        begun = {
            parent
            for row in self._current_rows().values()
            if row.checkpoint.progress.processed or row.checkpoint.progress.is_ended
            for parent in lease_of(row).parents
        }
        gone = {
            key: row.version
            for key, row in self._current_rows().items()
            if key not in self._listed
            and row.checkpoint.progress.is_ended
            and key.shard_id in begun
        }
        if gone:
            try:
                async with self._limited("remove"):
                    await self._store.remove(gone)
            except StaleCheckpointError:
                # Another worker has removed or changed them: the next look tells.
                return
            for key in gone:
                del self.rows[key]

    async def write(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        """Write the progress of shards that this worker has the lease on; the rest is dropped.

        Raises:
            KinesisPublishersError: the store has failed; it may be tried again.
        """
        async with self._turn:
            began_at = self._clock.monotonic()
            pending = {key: one for key, one in progress.items() if key in self._held}
            for _ in range(_MOST_TRIES):
                if not pending:
                    break
                await self._create_children(key for key, one in pending.items() if one.is_ended)
                changed = [self._with_progress(key, one) for key, one in pending.items()]
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
            for key, one in progress.items():
                if one.is_ended:
                    self._held.pop(key, None)
                    self._leaving.discard(key)
        self._wake()

    def _with_progress(self, key: ShardKey, progress: ShardProgress) -> Checkpoint:
        lease = evolve(self._measured(key), switches=0)
        if progress.is_ended:
            children = tuple(one.shard_id for one in self._children.get(key, ()))
            lease = evolve(lease, owner=None, leaving=None, children=children)
        return evolve(self.rows[key].checkpoint, progress=progress, lease=lease)

    async def _create_children(self, ended: Iterable[ShardKey]) -> None:
        """Create the rows of what continues the shards: only then is their end written."""
        await self._create(
            self._first_row(shard, FOUND_LATER)
            for key in ended
            for shard in (
                Shard.of_child(key.stream_arn, one) for one in self._children.get(key, ())
            )
            if shard.key not in self.rows
        )

    def is_bearable(self, error: KinesisPublishersError) -> bool:
        """Say whether work goes on after a write has failed: the store may be back soon."""
        return isinstance(error, RetriesExhaustedError) or getattr(error, "retryable", False)

    async def keep(self, _: Turn) -> None:
        """Look at the rows, renew, take and ask, until cancelled."""
        has_failed = False
        while True:
            part = _ASKED_PART if self._asked else _LOOK_PART
            await wait_for_event(
                self._hurry,
                timeout_seconds=0 if self._hurry.is_set() else part * self._config.failover_seconds,
                clock=self._clock,
            )
            self._hurry.clear()
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

    async def close(self) -> None:
        """Give every lease back: the others need not wait for them."""
        self._is_closing = True
        try:
            async with self._clock.timeout(_RELEASE_SECONDS):
                await self.release(tuple(self._held))
        except (KinesisPublishersError, TimeoutError) as error:
            _LOGGER.warning(
                "The worker %s could not release its leases, which end in %g seconds: %r",
                self.worker,
                self._config.failover_seconds,
                error,
            )

    # What a fetcher asks for.

    def on_change(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def known_progress(self) -> dict[ShardKey, ShardProgress]:
        return {
            key: row.checkpoint.progress
            for key, row in self._current_rows().items()
            if key not in self._held or self._held[key].is_new
        }

    def mine(self, startable: Sequence[Shard]) -> set[ShardKey]:
        keys = [shard.key for shard in startable]
        if keys != self._startable:
            self._startable = keys
            self._hurry.set()
        found = {key for key in keys if key in self._held and key not in self._leaving}
        for key in found:
            self._held[key].is_new = False
        return found

    def leaving(self) -> Collection[ShardKey]:
        return frozenset(self._leaving)

    def may_deliver(self, shard: ShardKey) -> bool:
        held = self._held.get(shard)
        return held is not None and self._clock.monotonic() < held.valid_until

    async def permission(self, shard: ShardKey) -> None:
        while not self.may_deliver(shard):
            self._hurry.set()
            self._renewed.clear()
            await self._renewed.wait()

    def note_delivery(self, shard: ShardKey, payload_bytes: int) -> None:
        if shard in self._held:
            self._held[shard].payload_bytes += payload_bytes

    def note_children(self, shard: ShardKey, children: Sequence[ChildShard]) -> None:
        self._children[shard] = tuple(children)

    async def release(self, shards: Collection[ShardKey]) -> None:
        async with self._turn:
            for _ in range(_MOST_TRIES):
                held = [key for key in shards if key in self._held]
                if not held:
                    break
                for key in await self._save([self._released(key) for key in held]):
                    lease = lease_of(self.rows[key])
                    self._events(LeaseReleased(shard=key, owner=lease.owner))
                    del self._held[key]
                    self._leaving.discard(key)

    def _released(self, key: ShardKey) -> Checkpoint:
        row = self._held[key].row
        lease = lease_of(row)
        owner = lease.owner if lease.owner != self.worker else None
        return with_lease(row, evolve(lease, owner=owner, leaving=None))

    # What this worker does by itself.

    async def look(self) -> None:
        """Renew what is due, look at the rows, and do what the rules say; one pass."""
        async with self._turn:
            await self._renew()
            await self._load()
            if self._is_closing:
                return
            await self._settle()
            await self._take(free_to_take(self._view(), self._startable))
            await self._ask(to_request(self._view(), self._startable))
            self._count()

    def _view(self) -> View:
        return View(
            worker=self.worker,
            rows={
                key: row
                for key, row in self._current_rows().items()
                if not row.checkpoint.progress.is_ended
            },
            ages=self._sightings.ages(self._clock.monotonic()),
            own=self._held.keys() | self._asked.keys(),
            failover_seconds=self._config.failover_seconds,
            max_leases=self._config.max_leases,
        )

    def _current_rows(self) -> dict[ShardKey, StoredCheckpoint]:
        """Return the rows of shards of the streams that are read, as they exist now."""
        created = {arn: one.created_at for arn, one in self._identities.items()}
        return {
            key: row
            for key, row in self.rows.items()
            if key.shard_id != STREAM
            and row.checkpoint.stream_created_at == created.get(key.stream_arn)
        }

    async def _renew(self) -> None:
        latest = self._clock.monotonic() - _RENEW_PART * self._config.failover_seconds
        due = [key for key, held in self._held.items() if held.renewed_at <= latest]
        await self._save([with_lease(self._held[key].row, self._measured(key)) for key in due])

    def _measured(self, key: ShardKey) -> Lease:
        """Return a lease with the throughput since it was renewed last in the moving average."""
        held = self._held[key]
        lease = lease_of(held.row)
        seconds = max(self._clock.monotonic() - held.renewed_at, _SHORTEST_SECONDS)
        rate, before = held.payload_bytes / seconds, lease.bytes_per_second
        average = rate if before is None else _NEW_PART * rate + (1 - _NEW_PART) * before
        return evolve(lease, bytes_per_second=round(average))

    async def _settle(self) -> None:
        """Begin with what was asked for and has been handed over."""
        now = self._clock.monotonic()
        asked = {key: now - since for key, since in self._asked.items()}
        view = self._view()
        for key in asked:
            row = self.rows.get(key)
            if row is None or lease_of(row).owner != self.worker:
                del self._asked[key]
        keys = to_settle(view, asked, self._config.handover_seconds)
        settled = [
            with_lease(row, evolve(lease_of(row), leaving=None))
            for row in (self.rows[key] for key in keys if key in self._asked)
        ]
        await self._hold(settled)

    async def _take(self, keys: Sequence[ShardKey]) -> None:
        await self._hold([self._taken(key, leaving=None) for key in keys])

    def _taken(self, key: ShardKey, *, leaving: str | None) -> Checkpoint:
        row = self.rows[key]
        lease = lease_of(row)
        if lease.hash_range is None and key in self._listed:
            # The row of a reader without leases.
            known = self._first_row(self._listed[key], FOUND_LATER).lease or lease
            lease = evolve(lease, parents=known.parents, hash_range=known.hash_range)
        return with_lease(
            row, evolve(lease, owner=self.worker, leaving=leaving, switches=lease.switches + 1)
        )

    async def _hold(self, rows: Sequence[Checkpoint]) -> None:
        """Write rows that make this worker the holder, and begin with those that were written."""
        sent_at = self._clock.monotonic()
        self._asked |= {row.shard: sent_at for row in rows if row.shard not in self._asked}
        written = await self._save(rows)
        for row in rows:
            self._asked.pop(row.shard, None)
        for key in written:
            self._held[key] = _Held(
                row=self.rows[key],
                valid_until=sent_at + self._config.failover_seconds,
                renewed_at=sent_at,
            )
            self._events(LeaseTaken(shard=key))
        if written:
            self._renewed.set()
            self._wake()

    async def _ask(self, keys: Sequence[ShardKey]) -> None:
        now = self._clock.monotonic()
        patient = [key for key in keys if self._can_hand_over(key)]
        # The KCL in the mode of its version 2 hands nothing over: it notices that it has lost.
        await self._take([key for key in keys if key not in patient])
        rows = [self._taken(key, leaving=lease_of(self.rows[key]).owner) for key in patient]
        self._asked |= dict.fromkeys(patient, now)
        written = await self._save(rows)
        for key in patient:
            if key not in written:
                del self._asked[key]

    def _can_hand_over(self, key: ShardKey) -> bool:
        is_own = not self.rows[key].version.is_foreign
        return is_own and self._config.handover_seconds > 0

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

    async def _load(self) -> None:
        async with self._limited("load"):
            rows = await self._store.load()
        self._learn(rows)

    def _learn(self, rows: Mapping[ShardKey, StoredCheckpoint]) -> None:
        # Later than what was written: a lease never seems older than it is.
        self._sightings.note(rows, self._clock.monotonic())
        is_changed = _outline(rows) != _outline(self.rows)
        self.rows = dict(rows)
        for key in tuple(self._held):
            self._reconcile(key, rows.get(key))
        if is_changed:
            self._wake()

    @asynccontextmanager
    async def _limited(self, verb: str) -> AsyncIterator[None]:
        """Give a call up that takes so long that leases may end.

        Raises:
            ConnectionFailedError: it has taken too long, or the store does not answer.
        """
        seconds = _CALL_PART * self._config.failover_seconds
        try:
            async with self._clock.timeout(seconds) as limit:
                with asking(self._store, verb):
                    yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ConnectionFailedError(
                f"{self._store} has not answered in {seconds:g} seconds",
                operation=verb,
                code="timeout",
            ) from error

    def _reconcile(self, key: ShardKey, row: StoredCheckpoint | None) -> None:
        """Learn what has become of a lease: it is held on, asked for, or lost."""
        held = self._held[key]
        lease = Lease() if row is None else lease_of(row)
        if row is None or lease.holder != self.worker:
            self._lose(key, lease.owner)
        elif row.version == held.row.version or row.version.writer == held.row.version.writer:
            # Perhaps written by a call whose answer was lost.
            held.row = row
        elif lease.leaving == self.worker:
            held.row = row
            self._leaving.add(key)
            self._wake()
        else:
            raise LeaseError(
                f"{row.version.writer} has written the lease on {key} in the name of "
                f"{self.worker}, which this process has. Give each worker a "
                "kinesis.lease.workerid of its own, or leave the option out; a reader of this "
                "application without kinesis.lease.enabled must not run beside workers with it."
            )

    def _lose(self, key: ShardKey, owner: str | None) -> None:
        _LOGGER.warning("%s has lost the lease on %s to %s.", self.worker, key, owner or "nobody")
        self._events(LeaseLost(shard=key, owner=owner))
        del self._held[key]
        self._leaving.discard(key)
        self._wake()

    async def _save(self, rows: Sequence[Checkpoint]) -> set[ShardKey]:
        """Write rows on the versions that this worker knows; return what was written.

        After a refusal the rows are loaded again, and say what was.
        """
        if not rows:
            return set()
        known = {row.shard: self.rows[row.shard].version for row in rows if row.shard in self.rows}
        writes = [CheckpointWrite(checkpoint=row, expected=known.get(row.shard)) for row in rows]
        sent_at = self._clock.monotonic()
        try:
            async with self._limited("write"):
                versions = await self._store.save(writes)
        except StaleCheckpointError:
            await self._load()
            return {row.shard for row in rows if self._is_written(row, known.get(row.shard))}
        for row in rows:
            key = row.shard
            self.rows[key] = StoredCheckpoint(checkpoint=row, version=versions[key])
            if held := self._held.get(key):
                held.row, held.renewed_at, held.payload_bytes = self.rows[key], sent_at, 0
                held.valid_until = sent_at + self._config.failover_seconds
        self._renewed.set()
        return set(versions)

    def _is_written(self, row: Checkpoint, known: CheckpointVersion | None) -> bool:
        found = self.rows.get(row.shard)
        return (
            found is not None
            and found.version != known
            and (lease_of(found).owner, lease_of(found).leaving)
            == ((row.lease or Lease()).owner, (row.lease or Lease()).leaving)
        )


def _outline(rows: Mapping[ShardKey, StoredCheckpoint]) -> dict[ShardKey, object]:
    """Return what decides who reads what: it changes far less often than the rows."""
    return {
        key: (lease_of(row).owner, lease_of(row).leaving, row.checkpoint.progress.is_ended)
        for key, row in rows.items()
    }
