"""A source that is an iterator keeps the contract of publishers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from kinesis_publishers import IteratedPublisherFactory, SourceRecord
from kinesis_publishers.config import Flag, Namespace, Option
from kinesis_publishers.testing.contracts import (
    RecordPublisherContract,
    RecordPublisherFactoryContract,
)
from tests.contract.list_publisher import MEMORY, OPEN, ListSubject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kinesis_publishers import Record, Shard, StartingPosition


def source_record(record: Record) -> SourceRecord:
    return SourceRecord(
        data=record.data,
        sequence_number=int(record.sequence_number),
        partition_key=record.partition_key,
        arrived_at=record.approximate_arrival_timestamp,
    )


class IteratedFactory(IteratedPublisherFactory):
    """Yields one record and then the others by threes, always from the beginning."""

    options: ClassVar = (
        Option(
            key="custom.list.flag",
            parser=Flag(),
            default=False,
            doc="Nothing.",
            section="List",
            namespace=Namespace.OURS,
        ),
    )

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


class TestIteratedFactory(RecordPublisherFactoryContract):
    @pytest.fixture
    def subject(self) -> IteratedSubject:
        return IteratedSubject()
