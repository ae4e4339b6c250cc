"""A model of a stream, its storage and its clocks, for workers that share the stream.

What happens while a call to the store is under way is part of that call
(:attr:`FaultyStore.script`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

from kinesis_publishers import Shard, ShardKey, ShardProgress
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.checkpoints.versions import Change, Refusal
from kinesis_publishers.leases.rules import lease_of
from kinesis_publishers.model import ChildShard, StoredCheckpoint
from kinesis_publishers.testing.fakes import STREAM_ARN, shard_name
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.checkpoint_support import POLICY
from tests.unit.leases.lease_support import APPLICATION, HANDOVER, down

if TYPE_CHECKING:
    from tests.unit.leases.lease_model import ModelWorker, Tenure

Step: TypeAlias = "Callable[[], Awaitable[None]]"


class Fault(Enum):
    """What becomes of a write whose caller gets no answer."""

    LOST = "it is done"
    LATE = "it is still under way, and may be done at any time"
    REFUSED = "it is not done"


class WorkerClock(ManualClock):
    """The clock of one machine: as fast as all others, and wrong by whole seconds.

    What has passed is a number of 1024ths. Sums of both are exact: two workers find the end of a
    lease at the same moment, and not one of them earlier by a rounding error.
    """

    def __init__(self, world: World, ahead_seconds: int) -> None:
        super().__init__()
        self._world = world
        self._ahead_seconds = ahead_seconds

    def monotonic(self) -> float:
        return self._world.now + self._ahead_seconds

    async def sleep(self, seconds: float) -> None:
        # All others are slow meanwhile.
        self._world.now += math.ceil(seconds * 1024) / 1024
        await super().sleep(0)


class FaultyStore(MemoryCheckpointStore):
    """One worker's way to the storage.

    Attributes:
        script: what happens elsewhere at the next points of a call: before and after it is done.
        faults: what becomes of the next writes.
        late: writes that are still under way.
        is_down: whether no call is answered.
    """

    def __init__(self, world: World, clock: ManualClock) -> None:
        world.stores.append(self)
        context = CheckpointStoreContext(application=APPLICATION, retry=POLICY, clock=clock)
        super().__init__(context, world.memory)
        self._world = world
        self.worker = ""
        self.script: list[Step] = []
        self.faults: list[Fault] = []
        self.late: list[Sequence[Change]] = []
        self.is_down = False

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        await self._elsewhere()
        if self.is_down:
            raise down()
        rows = await super().load()
        await self._elsewhere()
        return rows

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        await self._elsewhere()
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.LATE:
            self.late.append(changes)
        if self.is_down or fault in (Fault.LATE, Fault.REFUSED):
            raise down()
        refusals = await self.arrive(changes)
        await self._elsewhere()
        if fault is Fault.LOST:
            raise down()
        return refusals

    async def arrive(self, changes: Sequence[Change]) -> list[Refusal]:
        """Let a write reach the storage."""
        before = dict(self._checkpoints())
        refusals = await super()._apply(changes)
        for attempt, _ in changes:
            old, new = before.get(attempt.shard), self._checkpoints().get(attempt.shard)
            if old is not None and new is not None and old is not new:
                self._world.check_write(self, old[0], new[0])
        return refusals

    async def _elsewhere(self) -> None:
        if self.script:
            await self.script.pop(0)()
            self._world.check()


@define(eq=False)
class ModelShard:
    """A shard of the stream: records with the numbers 1 to ``records``."""

    shard: Shard
    records: int = 0
    children: tuple[ChildShard, ...] = ()
    # By whom each record was handed out; and which were finished.
    handed_out: dict[int, list[Tenure]] = field(factory=dict)
    finished: set[int] = field(factory=set)

    @property
    def is_processed(self) -> bool:
        return bool(self.children) and len(self.finished) == self.records


@define(eq=False)
class World:
    """The stream, the storage and the workers."""

    now: float = 1000.0
    memory: CheckpointMemory = field(factory=CheckpointMemory)
    shards: dict[ShardKey, ModelShard] = field(factory=dict)
    workers: list[ModelWorker] = field(factory=list)
    violations: list[str] = field(factory=list)
    # All of them, also those of processes that are gone: their writes may arrive late.
    stores: list[FaultyStore] = field(factory=list)
    # When each hand-over was asked for.
    asked_at: dict[ShardKey, float] = field(factory=dict)

    def add_shard(self, *parents: ShardKey) -> ChildShard:
        ids = tuple(key.shard_id for key in parents)
        child = ChildShard(
            shard_id=shard_name(len(self.shards)),
            parent_shard_ids=ids,
            starting_hash_key="0",
            ending_hash_key="9",
        )
        shard = Shard.of_child(STREAM_ARN, child)
        self.shards[shard.key] = ModelShard(shard)
        return child

    def split(self, key: ShardKey) -> None:
        self.shards[key].children = (self.add_shard(key), self.add_shard(key))

    def merge(self, first: ShardKey, second: ShardKey) -> None:
        child = self.add_shard(first, second)
        self.shards[first].children = self.shards[second].children = (child,)

    @property
    def rows(self) -> dict[ShardKey, StoredCheckpoint]:
        found = self.memory.applications[APPLICATION]
        return {key: row for key, (row, _) in found.items() if key in self.shards}

    def check(self) -> None:
        """Note it if two workers may deliver records of one shard at this moment."""
        for key in self.shards:
            able = [one.name for one in self.workers if one.can_deliver(key)]
            if len(able) > 1:
                self.violations.append(f"{able} may deliver {key} at {self.now}")

    def check_write(self, store: FaultyStore, old: StoredCheckpoint, new: StoredCheckpoint) -> None:
        """Note it if a write takes a shard from a worker that has it, or sets its progress back."""
        key, before, after = new.checkpoint.shard, old.checkpoint, new.checkpoint
        was, becomes = lease_of(old), lease_of(new)
        if becomes.leaving and not was.leaving:
            self.asked_at[key] = self.now
        if after.progress.is_ended and not before.progress.is_ended:
            # One of two parents is left to a listing if the other parent has no row.
            due = {
                ShardKey(STREAM_ARN, one.shard_id)
                for one in self.shards[key].children
                if len(one.parent_shard_ids) == 1
            }
            if due - self.rows.keys():
                self.violations.append(f"{store.worker} ended {key} before its children had rows")
        if place(after.progress) < place(before.progress):
            self.violations.append(f"{store.worker} set {key} back: {before} -> {after}")
        if after.progress != before.progress and was.holder != store.worker:
            self.violations.append(f"{store.worker} recorded {key}, which {was.holder} has")
        if was.holder in (None, becomes.holder, store.worker):
            return
        waited = self.now - self.asked_at.get(key, self.now)
        for one in self.workers:
            held = one.leases._held.held.get(key)  # noqa: SLF001  # What is handed over, too.
            has_lease = held is not None and one.clock.monotonic() < held.valid_until
            is_robbed = one.name == was.holder and has_lease
            if is_robbed and not (was.leaving and waited >= HANDOVER):
                self.violations.append(f"{store.worker} took {key} from {one.name}")


def place(progress: ShardProgress) -> tuple[bool, int]:
    processed = progress.processed
    return progress.is_ended, 0 if processed is None else int(processed.sequence_number)
