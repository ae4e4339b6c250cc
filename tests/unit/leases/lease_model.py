"""Workers that share a stream: they are real, but for the application and the publishers.

They have the real leases, checkpointer and consumers of shards. What takes records waits until the
model says so, and each step ends when no task can go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from attrs import define, evolve, field

from kinesis_publishers import Event, Shard, ShardKey, ShardProgress, StartingPosition
from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.config import AggregationMode, CheckpointConfig
from kinesis_publishers.engine.delivery import Delivery, DeliverySink
from kinesis_publishers.engine.lineage import startable
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.events import LeaseLost, LeaseReleased
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.model import RunResult
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.readers.consumers import AssignedSink, RunningConsumers
from kinesis_publishers.tasks import TaskScope
from kinesis_publishers.testing.fakes import (
    STREAM_ARN,
    ScriptedPublisherFactory,
    ShardReader,
    batch_of,
    sample_records,
)
from tests.unit.checkpoints.checkpoint_support import BEGINNING, IDENTITIES
from tests.unit.leases.lease_support import APPLICATION, config
from tests.unit.leases.lease_world import FaultyStore, ModelShard, Step, WorkerClock, World, place

# Two tasks that both wait for quiet would wait for each other.
_MOST_TURNS = 50


async def _quiet() -> None:
    """Return when all other tasks wait for something."""
    # Nothing public tells it; a timeout that is due is among them one turn later.
    ready, quiet = asyncio.get_running_loop()._ready, 0  # type: ignore[attr-defined]  # noqa: SLF001
    for _ in range(_MOST_TURNS):
        quiet = 0 if ready else quiet + 1
        if quiet > 1:
            break
        await asyncio.sleep(0)


@define(eq=False)
class Tenure(RecordPublisher):
    """One worker's time with one shard, and what brings it its records, one by one.

    Attributes:
        next_record: the number of the record to read next.
        in_flight: the record that is being processed.
        is_lost: whether another worker has got the lease meanwhile.
        is_over: whether it was given up on purpose, with everything recorded.
    """

    shard: ModelShard
    next_record: int
    in_flight: int | None = None
    is_lost: bool = False
    is_over: bool = False
    may_read: asyncio.Event = field(factory=asyncio.Event)
    may_finish: asyncio.Event = field(factory=asyncio.Event)

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        await self.may_read.wait()
        self.may_read.clear()
        shard, number = self.shard, self.next_record
        if number <= shard.records:
            (record,) = sample_records(1, shard=shard.shard)
            numbered = record._replace(sequence_number=str(number))
            await consumer(batch_of([numbered], shard=shard.shard, millis_behind_latest=None))
            self.next_record += 1
        elif shard.children:
            last = batch_of([], shard=shard.shard, millis_behind_latest=None)
            await consumer(evolve(last, child_shards=shard.children))
            return RunResult.COMPLETE
        return RunResult.INCOMPLETE


@define(eq=False)
class Application(DeliverySink):
    """What processes the records of one worker, and sees whether it may."""

    _worker: ModelWorker

    async def deliver(self, delivery: Delivery) -> None:
        worker, key, number = self._worker, delivery.shard.key, place(delivery.progress)[1]
        world, tenure, shard = worker.world, worker.tenures[key], worker.world.shards[key]
        if not worker.leases.shards.may_deliver(key):
            world.violations.append(f"{worker.name} delivers {key} without the lease")
        if others := [one.name for one in world.workers if one.can_deliver(key, but=worker)]:
            world.violations.append(f"{worker.name} delivers {key}, as {others} may")
        if not all(world.shards[one].is_processed for one in shard.shard.parent_keys):
            world.violations.append(f"{worker.name} delivers {key} before its parents")
        earlier = shard.handed_out.setdefault(number, [])
        if any(one.is_over for one in earlier):
            world.violations.append(f"{worker.name} repeats {number} of {key}")
        earlier.append(tenure)
        tenure.in_flight = number
        try:
            await tenure.may_finish.wait()
            shard.finished.add(number)
            delivery.release()
        except asyncio.CancelledError:
            # What is cancelled may take its time to clean up.
            await tenure.may_finish.wait()
            raise
        finally:
            tenure.may_finish.clear()
            tenure.in_flight = None


@define(eq=False)
class ModelWorker:
    """One process: real but for the application, the publishers and the listing of shards.

    Attributes:
        tenures: the latest one with each shard.
        keeps_nothing: whether what it processed last could not be recorded.
    """

    world: World
    name: str
    clock: WorkerClock
    store: FaultyStore
    leases: Leases = field(init=False)
    checkpointer: Checkpointer = field(init=False)
    consumers: RunningConsumers = field(init=False)
    tenures: dict[ShardKey, Tenure] = field(factory=dict, init=False)
    progress: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    keeps_nothing: bool = field(default=False, init=False)
    is_busy: bool = field(default=False, init=False)
    is_paused: bool = field(default=False, init=False)
    _is_begun: bool = field(default=False, init=False)
    _scope: TaskScope = field(factory=TaskScope, init=False)
    _process: asyncio.Task[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.store.worker = self.name
        self.leases = Leases(self.store, config(self.name), self.clock, self._note)
        checkpoints = CheckpointConfig(
            application=APPLICATION, store="memory", interval_seconds=10.0, max_records=1000
        )
        self.checkpointer = Checkpointer(self.leases, checkpoints, self.clock)
        reader = ShardReader(
            factory=ScriptedPublisherFactory(), clock=self.clock, aggregation=AggregationMode.OFF
        )
        sink = AssignedSink(self.checkpointer.sink(Application(self)), self.leases.shards)
        context = evolve(reader.context, sink=sink, create_publisher=self._begin_tenure)
        self.consumers = RunningConsumers(
            context, sink, self.leases.shards, self.checkpointer, self._note_finished
        )

    @classmethod
    def named(cls, world: World, name: str, ahead_seconds: int) -> ModelWorker:
        clock = WorkerClock(world, ahead_seconds)
        return cls(world, name, clock, FaultyStore(world, clock))

    def _note(self, event: Event) -> None:
        if isinstance(event, LeaseLost) and event.shard in self.tenures:
            self.tenures[event.shard].is_lost = True
        elif isinstance(event, LeaseReleased) and event.shard in self.tenures:
            tenure = self.tenures[event.shard]
            tenure.is_over = not (tenure.is_lost or self.keeps_nothing)

    async def _begin_tenure(self, position: StartingPosition, shard: Shard) -> Tenure:
        done = (
            0 if position.sequence_number is None else int(position.sequence_number.sequence_number)
        )
        tenure = self.tenures[shard.key] = Tenure(self.world.shards[shard.key], done + 1)
        return tenure

    def _note_finished(self, consumer: ShardConsumer) -> None:
        self.progress[consumer.shard.key] = consumer.progress

    def can_deliver(self, key: ShardKey, *, but: ModelWorker | None = None) -> bool:
        return self.leases.shards.may_deliver(key) and self is not but

    @property
    def is_free(self) -> bool:
        """Whether it may do something now: it is not in the middle of something, nor paused."""
        return not (self.is_busy or self.is_paused)

    async def do(self, *steps: Step) -> bool:
        """Do something that calls the store, and what follows; say whether all of it succeeded."""
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
            try:
                await self._settle()
            finally:
                # Also if the task is another worker's, which is killed just then.
                self.is_busy = False
        return True

    async def _settle(self) -> None:
        """Let all tasks run until they wait for something; raise what they have raised."""
        await _quiet()
        if self._process is not None and self._process.done():
            self._process.result()

    async def look(self) -> None:
        """Look at the rows as the real loop does, and start and stop reading as a fetcher does."""
        if self._is_begun:
            await self.do(self._assign)
            await self.do(self._follow, self.leases.taker.look)
            await self.do(self._assign)
        else:
            self._is_begun = await self.do(self._begin)

    async def _begin(self) -> None:
        if self._process is None:
            self._process = asyncio.create_task(self._live())
            await self.store.open()
        stored = await self.checkpointer.take_over(IDENTITIES)
        self.progress = {
            ShardKey(STREAM_ARN, id_): one
            for arn in stored
            for id_, one in stored[arn].shards.items()
        }
        await self._follow()

    async def _live(self) -> None:
        async with self._scope:
            await asyncio.Event().wait()

    async def _follow(self) -> None:
        listed = {key: one.shard for key, one in self.world.shards.items()}
        # What is found later begins where its records begin.
        self.progress = dict.fromkeys(listed, BEGINNING) | self.progress
        await self.checkpointer.follow(IDENTITIES, listed, self.progress)

    async def _assign(self) -> None:
        """Do what the fetcher does when the assigner wakes it."""
        known = self.leases.shards.known_progress()
        self.progress |= {key: known[key] for key in known.keys() - self.consumers.keys}
        progress = self.progress | self.consumers.progress
        listed = [one.shard for key, one in self.world.shards.items() if key in progress]
        shards = startable(listed, progress)
        self.consumers.assign(shards, self.progress, self._scope, given_up=())

    async def live(self, *, is_slow: bool, checkpoints: bool) -> None:
        """Do what a process does in a second."""
        await self.look()
        await self.begin_records(self.consumers.keys)
        if not is_slow:
            await self.finish_records()
        if checkpoints:
            await self.checkpoint()
        if not is_slow:
            await self.hand_over()

    async def begin_records(self, keys: Collection[ShardKey]) -> None:
        """Let the next record of each of some shards come, or their ends."""

        async def begin() -> None:
            for key in keys:
                if key in self.tenures:
                    self.tenures[key].may_read.set()

        await self.do(begin)

    async def finish_records(self) -> None:
        """Finish the records that are being processed."""

        async def finish() -> None:
            for tenure in self.tenures.values():
                if tenure.in_flight is not None:
                    tenure.may_finish.set()

        await self.do(finish)

    async def checkpoint(self) -> None:
        await self.do(self.checkpointer.flush)

    async def hand_over(self) -> None:
        """Hand over what others ask for, as soon as the records in progress are finished."""
        await self.do(self._assign)
        await self.finish_records()
        await self.do(self._assign)

    async def stop(self) -> None:
        """End as after SIGTERM; it is gone then."""
        self.consumers.stop()
        await self.finish_records()
        if read := [*self.consumers.keys]:
            self.world.violations.append(f"{self.name} stops, and yet goes on with {read}")
        self.keeps_nothing = not await self.do(self.checkpointer.flush)
        await self.do(self.checkpointer.release)
        await self.kill()

    async def kill(self) -> None:
        """Be gone, at once."""
        self.world.workers.remove(self)
        if self._process is not None:
            self._process.cancel()
            await _quiet()
            for tenure in self.tenures.values():
                tenure.may_finish.set()
            await asyncio.wait([self._process])
