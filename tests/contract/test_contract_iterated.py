"""A source that is an iterator keeps the contract of publishers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from attrs import evolve

from kinesis_publishers import (
    IteratedPublisherFactory,
    RunResult,
    Shard,
    SourceRecord,
    StartingPosition,
)
from kinesis_publishers.config import Properties
from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from kinesis_publishers.testing.fakes import (
    RecordingConsumer,
    publisher_context,
    sample_records,
    sample_shard,
)
from tests.contract.list_publisher import FLAG, MEMORY, OPEN, ListSubject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kinesis_publishers import Record, RecordBatch


def source_record(record: Record) -> SourceRecord:
    return SourceRecord(
        data=record.data,
        sequence_number=int(record.sequence_number),
        partition_key=record.partition_key,
        arrived_at=record.approximate_arrival_timestamp,
    )


class IteratedFactory(IteratedPublisherFactory):
    """Yields one record and then the others by threes, always from the beginning."""

    options: ClassVar = (FLAG,)

    async def records(
        self, shard: Shard, start: StartingPosition
    ) -> AsyncGenerator[SourceRecord | list[SourceRecord], None]:
        held = [source_record(record) for record in MEMORY[shard.shard_id]]
        for record in held[:1]:
            yield record
        for first in range(1, len(held), 3):
            yield held[first : first + 3]
        while shard.shard_id in OPEN:
            yield []
            await self.context.clock.sleep(1.0)


class IteratedSubject(ListSubject):
    factory_class = IteratedFactory
    can_be_interrupted = can_be_throttled = False


class TestIteratedPublisher(RecordPublisherContract):
    @pytest.fixture
    def subject(self) -> IteratedSubject:
        return IteratedSubject()


async def run_of(*yielded: object) -> list[RecordBatch]:
    async def read(shard: Shard, start: StartingPosition) -> AsyncGenerator[Any, None]:
        for one in yielded:
            yield one

    class Factory(IteratedPublisherFactory):
        records = staticmethod(read)

    shard, consumer = sample_shard(0), RecordingConsumer()
    factory = Factory(Properties.parse({}, complete=False), publisher_context())
    publisher = await factory.create(StartingPosition.trim_horizon(), shard)
    while await publisher.run(consumer) is not RunResult.COMPLETE:
        pass
    return consumer.batches


async def test_a_number_that_does_not_increase_is_an_error() -> None:
    first, second = (SourceRecord(data=data, sequence_number=1) for data in (b"a", b"b"))
    for yielded in ([first, second], [[first, second]]):
        with pytest.raises(ValueError, match="sequence number 1 after 1"):
            await run_of(*yielded)


async def test_a_batch_says_whether_its_records_have_arrival_times() -> None:
    known, unknown = map(source_record, sample_records(2))
    batches = await run_of(known, evolve(unknown, arrived_at=None))
    first, second = [one for one in batches if len(one)]
    assert (first.has_arrival_times, second.has_arrival_times) == (True, False)
    assert not second.joined(first).has_arrival_times


async def test_none_does_not_end_the_shard() -> None:
    with pytest.raises(TypeError):
        await run_of(None, SourceRecord(data=b"a", sequence_number=1))


class TestIteratedFactory(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self) -> IteratedSubject:
        return IteratedSubject()
