"""A publisher of records in memory that keeps the contract, for others to break it in one point."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, ClassVar, Self

from kinesis_publishers import (
    Properties,
    PublisherContext,
    Record,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
    RunResult,
    SequenceNumber,
    Shard,
    StartingPosition,
)
from kinesis_publishers.config import Flag, Option
from kinesis_publishers.model import PositionType, continue_from
from kinesis_publishers.testing.contracts import FactorySubject, HeldShard
from kinesis_publishers.testing.fakes import batch_of, publisher_context, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["FLAG", "MEMORY", "OPEN", "ListFactory", "ListPublisher", "ListSubject"]

#: What the shards hold; emptied by each subject.
MEMORY: dict[str, Sequence[Record]] = {}
OPEN: set[str] = set()
FLAG: Option[bool] = Option(
    key="custom.list.flag",
    parser=Flag(),
    default=False,
    doc="Nothing.",
    section="List",
)


class ListPublisher(RecordPublisher):
    """Delivers up to five records per run; a cursor stands for what a service would give it."""

    per_run = 5

    def __init__(self, shard: Shard, start: StartingPosition, context: PublisherContext) -> None:
        if start.type is PositionType.LATEST:
            raise ValueError("LATEST must be pinned")
        self.shard = shard
        self.position = start
        self.context = context
        self.cursor: int | None = None

    @property
    def records(self) -> Sequence[Record]:
        return MEMORY[self.shard.shard_id]

    @property
    def is_open(self) -> bool:
        return self.shard.shard_id in OPEN

    def locate(self) -> int:
        position, numbers = self.position, [int(one.sequence_number) for one in self.records]
        if position.sequence_number is not None:
            number = int(position.sequence_number.sequence_number)
            is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
            return bisect_left(numbers, number + is_after)
        if position.timestamp is not None:
            instant = position.timestamp
            arrivals = [one.approximate_arrival_timestamp for one in self.records]
            return next((n for n, one in enumerate(arrivals) if one >= instant), len(arrivals))
        return 0

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        await self.read(consumer)
        return self.result()

    async def read(self, consumer: RecordBatchConsumer) -> None:
        if ListSubject.throttles > 0:
            ListSubject.throttles -= 1
            await self.context.clock.sleep(0.1)
            return
        if self.is_open and self.cursor == len(self.records):
            await self.context.clock.sleep(1.0)
        if self.cursor is None:
            self.cursor = self.locate()
        found = self.records[self.cursor : self.cursor + self.per_run]
        if found:
            await consumer.wait_for_space(len(found), sum(len(one.data) for one in found))
            await self.deliver(found, consumer)
        self.cursor += len(found)
        ListSubject.deliveries_left -= 1
        if ListSubject.deliveries_left == 0:
            self.cursor = None

    async def deliver(self, found: Sequence[Record], consumer: RecordBatchConsumer) -> None:
        batch = batch_of(
            found,
            shard=self.shard,
            requested_at=self.context.clock.now(),
            millis_behind_latest=self.lag_after(found),
        )
        self.follow(await consumer(batch), found)

    def lag_after(self, found: Sequence[Record]) -> int | None:
        return 0 if self.records[-1] in found else None

    def follow(self, processed: SequenceNumber | None, found: Sequence[Record]) -> None:
        self.position = continue_from(self.position, processed)

    def result(self) -> RunResult:
        is_done = self.cursor == len(self.records) and not self.is_open
        return RunResult.COMPLETE if is_done else RunResult.INCOMPLETE


class ListFactory(RecordPublisherFactory):
    """Makes list publishers."""

    publisher_class: ClassVar[type[ListPublisher]] = ListPublisher

    def __init__(self, context: PublisherContext) -> None:
        self.context = context

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        properties.custom(FLAG)
        return cls(context)

    async def create(self, starting_position: StartingPosition, shard: Shard) -> RecordPublisher:
        return self.publisher_class(shard, starting_position, self.context)


class ListSubject(FactorySubject):
    """A factory of list publishers, or one that is broken.

    Class attributes:
        throttles: how many of the next runs are refused.
        deliveries_left: after how many deliveries the cursor is lost.
    """

    factory_class: ClassVar[type[RecordPublisherFactory]] = ListFactory
    can_hold_open = can_be_interrupted = can_be_throttled = True
    throttles = deliveries_left = 0
    properties: Mapping[str, str] = {"kinesis.stream.recordpublisher": "list_publisher:ListFactory"}
    bad_properties = ({**properties, "kinesis.custom.list.flag": "perhaps"},)

    def __init__(self) -> None:
        self.clock = ManualClock()
        MEMORY.clear()
        OPEN.clear()
        ListSubject.throttles = ListSubject.deliveries_left = 0

    @property
    def context(self) -> PublisherContext:
        return publisher_context(clock=self.clock)

    async def hold(self, records: Sequence[Record], *, is_open: bool = False) -> HeldShard:
        shard = sample_shard(len(MEMORY))
        kept = [one._replace(shard_id=shard.shard_id) for one in records]
        MEMORY[shard.shard_id] = kept
        if is_open:
            OPEN.add(shard.shard_id)
        return HeldShard(shard=shard, records=kept)

    async def interrupt_after(self, deliveries: int) -> None:
        ListSubject.deliveries_left = deliveries

    async def throttle(self, times: int) -> None:
        ListSubject.throttles = times


def subject_of(publisher_class: type[ListPublisher]) -> ListSubject:
    """Return a subject whose factory makes ``publisher_class``."""
    factory = type("BrokenFactory", (ListFactory,), {"publisher_class": publisher_class})
    return type("BrokenSubject", (ListSubject,), {"factory_class": factory})()
