"""LocalKinesis behind both kinds of planes, and our publishers over it, as the contracts want."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve

from kinesis_publishers import PublisherContext, Record, Shard, SystemClock
from kinesis_publishers.publishers.fanout import FanOutRecordPublisherFactory
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.contracts import FactorySubject, HeldShard
from kinesis_publishers.testing.fakes import finish, publisher_context
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from kinesis_publishers import RecordPublisherFactory

__all__ = [
    "BEHAVIOUR",
    "EFO",
    "LIMITS",
    "POLLING",
    "ROLE",
    "HttpService",
    "InProcessService",
    "QuickClock",
    "Service",
    "ServiceSubject",
    "ShiftedClock",
]

_T = TypeVar("_T")
#: A page of five records, polled or pushed.
LIMITS = evolve(Limits.off(), event_max_records=5)
BEHAVIOUR = Behaviour(heartbeat_seconds=0.05)
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


class Service(ABC):
    """A local service and planes that read from it.

    Attributes:
        server: the service.
        clients: its planes.
        clock: what the planes wait on, if a test can move it.
    """

    server: LocalKinesis
    clients: PublisherContext
    clock: ManualClock | None = None

    def arn_of(self, stream: str) -> str:
        region, account = self.server.behaviour.region, self.server.behaviour.account_id
        return f"arn:aws:kinesis:{region}:{account}:stream/{stream}"

    @abstractmethod
    async def let_pass(self, seconds: int = 1) -> None:
        """Move the time of the service."""

    @abstractmethod
    async def finish(self, work: Awaitable[_T]) -> _T:
        """Let time pass until ``work`` is done; return its result."""

    async def hold(self, stream: str, records: Sequence[Record]) -> None:
        """Let the one shard of a new stream hold what arrived in as many seconds."""
        self.server.create_stream(stream)
        for one in records:
            self.server.put_many(stream, [(one.partition_key, one.data)])
            await self.let_pass()


class HttpService(Service):
    """Over HTTP, through the clients of production."""

    def __init__(
        self, server: LocalKinesis, server_clock: ShiftedClock, clients: PublisherContext
    ) -> None:
        server.reset()
        server.behaviour = BEHAVIOUR
        self.server, self.clients = server, clients
        self._server_clock = server_clock

    async def let_pass(self, seconds: int = 1) -> None:
        self._server_clock.shift += timedelta(seconds=seconds)

    async def finish(self, work: Awaitable[_T]) -> _T:
        return await work

    async def hold(self, stream: str, records: Sequence[Record]) -> None:
        # What is read must not have arrived in the future.
        self._server_clock.shift = -timedelta(seconds=len(records))
        await super().hold(stream, records)


class InProcessService(Service):
    """In this process, on a clock that moves only when it is told to."""

    clock: ManualClock

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = LocalKinesis(LIMITS, self.clock, BEHAVIOUR)
        self.clients = publisher_context(
            self.server.data_plane(), control_plane=self.server.control_plane(), clock=self.clock
        )

    async def let_pass(self, seconds: int = 1) -> None:
        await self.clock.advance(seconds)

    async def finish(self, work: Awaitable[_T]) -> _T:
        return await finish(work, self.clock)


class ServiceSubject(FactorySubject):
    """One of our factories over a local service.

    Args:
        publisher: which factory: the value of ``stream.recordpublisher``.
        service: no limits.
    """

    can_hold_open = True
    can_be_interrupted = True
    can_be_throttled = True

    def __init__(self, publisher: str, service: Service) -> None:
        self.name = publisher
        self.factory_class = _FACTORIES[publisher]  # type: ignore[misc]
        self.clock = service.clock
        self._service = service
        self._server = service.server
        self._held = 0

    @property
    def properties(self) -> Mapping[str, str]:
        return {**self._server.properties("orders"), **ROLE[self.name]}

    @property
    def bad_properties(self) -> Sequence[Mapping[str, str]]:
        return [{**self.properties, **_BAD[self.name]}]

    @property
    def context(self) -> PublisherContext:
        return self._service.clients

    async def hold(self, records: Sequence[Record], *, is_open: bool = False) -> HeldShard:
        stream, self._held = f"orders-{self._held}", self._held + 1
        await self._service.hold(stream, records)
        shard = Shard(stream_arn=self._service.arn_of(stream), shard_id="shardId-000000000000")
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
