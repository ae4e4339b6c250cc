"""The age of progress, where the application records what it has processed itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, ShardProgress
from kinesis_publishers.aggregation import expand
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.model import resume_after
from kinesis_publishers.testing.fakes import (
    batch_of,
    sample_aggregates,
    sample_records,
    sample_shard,
)
from tests.unit.checkpoints.checkpoint_support import BEGINNING, KEY, at


class _Ignoring(DeliverySink):
    async def deliver(self, delivery: Delivery) -> None:
        delivery.release()


def _delivery(*, is_aggregate: bool) -> Delivery:
    """Return a delivery of five records, or of one record with five inside."""
    records = sample_aggregates(1, 5) if is_aggregate else sample_records(5)
    batch = batch_of(records)
    assert batch.last_sequence_number is not None
    progress = ShardProgress(position=resume_after(batch.last_sequence_number))
    room = PendingPool(max_records=10, max_bytes=10_000).try_acquire(5, 100)
    assert room is not None
    return Delivery(expand(batch).batch, progress, room)


@pytest.mark.parametrize("is_aggregate", [False, True], ids=["plain", "aggregate"])
@pytest.mark.parametrize("count", [0, 4, 5])
async def test_the_age_of_a_shard_is_known_once_its_delivered_records_are_recorded(
    buffer, is_aggregate, count
):
    noon = buffer.clock.now()
    sink = buffer.checkpointer.sink(_Ignoring(), records_deliveries=False)
    delivery = _delivery(is_aggregate=is_aggregate)
    await sink.deliver(delivery)
    recorded = BEGINNING
    for record in list(delivery.batch)[:count]:
        number = SequenceNumber(record.sequence_number, record.sub_sequence_number)
        recorded = ShardProgress(position=resume_after(number))
        buffer.checkpointer.record(KEY, recorded, records=1)
    seen = evolve(delivery.progress, as_of=noon)
    for progress in (seen, seen.ended()):
        sink.observe(ShardStatus(shard=sample_shard(0), progress=progress))
    await buffer.checkpointer.flush()
    assert buffer.stored == {KEY: seen if count == 5 else recorded}


async def test_a_shard_of_which_nothing_was_delivered_yet_is_kept_young(buffer):
    sink = buffer.checkpointer.sink(_Ignoring(), records_deliveries=False)
    seen = evolve(BEGINNING, as_of=buffer.clock.now())
    sink.observe(ShardStatus(shard=sample_shard(0), progress=seen))
    await buffer.checkpointer.flush()
    assert buffer.stored == {KEY: seen}


async def test_the_known_age_of_a_shard_outlasts_progress_without_an_age(buffer):
    noon = buffer.clock.now()
    for as_of in (noon, None, noon - timedelta(seconds=5)):
        buffer.checkpointer.record(KEY, at(1, as_of=as_of))
        await buffer.checkpointer.flush()
        assert buffer.stored == {KEY: at(1, as_of=noon)}
