"""A polling publisher with a fake service, and the numbers that most tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from kinesis_publishers import PublisherContext, StartingPosition
from kinesis_publishers.config import PollingConfig
from kinesis_publishers.publishers.polling import (
    PollingRecordPublisher,
    PollingRecordPublisherFactory,
)
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import FakeDataPlane, ShardBehaviour, finish, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from kinesis_publishers import Event, RecordBatchConsumer, RunResult

__all__ = ["POLICY", "CONFIG", "Polling", "polling_factory"]

POLICY = RetryPolicy(max_retries=3, base_seconds=0.3, max_seconds=1.0, exponent=1.5)
CONFIG = PollingConfig(
    max_records=10_000,
    interval_seconds=0.2,
    adaptive_reads=False,
    get_records_retry=POLICY,
    get_iterator_retry=POLICY,
)


def polling_factory(plane: FakeDataPlane, clock: ManualClock) -> PollingRecordPublisherFactory:
    context = PublisherContext(data_plane=plane, clock=clock, events=lambda _: None)
    return PollingRecordPublisherFactory(CONFIG, context)


@frozen(kw_only=True)
class Polling:
    """A publisher that is run by hand."""

    plane: FakeDataPlane
    publisher: PollingRecordPublisher
    clock: ManualClock
    events: list[Event] = field(factory=list)

    @classmethod
    def of(
        cls,
        plane: FakeDataPlane | ShardBehaviour,
        *,
        start: StartingPosition | None = None,
        **config: object,
    ) -> Polling:
        if isinstance(plane, ShardBehaviour):
            plane = FakeDataPlane(plane)
        clock, events = ManualClock(), []
        publisher = PollingRecordPublisher(
            sample_shard(),
            start or StartingPosition.trim_horizon(),
            evolve(CONFIG, **config),
            PublisherContext(data_plane=plane, clock=clock, events=events.append),
        )
        return cls(plane=plane, publisher=publisher, clock=clock, events=events)

    async def run(self, consumer: RecordBatchConsumer, times: int = 1) -> list[RunResult]:
        """Run the publisher ``times`` times, moving the clock on while it sleeps."""

        async def repeated() -> list[RunResult]:
            return [await self.publisher.run(consumer) for _ in range(times)]

        return await finish(repeated(), self.clock, within=times * 30.0)

    async def run_within(self, consumer: RecordBatchConsumer, *, seconds: float) -> RunResult:
        """Run the publisher once, which may take so long."""
        return await finish(self.publisher.run(consumer), self.clock, within=seconds)

    def events_of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]
