"""Our publishers over the fakes and over LocalKinesis, as the contracts want them."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from attrs import define, field

from kinesis_publishers import PublisherContext, Record, Shard, SystemClock
from kinesis_publishers.errors import (
    IteratorExpiredError,
    LimitExceededError,
    ThroughputExceededError,
)
from kinesis_publishers.publishers.fanout import FanOutRecordPublisherFactory
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.contracts import FactorySubject, HeldShard
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    Answer,
    FakeControlPlane,
    FakeDataPlane,
    FakeStream,
    StoredShard,
    publisher_context,
    sample_shard,
)
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kinesis_publishers import RecordPublisherFactory, StartingPosition
    from kinesis_publishers.model import SubscriptionEvent

__all__ = [
    "EFO",
    "POLLING",
    "ROLE",
    "FakeServiceSubject",
    "LocalKinesisSubject",
    "QuickClock",
    "ShiftedClock",
]

_FACTORIES: dict[str, type[RecordPublisherFactory]] = {
    "POLLING": PollingRecordPublisherFactory,
    "EFO": FanOutRecordPublisherFactory,
}
POLLING = {
    "kinesis.stream.recordpublisher": "POLLING",
    "kinesis.shard.getrecords.maxrecordcount": "5",
}
EFO = {"kinesis.stream.recordpublisher": "EFO", "kinesis.stream.efo.consumername": "billing"}
ROLE = {"POLLING": POLLING, "EFO": EFO}
_BAD = {
    "POLLING": {"kinesis.shard.getrecords.maxrecordcount": "0"},
    "EFO": {"kinesis.stream.efo.subscribetoshard.timeout": "soon"},
}
_RECORDS_PER_DELIVERY = 5


@define(eq=False)
class _Unreliable(StoredShard):
    """A shard whose service can be told to refuse reads, and to break off."""

    refusals: deque[Exception] = field(factory=deque, kw_only=True)
    answers_left: int = field(default=-1, kw_only=True)

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        if self.refusals:
            raise self.refusals.popleft()

    async def read(self, index: int, limit: int) -> Answer:
        if self.refusals:
            raise self.refusals.popleft()
        if self._breaks_off():
            raise IteratorExpiredError("Iterator expired.", operation="GetRecords", code="Expired")
        return await StoredShard.read(self, index, limit)

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        index: int | None = await self.locate(position)
        while index is not None and not self._breaks_off():
            answer = await StoredShard.read(self, index, _RECORDS_PER_DELIVERY)
            reached = answer.records[-1].sequence_number if answer.records else "0"
            yield answer.as_event(reached)
            if index == answer.next_index:
                return
            index = answer.next_index

    def _breaks_off(self) -> bool:
        self.answers_left -= 1
        return self.answers_left == -1


class _ServiceSubject(FactorySubject):
    """One of our factories; which one is the value of ``stream.recordpublisher``."""

    can_hold_open = True
    can_be_throttled = True
    connection: Mapping[str, str]

    def __init__(self, publisher: str) -> None:
        self.name = publisher
        self.factory_class = _FACTORIES[publisher]  # type: ignore[misc]

    @property
    def properties(self) -> Mapping[str, str]:
        return {**self.connection, **ROLE[self.name]}

    @property
    def bad_properties(self) -> Sequence[Mapping[str, str]]:
        return [{**self.properties, **_BAD[self.name]}]


class FakeServiceSubject(_ServiceSubject):
    """Over the fakes, without waiting for real time."""

    can_be_interrupted = True
    connection: ClassVar[Mapping[str, str]] = {"kinesis.streams": "orders"}

    def __init__(self, publisher: str) -> None:
        super().__init__(publisher)
        self.clock = ManualClock()
        self._shards: dict[str, _Unreliable] = {}
        self._context = publisher_context(
            FakeDataPlane(self._shards),
            control_plane=FakeControlPlane(FakeStream()),
            clock=self.clock,
        )

    @property
    def context(self) -> PublisherContext:
        return self._context

    async def hold(self, records: Sequence[Record], *, is_open: bool = False) -> HeldShard:
        shard = sample_shard(len(self._shards))
        kept = [one._replace(shard_id=shard.shard_id) for one in records]
        stored = self._shards[shard.shard_id] = _Unreliable(list(kept))
        if not is_open:
            stored.close(SUCCESSOR)
        return HeldShard(shard=shard, records=kept)

    async def interrupt_after(self, deliveries: int) -> None:
        for shard in self._shards.values():
            shard.answers_left = deliveries

    async def throttle(self, times: int) -> None:
        kind = ThroughputExceededError if self.name == "POLLING" else LimitExceededError
        for shard in self._shards.values():
            shard.refusals.extend(kind("Rate exceeded.", code="Throttled") for _ in range(times))


class ShiftedClock(SystemClock):
    """This machine's clock, moved by as much as a test says: the time that a server lives in."""

    def __init__(self) -> None:
        self.shift = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift

    def monotonic(self) -> float:
        return super().monotonic() + self.shift.total_seconds()


class QuickClock(SystemClock):
    """Sleeps a hundredth of what it is asked for: the delays of a service that has no limits."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)

    def monotonic(self) -> float:
        return super().monotonic() * 100


class LocalKinesisSubject(_ServiceSubject):
    """Over a local server, through the clients of production.

    Args:
        publisher: which factory.
        server: no limits; its clock is ``clock``.
        clock: the server's.
        context: the clients.
    """

    can_be_interrupted = True

    def __init__(
        self, publisher: str, server: LocalKinesis, clock: ShiftedClock, context: PublisherContext
    ) -> None:
        super().__init__(publisher)
        self._server = server
        self._server_clock = clock
        self._context = context
        self._held = 0
        self.connection = server.properties("orders")  # type: ignore[misc]

    @property
    def context(self) -> PublisherContext:
        return self._context

    async def hold(self, records: Sequence[Record], *, is_open: bool = False) -> HeldShard:
        stream, self._held = f"orders-{self._held}", self._held + 1
        # What is read must not have arrived in the future.
        self._server_clock.shift -= timedelta(seconds=len(records))
        self._server.create_stream(stream)
        for one in records:
            self._server.put_many(stream, [(one.partition_key, one.data)])
            self._server_clock.shift += timedelta(seconds=1)
        region, account = self._server.behaviour.region, self._server.behaviour.account_id
        shard = Shard(
            stream_arn=f"arn:aws:kinesis:{region}:{account}:stream/{stream}",
            shard_id="shardId-000000000000",
        )
        ((_, stored),) = self._server.records(stream).items()
        if not is_open:
            self._server.reshard(stream, 2)
        kept = [
            Record(
                data=one.data,
                partition_key=one.partition_key,
                sequence_number=one.sequence_number,
                arrival_epoch_seconds=one.arrival_time.timestamp(),
                encryption_type=None,
                shard_id=shard.shard_id,
                stream_name=stream,
            )
            for one in stored
        ]
        return HeldShard(shard=shard, records=kept)

    async def interrupt_after(self, deliveries: int) -> None:
        if self.name == "EFO":
            self._server.add_fault(Fault("SubscribeToShard", "end", after_events=deliveries))
            return
        expired = Fault(
            "GetRecords", "error", code="ExpiredIteratorException", every=deliveries + 1
        )
        self._server.add_fault(expired)

    async def throttle(self, times: int) -> None:
        refused = Fault("GetRecords", "throttle", times=times)
        if self.name == "EFO":
            code = "LimitExceededException"
            refused = Fault("SubscribeToShard", "error", code=code, times=times)
        self._server.add_fault(refused)
