"""Workers of one application over one storage in memory, whose calls are counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers.abc import CheckpointStoreContext, JoinedWrite
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.config import LeaseConfig, LeaseFormat
from kinesis_publishers.errors import ConnectionFailedError
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.checkpoint_support import BEGINNING, IDENTITIES, POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import Event, Shard, ShardKey, ShardProgress
    from kinesis_publishers.checkpoints.versions import Change, Refusal
    from kinesis_publishers.model import (
        CheckpointVersion,
        CheckpointWrite,
        Lease,
        StoredCheckpoint,
    )

APPLICATION = "billing"
FAILOVER = 10.0
HANDOVER = 30.0


def config(
    worker_id: str | None = None,
    *,
    max_leases: int | None = None,
    handover_seconds: float = HANDOVER,
) -> LeaseConfig:
    """Return the options of a worker."""
    return LeaseConfig(
        is_enabled=True,
        worker_id=worker_id,
        failover_seconds=FAILOVER,
        handover_seconds=handover_seconds,
        max_leases=max_leases,
        format=LeaseFormat.OWN,
    )


def down() -> ConnectionFailedError:
    return ConnectionFailedError("the store is down", operation="any", code="connection")


class CountingStore(MemoryCheckpointStore):
    """Counts its calls and the rows that they write; fails, or does so after it has written."""

    def __init__(self, clock: ManualClock, memory: CheckpointMemory) -> None:
        super().__init__(
            CheckpointStoreContext(application=APPLICATION, retry=POLICY, clock=clock), memory
        )
        self.calls: Counter[str] = Counter()
        self.error: Exception | None = None
        self.loses_answers = False
        self.write_seconds = 0.0

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        self.calls["load"] += 1
        self._check()
        return await super().load()

    async def save(self, writes: Sequence[CheckpointWrite]) -> dict[ShardKey, CheckpointVersion]:
        self.calls["save"] += 1
        self.calls["rows"] += len(writes)
        return await super().save(writes)

    def join(self, write: CheckpointWrite, _: object) -> JoinedWrite:
        """Let a transaction write that is never committed."""
        attempt = self._book.attempt_joined(write.shard, write.expected)
        return JoinedWrite(version=attempt.version, execute=lambda: True)

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        self._check()
        if self.write_seconds:
            await self._context.clock.sleep(self.write_seconds)
        refusals = await super()._apply(changes)
        if self.loses_answers:
            raise down()
        return refusals

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


@define(eq=False)
class Worker:
    """One worker with its own store object; the clock is everybody's unless one is given."""

    leases: Leases
    store: CountingStore
    events: list[Event]
    shards: list[Shard]
    wakes: list[bool] = field(factory=list)

    @classmethod
    async def begin(
        cls,
        name: str,
        memory: CheckpointMemory,
        clock: ManualClock,
        shards: Sequence[Shard],
        options: LeaseConfig | None = None,
    ) -> Worker:
        """Open the store, load what there is, and create the rows of ``shards``."""
        store = CountingStore(clock, memory)
        events: list[Event] = []
        await store.open()
        leases = Leases(store, options or config(name), clock, events.append)
        one = cls(leases, store, events, [*shards])
        leases.shards.on_change(lambda: one.wakes.append(True))
        await leases.take_over(IDENTITIES)
        await one.follow()
        return one

    async def follow(self, progress: ShardProgress = BEGINNING) -> None:
        await self.leases.follow(
            IDENTITIES,
            {one.key: one for one in self.shards},
            {one.key: progress for one in self.shards},
        )

    async def look(self) -> None:
        """Look once, as a fetcher lets it: it says what may be read, and starts what it gets."""
        self.leases.shards.mine(self.shards)
        await self.leases.taker.look()
        self.leases.shards.mine(self.shards)

    async def look_for(self, seconds: float, clock: ManualClock) -> None:
        """Look once a second; after a longer gap nothing counts as old."""
        for _ in range(int(seconds)):
            await clock.advance(1)
            await self.look()

    async def hand_over(self) -> None:
        """Release what others ask for."""
        if leaving := self.leases.shards.leaving():
            await self.leases.shards.release([*leaving])

    @property
    def readable(self) -> set[int]:
        """The numbers of the shards that it may deliver records of at this moment."""
        shards = enumerate(self.shards)
        return {number for number, one in shards if self.leases.shards.may_deliver(one.key)}


@define(eq=False)
class Group:
    """The workers of one application: where their rows are, and what time it is for them."""

    clock: ManualClock = field(factory=ManualClock)
    memory: CheckpointMemory = field(factory=CheckpointMemory)

    async def begin(
        self,
        name: str,
        shards: Sequence[Shard],
        options: LeaseConfig | None = None,
        *,
        clock: ManualClock | None = None,
    ) -> Worker:
        """Start a worker; the clock is everybody's unless one is given."""
        return await Worker.begin(name, self.memory, clock or self.clock, shards, options)

    async def working(
        self, name: str, shards: Sequence[Shard], *, clock: ManualClock | None = None
    ) -> Worker:
        """Start a worker that has looked once, and taken or asked for what it may."""
        worker = await self.begin(name, shards, clock=clock)
        await worker.look()
        return worker

    @property
    def rows(self) -> dict[ShardKey, tuple[StoredCheckpoint, object]]:
        return self.memory.applications[APPLICATION]

    def lease(self, shard: Shard) -> Lease:
        """Return the lease in the row of a shard."""
        found = self.rows[shard.key][0].checkpoint.lease
        assert found is not None
        return found

    def progress(self, shard: Shard) -> ShardProgress:
        """Return the stored progress of a shard."""
        return self.rows[shard.key][0].checkpoint.progress
