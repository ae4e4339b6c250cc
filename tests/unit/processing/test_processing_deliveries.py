"""What is handed out at once, in which order, and which progress is recorded of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_publishers import Delivery, ShardProgress, ShardStatus
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.model import SequenceNumber, resume_after
from kinesis_publishers.processing.deliveries import Deliveries, HookCall
from kinesis_publishers.processing.handed_out import Cutting, HandedOut
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard

if TYPE_CHECKING:
    from kinesis_publishers import Record, ShardKey

KEY = sample_shard().key


class Recorded:
    """Remembers the progress that is recorded, as record numbers."""

    def __init__(self, records: list[Record]) -> None:
        self._places = {one.sequence_number: at for at, one in enumerate(records, 1)}
        self.counts = [0]

    def record(self, key: ShardKey, progress: ShardProgress, *, records: int) -> None:
        number = progress.processed
        assert number is not None
        self.counts.append(self._places[number.sequence_number])
        assert self.counts[-1] - self.counts[-2] == records


class Session:
    """Deliveries of one shard that are handed out; what is called with them is chosen from outside.

    ``begun`` and ``done`` have the indices of records, in the order of the calls.
    """

    def __init__(self, sizes: list[int], keys: int, cutting: Cutting) -> None:
        count = sum(sizes)
        self.records = [
            one._replace(partition_key=f"k{at * 7 % keys}")
            for at, one in enumerate(sample_records(count))
        ]
        self.recorded = Recorded(self.records)
        self.deliveries = Deliveries(lambda: None, cutting)
        self.deliveries.checkpointer = self.recorded  # type: ignore[assignment]
        self.sizes = sizes
        self.begun: list[int] = []
        self.done: list[int] = []
        self.open: list[tuple[HandedOut, int]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def deliver_all(self) -> None:
        first = 0
        for size in self.sizes:
            records = self.records[first : first + size]
            last = SequenceNumber(records[-1].sequence_number)
            room = PendingPool(max_records=1000, max_bytes=10**9).try_acquire(1, 1)
            assert room is not None
            progress = ShardProgress(position=resume_after(last))
            delivery = Delivery(batch_of(records), progress, room)
            self.tasks.append(asyncio.create_task(self.deliveries.deliver(delivery)))
            first += size
        await asyncio.sleep(0)

    def number(self, handed: HandedOut, index: int) -> int:
        return int(handed.batch.payloads[index].strip(b"."))

    def begin_next(self) -> None:
        """Take what is handed out, if anything is, and begin its first record."""
        if self.deliveries.waiting:
            handed = self.deliveries.waiting.popleft()
            assert isinstance(handed, HandedOut)
            self._go_on(handed, 0)

    def finish_one(self, choice: int) -> None:
        """End the call of one record in progress, and begin the next record of its part."""
        if self.open:
            handed, index = self.open.pop(choice % len(self.open))
            self.done.append(self.number(handed, index))
            self.deliveries.record(handed, index + 1)
            self._go_on(handed, index + 1)

    def _go_on(self, handed: HandedOut, index: int) -> None:
        if index < len(handed.batch) and handed.begin(index):
            self.begun.append(self.number(handed, index))
            self.open.append((handed, index))
        else:
            self.deliveries.finish(handed)


orders = st.sampled_from(["shard", "partition_key", None])
steps = st.lists(st.one_of(st.none(), st.integers(0, 7)), max_size=60)


@pytest.mark.deep
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    keys=st.integers(1, 5),
    order=orders,
    workers=st.integers(1, 4),
    most=st.integers(1, 20),
    steps=steps,
    ends_by_stop=st.booleans(),
)
def test_records_keep_their_order_and_the_progress_has_no_gap(
    sizes: list[int],
    keys: int,
    order: Any,
    workers: int,
    most: int,
    steps: list[int | None],
    ends_by_stop: bool,
) -> None:
    """Whatever is called when: order per key, the lowest undone record, all or no gap at a stop."""
    cutting = Cutting(ordered_by=order, workers=workers, max_in_flight=most)

    async def run() -> None:
        session = Session(sizes, keys, cutting)
        await session.deliver_all()
        for step in steps:
            if step is None and len(session.open) < workers:
                session.begin_next()
            else:
                session.finish_one(step or 0)
            check(session, order, most)
        if ends_by_stop:
            session.deliveries.stop()
        begun = max(session.begun, default=-1)
        while session.open or session.deliveries.waiting:
            session.begin_next()
            session.finish_one(0)
            check(session, order, most)
        if ends_by_stop:
            assert sorted(session.done) == list(range(begun + 1)), "a gap, or more than was begun"
        else:
            assert sorted(session.done) == list(range(sum(sizes)))
            await asyncio.wait_for(asyncio.gather(*session.tasks), 5)
        assert session.recorded.counts[-1] == len(session.done)
        for task in session.tasks:
            task.cancel()

    asyncio.run(run())


def check(session: Session, order: str | None, most: int) -> None:
    done = {*session.done}
    first_undone = next(n for n in range(len(session.records) + 1) if n not in done)
    assert session.recorded.counts[-1] == first_undone
    if order != "shard":
        # One part may be larger than what may be in flight: nothing would be handed out else.
        assert max(session.begun, default=0) - first_undone <= max(most, 1)
    key_of = {n: one.partition_key for n, one in enumerate(session.records)}
    groups = {"partition_key": {*key_of.values()}, "shard": {None}}.get(order or "", set())
    for group in groups:
        of_group = [n for n in session.begun if group in (None, key_of[n])]
        assert of_group == sorted(of_group)


@pytest.mark.parametrize("sizes", [[50], [20, 30]])
@pytest.mark.parametrize("order", ["partition_key", None])
async def test_a_slow_record_does_not_hold_the_others_of_its_shard_up(
    order: Any, sizes: list[int]
) -> None:
    session = Session(sizes, 50, Cutting(ordered_by=order, workers=2, max_in_flight=1000))
    await session.deliver_all()
    session.begin_next()
    slow = session.open.pop()
    while session.deliveries.waiting or session.open:
        session.begin_next()
        session.finish_one(0)
    assert len(session.done) > 40
    assert session.recorded.counts[-1] == session.begun[0]
    session.open.append(slow)
    while session.deliveries.waiting or session.open:
        session.finish_one(0)
        session.begin_next()
    assert session.recorded.counts[-1] == 50
    await asyncio.gather(*session.tasks)


async def test_a_hand_over_finishes_what_is_before_a_record_that_has_begun() -> None:
    session = Session([20], 20, Cutting(ordered_by="partition_key", workers=2))
    await session.deliver_all()
    while session.deliveries.waiting and len(session.open) < 3:
        session.begin_next()
    last = max(session.begun)
    session.deliveries.withdraw(KEY, is_lost=False)
    while session.deliveries.waiting or session.open:
        session.begin_next()
        session.finish_one(0)
    assert sorted(session.done) == list(range(last + 1))
    await asyncio.wait_for(asyncio.gather(*session.tasks), 5)


async def test_of_a_shard_that_is_lost_nothing_more_is_begun_or_recorded() -> None:
    session = Session([20], 20, Cutting(ordered_by="partition_key", workers=2))
    await session.deliver_all()
    session.begin_next()
    begun = list(session.begun)
    session.deliveries.withdraw(KEY, is_lost=True)
    session.deliveries.waiting.clear()  # The call of on_shard_lost.
    session.finish_one(0)
    assert (session.begun, session.recorded.counts) == (begun, [0])
    await asyncio.wait_for(asyncio.gather(*session.tasks), 5)


@pytest.mark.parametrize("is_held_back", [False, True])
async def test_a_shard_is_forgotten_when_its_end_has_been_recorded(*, is_held_back: bool) -> None:
    session = Session([5], 5, Cutting())
    deliveries = session.deliveries
    ended = ShardProgress(position=resume_after(SequenceNumber("9")), is_ended=True)
    await session.deliver_all()
    session.begin_next()
    while session.open:
        if is_held_back:
            deliveries.finish(session.open.pop()[0])
        else:
            session.finish_one(0)
    await asyncio.gather(*session.tasks)
    deliveries.observe(ShardStatus(shard=sample_shard(), progress=ended))
    assert deliveries.shards[KEY].is_held_back == is_held_back
    (call,) = deliveries.waiting
    assert isinstance(call, HookCall)
    deliveries.checkpointer = None
    deliveries.record_end(call, was_told=True)
    assert KEY not in deliveries.shards


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_shard_that_another_worker_reads_is_forgotten(*, is_lost: bool) -> None:
    session = Session([5], 5, Cutting())
    await session.deliver_all()
    session.begin_next()
    session.deliveries.withdraw(KEY, is_lost=is_lost)
    assert session.deliveries.shards[KEY]
    session.finish_one(0)
    await asyncio.wait_for(asyncio.gather(*session.tasks), 5)
    assert KEY not in session.deliveries.shards


def test_a_part_of_several_records_has_no_more_than_so_many_bytes() -> None:
    batch = batch_of(sample_records(10, size=100))
    cutting = Cutting(per_batch=True, max_bytes=250)
    assert [len(part) for _, part in cutting.cut(batch, 0, 10)] == [2] * 5
    tiny = Cutting(per_batch=True, max_bytes=10, max_records=3)
    assert [list(part) for _, part in tiny.cut(batch, 0, 3)] == [[0], [1], [2]]
