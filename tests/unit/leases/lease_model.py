"""A model of a stream and of the workers that share it: their rules are real, the rest is not.

The workers have the real leases and the real checkpointer; the storage, the network, the clocks
and what reads records are models. Everything runs in one task, one step after the other; what
happens while a call to the store is under way is part of that call (:attr:`FaultyStore.script`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TypeAlias

from attrs import define, evolve, field

from kinesis_publishers import Shard, ShardKey, ShardProgress
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.checkpoints.checkpointer import Checkpointer
from kinesis_publishers.checkpoints.versions import Change, Refusal
from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.engine.lineage import startable
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.leases.rules import lease_of
from kinesis_publishers.model import ChildShard, StoredCheckpoint
from kinesis_publishers.testing.fakes import STREAM_ARN, shard_name
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.checkpoint_support import BEGINNING, IDENTITIES, POLICY, at
from tests.unit.leases.lease_support import APPLICATION, HANDOVER, config, down

Step: TypeAlias = "Callable[[], Awaitable[None]]"


class Fault(Enum):
    """What becomes of a write whose caller gets no answer."""

    LOST = "it is done"
    LATE = "it is still under way, and may be done at any time"
    REFUSED = "it is not done"


class WorkerClock(ManualClock):
    """The clock of one machine: as fast as all others, and wrong."""

    def __init__(self, world: World, ahead_seconds: float) -> None:
        super().__init__()
        self._world = world
        self._ahead_seconds = ahead_seconds

    def monotonic(self) -> float:
        return self._world.now + self._ahead_seconds


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
class Tenure:
    """One worker's time with one shard.

    Attributes:
        next_record: the number of the record to process next.
        in_flight: the record that is being processed.
        is_over: whether it was given up on purpose, with everything recorded.
    """

    worker: ModelWorker
    next_record: int
    in_flight: int | None = None
    is_over: bool = False


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
        if _place(after.progress) < _place(before.progress):
            self.violations.append(f"{store.worker} set {key} back: {before} -> {after}")
        if after.progress != before.progress and was.holder != store.worker:
            self.violations.append(f"{store.worker} recorded {key}, which {was.holder} has")
        if was.holder in (None, becomes.holder, store.worker):
            return
        waited = self.now - self.asked_at.get(key, self.now)
        for one in self.workers:
            is_robbed = one.name == was.holder and one.leases.may_deliver(key)
            if is_robbed and not (was.leaving and waited >= HANDOVER):
                self.violations.append(f"{store.worker} took {key} from {one.name}")


def _place(progress: ShardProgress) -> tuple[bool, int]:
    processed = progress.processed
    return progress.is_ended, 0 if processed is None else int(processed.sequence_number)


@define(eq=False)
class ModelWorker:
    """One process: real leases and a real checkpointer, and a model of what reads and delivers."""

    world: World
    name: str
    clock: WorkerClock
    store: FaultyStore
    leases: Leases = field(init=False)
    checkpointer: Checkpointer = field(init=False)
    tenures: dict[ShardKey, Tenure] = field(factory=dict, init=False)
    progress: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    is_busy: bool = field(default=False, init=False)
    is_paused: bool = field(default=False, init=False)
    _is_begun: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.store.worker = self.name
        self.leases = Leases(self.store, config(self.name), self.clock)
        checkpoints = CheckpointConfig(
            application=APPLICATION, store="memory", interval_seconds=10.0, max_records=1000
        )
        self.checkpointer = Checkpointer(self.leases, evolve(checkpoints), self.clock)

    @classmethod
    def named(cls, world: World, name: str, ahead_seconds: float) -> ModelWorker:
        clock = WorkerClock(world, ahead_seconds)
        return cls(world, name, clock, FaultyStore(world, clock))

    def can_deliver(self, key: ShardKey) -> bool:
        return self.leases.may_deliver(key) and key not in self.leases.leaving()

    @property
    def is_free(self) -> bool:
        """Whether it may do something now: it is not in the middle of something, nor paused."""
        return not (self.is_busy or self.is_paused)

    async def do(self, *steps: Step) -> bool:
        """Do something that calls the store; say whether all of it succeeded."""
        if not self.is_free:
            return False
        self.is_busy = True
        try:
            for step in steps:
                await step()
        except KinesisPublishersError as error:
            if not self.leases.is_bearable(error):
                raise
            return False
        finally:
            self.is_busy = False
        return True

    async def look(self) -> None:
        """Look at the rows as the real loop does, and start and stop reading as a fetcher does."""
        if self._is_begun:
            self.assign()
            await self.do(self._follow, self.leases.look)
            self.assign()
        else:
            self._is_begun = await self.do(self._begin)

    async def _begin(self) -> None:
        await self.store.open()
        stored = await self.checkpointer.take_over(IDENTITIES)
        known = {
            ShardKey(STREAM_ARN, id_): one
            for arn in stored
            for id_, one in stored[arn].shards.items()
        }
        self.progress = known
        await self._follow()

    async def _follow(self) -> None:
        listed = {key: one.shard for key, one in self.world.shards.items()}
        # What is found later begins where its records begin.
        self.progress = dict.fromkeys(listed, BEGINNING) | self.progress
        await self.checkpointer.follow(IDENTITIES, listed, self.progress)

    def assign(self) -> None:
        """Do what ``RunningConsumers.assign`` does."""
        for key, one in self.leases.known_progress().items():
            if key not in self.tenures:
                self.progress[key] = one
        listed = [one.shard for key, one in self.world.shards.items() if key in self.progress]
        shards = startable(listed, self.progress)
        mine, leaving = self.leases.mine(shards), self.leases.leaving()
        for key in [*self.tenures]:
            if not (key in mine or key in leaving):
                del self.tenures[key]
                self.checkpointer.forget(key)
        for shard in shards:
            if shard.key in mine and shard.key not in self.tenures:
                self.checkpointer.forget(shard.key)
                start = _place(self.progress[shard.key])[1] + 1
                self.tenures[shard.key] = Tenure(self, start)

    async def live(self, *, is_slow: bool, checkpoints: bool) -> None:
        """Do what a process does in a second."""
        await self.look()
        for key in [*self.tenures]:
            self.begin_record(key)
            if not is_slow:
                self.finish_record(key)
        if checkpoints:
            await self.do(self.checkpointer.flush)
        if not is_slow:
            await self.hand_over()

    def begin_record(self, key: ShardKey) -> None:
        """Hand the next record of a shard out, if that may be done now."""
        tenure, shard = self.tenures.get(key), self.world.shards[key]
        if tenure is None or tenure.in_flight is not None or not self.is_free:
            return
        if not self.can_deliver(key) or tenure.next_record > shard.records:
            return
        parents = [self.world.shards[one] for one in shard.shard.parent_keys]
        if not all(one.is_processed for one in parents):
            self.world.violations.append(f"{self.name} delivers {key} before its parents")
        tenure.in_flight = tenure.next_record
        earlier = shard.handed_out.setdefault(tenure.in_flight, [])
        if any(one.is_over for one in earlier):
            self.world.violations.append(f"{self.name} repeats {tenure.in_flight} of {key}")
        earlier.append(tenure)

    def finish_record(self, key: ShardKey) -> None:
        """Finish the record in progress, and the shard if it was the last one."""
        tenure, shard = self.tenures.get(key), self.world.shards[key]
        if tenure is None or not self.is_free:
            return
        if tenure.in_flight is not None:
            shard.finished.add(tenure.in_flight)
            tenure.next_record = tenure.in_flight + 1
            self.progress[key] = at(tenure.in_flight)
            tenure.in_flight = None
            self.checkpointer.record(key, self.progress[key], records=1)
        is_end = shard.children and tenure.next_record > shard.records
        if is_end and self.can_deliver(key) and not self.progress[key].is_ended:
            self.progress[key] = self.progress[key].ended()
            self.leases.note_children(key, shard.children)
            self.checkpointer.record(key, self.progress[key])
            del self.tenures[key]

    async def checkpoint(self) -> None:
        await self.do(self.checkpointer.flush)

    async def hand_over(self) -> None:
        """Do what ``RunningConsumers`` does with the shards that others ask for."""
        self.assign()
        for key in [*self.leases.leaving()]:
            if not self.is_free:
                return
            self.finish_record(key)
            await self._give_up([key], lambda key=key: self.leases.release([key]))  # type: ignore[misc]
        self.assign()

    async def stop(self) -> None:
        """End as after SIGTERM; it is gone then."""
        for key in [*self.tenures]:
            self.finish_record(key)
        await self._give_up([*self.tenures], self.checkpointer.release)
        self.world.workers.remove(self)

    async def _give_up(self, keys: Sequence[ShardKey], release: Step) -> None:
        tenures = {key: self.tenures.get(key) for key in keys}
        had = {key for key in keys if self.leases.get(key) is not None}
        if await self.do(self.checkpointer.flush):
            had = {key for key in had if self.leases.get(key) is not None}
            if await self.do(release):
                for key, tenure in tenures.items():
                    if tenure is not None and key in had and not self.leases.get(key):
                        tenure.is_over = True
