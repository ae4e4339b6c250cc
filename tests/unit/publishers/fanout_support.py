"""A fan-out publisher with a fake service, and the numbers that most tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from kinesis_publishers import PublisherContext, RunResult, StartingPosition
from kinesis_publishers.abc import StreamConsumerRegistrar
from kinesis_publishers.config import FanOutConfig, PollingConfig
from kinesis_publishers.publishers.fanout import (
    FanOutRecordPublisher,
    FanOutRecordPublisherFactory,
)
from kinesis_publishers.publishers.fanout.recovery import SubscriptionRecovery
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import (
    STREAM_ARN,
    FakeControlPlane,
    FakeDataPlane,
    FakeStream,
    finish,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers import Event
    from kinesis_publishers.testing.fakes import RecordingConsumer

__all__ = [
    "CONFIG",
    "CONSUMER_ARN",
    "POLICY",
    "POLLING",
    "FanOut",
    "KnownConsumer",
    "fan_out_factory",
]

POLICY = RetryPolicy(max_retries=3, base_seconds=1.0, max_seconds=2.0, exponent=1.5)
CONFIG = FanOutConfig(
    subscribe_retry=POLICY, subscribe_timeout_seconds=60.0, space_timeout_seconds=30.0
)
#: What reads the rest of a shard that is not subscribed to.
POLLING = PollingConfig(
    max_records=10_000,
    interval_seconds=0.2,
    adaptive_reads=False,
    get_records_retry=POLICY,
    get_iterator_retry=POLICY,
)
CONSUMER_ARN = f"{STREAM_ARN}/consumer/reports:1700000000"


@define(eq=False)
class KnownConsumer(StreamConsumerRegistrar):
    """Knows one consumer of every stream.

    Attributes:
        arn: the consumer that is there now.
        renew_error: what asking for it after a failure raises.
        renewals: the consumers that were not found.
    """

    arn: str = CONSUMER_ARN
    renew_error: Exception | None = None
    renewals: list[str] = field(factory=list)
    prepared: list[str] = field(factory=list)
    is_closed: bool = False
    _used: str = field(default=CONSUMER_ARN, init=False)

    async def prepare(self, stream_arns: Sequence[str]) -> None:
        self.prepared.extend(stream_arns)

    async def consumer_arn(self, stream_arn: str) -> str:
        return self._used

    async def renew(self, stream_arn: str, consumer_arn: str) -> str:
        self.renewals.append(consumer_arn)
        if self.renew_error is not None:
            raise self.renew_error
        self._used = self.arn
        return self.arn

    async def close(self) -> None:
        self.is_closed = True


def fan_out_factory(
    plane: FakeDataPlane, clock: ManualClock, registrar: KnownConsumer | None = None
) -> FanOutRecordPublisherFactory:
    context = PublisherContext(
        data_plane=plane,
        control_plane=FakeControlPlane(FakeStream([sample_shard()])),
        clock=clock,
        events=lambda _: None,
    )
    return FanOutRecordPublisherFactory(CONFIG, registrar or KnownConsumer(), context)


@frozen(kw_only=True)
class FanOut:
    """A publisher that is run by hand."""

    plane: FakeDataPlane
    publisher: FanOutRecordPublisher
    clock: ManualClock
    registrar: KnownConsumer
    control_plane: FakeControlPlane
    events: list[Event]

    @classmethod
    def of(
        cls,
        plane: FakeDataPlane,
        *,
        start: StartingPosition | None = None,
        registrar: KnownConsumer | None = None,
        control_plane: FakeControlPlane | None = None,
        **config: object,
    ) -> FanOut:
        clock, registrar = ManualClock(), registrar or KnownConsumer()
        events: list[Event] = []
        control_plane = control_plane or FakeControlPlane(FakeStream([sample_shard()]))
        shard, changed = sample_shard(), evolve(CONFIG, **config)
        context = PublisherContext(
            data_plane=plane, control_plane=control_plane, clock=clock, events=events.append
        )
        publisher = FanOutRecordPublisher(
            shard,
            start or StartingPosition.trim_horizon(),
            changed,
            context,
            SubscriptionRecovery(shard, changed, registrar, context, {}),
        )
        return cls(
            plane=plane,
            publisher=publisher,
            clock=clock,
            registrar=registrar,
            control_plane=control_plane,
            events=events,
        )

    async def run(self, consumer: RecordingConsumer, *, within: float = 120.0) -> RunResult:
        """Run the publisher once; the clock moves on while it waits."""
        return await finish(self.publisher.run(consumer), self.clock, within=within)

    async def run_to_end(self, consumer: RecordingConsumer, *, within: float = 600.0) -> int:
        """Run the publisher until the shard has ended; return how many runs that took."""
        return await finish(self._run_to_end(consumer), self.clock, within=within)

    async def _run_to_end(self, consumer: RecordingConsumer) -> int:
        runs = 1
        while await self.publisher.run(consumer) is RunResult.INCOMPLETE:
            runs += 1
        return runs

    def events_of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def positions(self) -> list[StartingPosition]:
        """Where each SubscribeToShard began."""
        return [call.position for call in self.plane.subscribe_calls]
