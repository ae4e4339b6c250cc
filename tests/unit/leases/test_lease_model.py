"""Workers that share shards under faults of every kind: what a model checker tries."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.examples import PROFILE, parts
from tests.unit.leases.lease_model import ModelWorker
from tests.unit.leases.lease_support import FAILOVER, HANDOVER
from tests.unit.leases.lease_world import Fault, World, place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from random import Random

    from kinesis_publishers import ShardKey

_MOST_WORKERS = 5
_MOST_SHARDS = 12
INDEX = st.integers(0, 1000)
# Around what matters: between looks, renewals, the end of a lease, that of a hand-over.
_LITTLE = 0.125
SECONDS = st.sampled_from(
    [_LITTLE, 1.0, 3.0, FAILOVER - _LITTLE, FAILOVER, FAILOVER + 1, HANDOVER + 1]
)
_EVENTS = st.tuples(st.sampled_from(["look", "wait", "late"]), INDEX, SECONDS)
# At each point of a call.
ELSEWHERE = st.lists(st.lists(_EVENTS, max_size=2), max_size=4)

logging.getLogger("kinesis_publishers.leases").setLevel(logging.ERROR)


class LeaseMachine(RuleBasedStateMachine):
    """2 to 5 workers, some shards, and everything that can happen to them, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = World()
        self.names = 0

    def run(self, work: Coroutine[None, None, None]) -> None:
        self.runner.run(work)

    def worker(self, index: int) -> ModelWorker:
        return self.world.workers[index % len(self.world.workers)]

    def key(self, index: int) -> ShardKey:
        return list(self.world.shards)[index % len(self.world.shards)]

    def open_keys(self) -> list[ShardKey]:
        return [key for key, one in self.world.shards.items() if not one.children]

    @initialize(shards=st.integers(1, 5), workers=st.integers(2, 4))
    def begin(self, shards: int, workers: int) -> None:
        for _ in range(shards):
            self.world.add_shard()
        for number in range(workers):
            self.join(1000 * number)
        self.put_records(0, 3)
        self.work(1, is_slow=False, checkpoints=False)

    # The workers.

    @precondition(lambda self: len(self.world.workers) < _MOST_WORKERS)
    @rule(ahead_seconds=st.integers(0, 1_000_000))
    def join(self, ahead_seconds: int) -> None:
        self.names += 1
        self.world.workers.append(ModelWorker.named(self.world, f"w{self.names}", ahead_seconds))
        self.run(self.world.workers[-1].look())

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX, ahead_seconds=st.integers(0, 1_000_000))
    def restart_under_the_same_name(self, index: int, ahead_seconds: int) -> None:
        name = self.worker(index).name
        self.kill(index)
        self.world.workers.append(ModelWorker.named(self.world, name, ahead_seconds))

    @precondition(lambda self: len(self.world.workers) > 1)
    @rule(index=INDEX)
    def kill(self, index: int) -> None:
        self.run(self.worker(index).kill())

    @precondition(lambda self: len(self.world.workers) > 1)
    @rule(index=INDEX)
    def stop(self, index: int) -> None:
        if self.worker(index).is_free:
            self.run(self.worker(index).stop())

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX)
    def pause_or_continue(self, index: int) -> None:
        self.worker(index).is_paused ^= True

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX, elsewhere=ELSEWHERE)
    def look(self, index: int, elsewhere: list[list[tuple[str, int, float]]]) -> None:
        self.run_with(self.worker(index), elsewhere, ModelWorker.look)

    def run_with(
        self,
        worker: ModelWorker,
        elsewhere: list[list[tuple[str, int, float]]],
        work: Callable[[ModelWorker], Coroutine[None, None, None]],
    ) -> None:
        # A call that is part of another worker's call must not wait for that one in turn.
        if worker.is_free:
            worker.store.script = [partial(self.elsewhere, one) for one in elsewhere]
            self.run(work(worker))
            worker.store.script.clear()

    async def elsewhere(self, events: list[tuple[str, int, float]]) -> None:
        """Do what happens while a call to the store is under way."""
        for what, index, seconds in events:
            if what == "look":
                await self.worker(index).look()
            elif what == "wait":
                self.world.now += seconds
            else:
                await self.arrive_late(index)

    @rule(seconds=st.integers(1, 12), is_slow=st.booleans(), checkpoints=st.booleans())
    def work(self, seconds: int, *, is_slow: bool, checkpoints: bool) -> None:
        """Let every worker live for some seconds; a slow one finishes no record meanwhile."""
        for _ in range(seconds):
            self.world.now += 1.0
            for worker in [*self.world.workers]:
                self.run(worker.live(is_slow=is_slow, checkpoints=checkpoints))

    @precondition(lambda self: len(self.world.workers) > 1)
    @rule(index=INDEX, seconds=st.integers(9, 15), others_stop=st.booleans(), looks=st.booleans())
    def sleep_while_others_work(
        self, index: int, seconds: int, *, others_stop: bool, looks: bool
    ) -> None:
        """Let a process that was suspended go on where it was: with its records, or a look."""
        worker = self.worker(index)
        self.run(worker.begin_records(worker.consumers.keys))
        worker.is_paused = True
        self.work(seconds, is_slow=False, checkpoints=True)
        if others_stop:
            for other in [*self.world.workers]:
                if other is not worker and other.is_free:
                    self.run(other.stop())
        worker.is_paused = False
        if not looks:
            self.run(worker.finish_records())
            self.run(worker.checkpoint())
        # What it reads no more may still be cleaning up when it gets the shard back.
        for _ in range(3):
            self.run(worker.look())
        self.run(worker.finish_records())

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX)
    def hand_over(self, index: int) -> None:
        self.run(self.worker(index).hand_over())

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    # The records.

    @rule(index=INDEX, count=st.integers(1, 5))
    def put_records(self, index: int, count: int) -> None:
        open_keys = self.open_keys()
        self.world.shards[open_keys[index % len(open_keys)]].records += count

    @rule(index=INDEX)
    def begin_records(self, index: int) -> None:
        for worker in self.world.workers:
            keys = [*worker.consumers.keys]
            begun = [key for number, key in enumerate(keys) if (number + index) % 3]
            self.run(worker.begin_records(begun))

    @rule()
    def finish_records(self) -> None:
        for worker in self.world.workers:
            self.run(worker.finish_records())

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX, elsewhere=ELSEWHERE)
    def checkpoint(self, index: int, elsewhere: list[list[tuple[str, int, float]]]) -> None:
        self.run_with(self.worker(index), elsewhere, ModelWorker.checkpoint)

    # The stream.

    @precondition(lambda self: len(self.world.shards) < _MOST_SHARDS)
    @rule(index=INDEX)
    def split(self, index: int) -> None:
        open_keys = self.open_keys()
        self.world.split(open_keys[index % len(open_keys)])

    @precondition(lambda self: len(self.world.shards) < _MOST_SHARDS and len(self.open_keys()) > 1)
    @rule(index=INDEX)
    def merge(self, index: int) -> None:
        open_keys = self.open_keys()
        first = index % (len(open_keys) - 1)
        self.world.merge(open_keys[first], open_keys[first + 1])

    # The storage.

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX, faults=st.lists(st.sampled_from(Fault), min_size=1, max_size=3))
    def fail_next_writes(self, index: int, faults: list[Fault]) -> None:
        self.worker(index).store.faults = faults

    @precondition(lambda self: self.world.workers)
    @rule(index=INDEX)
    def cut_off_or_connect(self, index: int) -> None:
        self.worker(index).store.is_down ^= True

    @rule(index=INDEX)
    def late_write(self, index: int) -> None:
        self.run(self.arrive_late(index))

    async def arrive_late(self, index: int) -> None:
        if late := [one for one in self.world.stores if one.late]:
            store = late[index % len(late)]
            await store.arrive(store.late.pop(index % len(store.late)))

    # What holds.

    @invariant()
    def nothing_is_in_two_hands(self) -> None:
        self.world.check()
        assert not self.world.violations, self.world.violations

    def teardown(self) -> None:
        try:
            self.run(self.end())
        finally:
            for worker in [*self.world.workers]:
                self.run(worker.kill())
            self.runner.close()

    async def end(self) -> None:
        """After the last fault everything is read to its end, by one worker each."""
        for store in self.world.stores:
            store.faults.clear()
            store.is_down = False
        while any(one.late for one in self.world.stores):
            await self.arrive_late(0)
        for worker in self.world.workers:
            worker.is_paused = False
        records = sum(shard.records for shard in self.world.shards.values())
        # No hand-over has to end by force any more, which takes longer.
        for _ in range(int(3 * FAILOVER) + records):
            self.world.now += 1.0
            for worker in self.world.workers:
                for _ in range(4):
                    await worker.live(is_slow=False, checkpoints=True)
            self.nothing_is_in_two_hands()
            if not (unread := self.unread()):
                return
        raise AssertionError(unread)

    def unread(self) -> list[str]:
        """Return what is not read, or not held by one worker."""
        found = []
        for key, shard in self.world.shards.items():
            row = self.world.rows.get(key)
            able = [one.name for one in self.world.workers if one.can_deliver(key)]
            is_ended = row is not None and row.checkpoint.progress.is_ended
            if len(shard.finished) < shard.records or not (is_ended or len(able) == 1):
                found.append(f"{key}, {shard.finished} read, is held by {able}: {row}")
        return found


# Hypothesis remembers all that it has tried: a long search is several short ones.
_PARTS, _EXAMPLES = {"long": (2, 100), "soak": (20, 1000)}.get(PROFILE, (1, 50))


@pytest.mark.hypothesis
@pytest.mark.deep
# Once it has failed, it takes some minutes to find the shortest way there.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("_", parts(_PARTS))
def test_every_record_is_processed_by_who_has_the_lease(_: int, chance: Random) -> None:
    run_state_machine_as_test(
        seed(chance.getrandbits(64))(LeaseMachine),
        settings=settings(max_examples=_EXAMPLES, stateful_step_count=50),
    )


@asynccontextmanager
async def world_of(shards: int) -> AsyncIterator[tuple[World, list[ModelWorker]]]:
    """Yield shards of three records each, and two workers."""
    world = World()
    for _ in range(shards):
        world.add_shard()
    for shard in world.shards.values():
        shard.records = 3
    world.workers += [ModelWorker.named(world, name, 0) for name in ("w1", "w2")]
    try:
        yield world, [*world.workers]
    finally:
        for worker in [*world.workers]:
            await worker.kill()


def test_a_call_that_is_part_of_another_one_does_not_wait_for_it() -> None:
    machine = LeaseMachine()
    machine.begin(shards=2, workers=2)
    machine.look(index=0, elsewhere=[[], [], [("look", 1, _LITTLE)]])
    machine.hand_over(index=1)
    machine.hand_over(index=1)
    machine.checkpoint(index=1, elsewhere=[[("look", 0, _LITTLE)]])
    machine.teardown()


async def test_a_worker_stops_although_its_records_wait_for_a_lease_that_has_ended() -> None:
    async with world_of(1) as (world, (one, _)):
        for _ in range(2):
            await one.look()
        world.now += FAILOVER
        await one.begin_records(one.consumers.keys)
        assert [tenure.in_flight for tenure in one.tenures.values()] == [None]
        await one.stop()
        assert not world.violations


async def test_what_was_recorded_before_another_worker_had_a_shard_is_dropped() -> None:
    async with world_of(2) as (world, (one, other)):
        for _ in range(2):
            await one.look()
        await one.begin_records(one.consumers.keys)
        await one.finish_records()
        for _ in range(2):
            await other.look()
        # It hands a shard over, and cannot record how far it is; the other one finds it silent.
        one.store.faults = [Fault.REFUSED] * 9
        await one.look()
        assert len(one.consumers.keys) == 1
        for _ in range(int(FAILOVER) + 2):
            world.now += 1
            await other.live(is_slow=False, checkpoints=True)
        await other.stop()
        one.store.faults.clear()
        await one.do(one.leases.taker.look)
        for _ in range(2):
            await one.look()
        await one.checkpoint()
        assert (len(one.consumers.keys), world.violations) == (2, [])


async def test_a_renewal_does_not_undo_a_checkpoint_that_comes_late() -> None:
    async with world_of(1) as (world, (one, _)):
        for _ in range(2):
            await one.look()
        await one.begin_records(one.consumers.keys)
        await one.finish_records()
        one.store.faults = [Fault.LATE]
        await one.checkpoint()
        # It sees the row as it was before.
        await one.do(one.leases.taker.look)
        await one.store.arrive(one.store.late.pop())
        world.now += FAILOVER / 2
        await one.do(one.leases.taker.look)
        (row,) = world.rows.values()
        assert (place(row.checkpoint.progress), world.violations) == ((False, 1), [])
