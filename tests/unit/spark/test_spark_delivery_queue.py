"""What one thread reads and another one takes: in order, together if it is little, and no more."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest

from kinesis_publishers import Delivery, SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.testing.fakes import batch_of, sample_records
from kinesis_publishers_spark.workers import DeliveryQueue, release_all

KIB = 1024


def deliveries(pool: PendingPool, *sizes: int, records: int = 1) -> list[Delivery]:
    """Return deliveries whose records have these sizes, in the order of their shard."""

    async def make() -> list[Delivery]:
        made = []
        for index, size in enumerate(sizes):
            batch = batch_of(sample_records(records, first=index * records, size=size))
            last = SequenceNumber(batch.sequence_numbers[-1])
            progress = ShardProgress(position=StartingPosition.after(last))
            room = await pool.acquire(len(batch), batch.payload_bytes)
            made.append(Delivery(batch, progress, room))
        return made

    return asyncio.run(make())


@pytest.fixture
def pool() -> PendingPool:
    return PendingPool(max_records=100_000, max_bytes=100 * KIB * KIB)


def handed_over(given: list[Delivery]) -> DeliveryQueue:
    async def deliver() -> None:
        for one in given:
            await handed.deliver(one)

    handed = DeliveryQueue()
    asyncio.run(deliver())
    return handed


def test_what_is_little_is_taken_together(pool: PendingPool) -> None:
    given = deliveries(pool, 10, 20, 30)
    handed = handed_over(given)
    assert handed.take() == given
    handed.end(has_failed=False)
    assert handed.take() == []


@pytest.mark.parametrize(
    ("size", "records", "expected"),
    [(400 * KIB, 1, [3, 2]), (1, 4000, [3, 2]), (2 * KIB * KIB, 1, [1, 1, 1, 1, 1])],
    ids=["bytes", "records", "large"],
)
def test_no_more_is_taken_than_makes_a_batch(
    pool: PendingPool, size: int, records: int, expected: list[int]
) -> None:
    given = deliveries(pool, *[size] * 5, records=records)
    handed = handed_over(given)
    handed.end(has_failed=False)
    taken = list(iter(handed.take, []))
    assert [len(one) for one in taken] == expected
    assert [one for some in taken for one in some] == given


def test_taking_waits_for_a_delivery(pool: PendingPool) -> None:
    (given,) = deliveries(pool, 10)
    handed = DeliveryQueue()
    thread = threading.Thread(target=lambda: asyncio.run(handed.deliver(given)))
    thread.start()
    assert handed.take() == [given]
    thread.join()


def test_a_waiting_taker_wakes_at_a_delivery_and_at_the_end(pool: PendingPool) -> None:
    (given,) = deliveries(pool, 10)
    # In some rounds the delivery comes before the wait: one round alone would prove nothing.
    for _ in range(50):
        handed = DeliveryQueue()
        taken: queue.Queue[list[Delivery]] = queue.Queue()
        thread = threading.Thread(
            target=lambda take, put: [put(take()) for _ in range(2)],
            args=(handed.take, taken.put),
            daemon=True,
        )
        thread.start()
        asyncio.run(handed.deliver(given))
        assert taken.get(timeout=60) == [given]
        handed.end(has_failed=False)
        assert taken.get(timeout=60) == []
        thread.join()


def test_what_was_read_before_a_failure_is_not_handed_out(pool: PendingPool) -> None:
    handed = handed_over(deliveries(pool, 10, 20))
    handed.end(has_failed=True)
    assert handed.take() == []
    rest = handed.take_rest()
    assert len(rest) == 2
    release_all(rest)
    assert (pool.records, pool.payload_bytes) == (0, 0)
    assert handed.take_rest() == []
