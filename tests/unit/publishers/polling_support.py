"""A polling publisher with a fake service, and the numbers that most tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from kinesis_publishers import PublisherContext, RunResult, StartingPosition
from kinesis_publishers.config import PollingConfig, ShardLimits
from kinesis_publishers.publishers.polling import (
    PollingRecordPublisher,
    PollingRecordPublisherFactory,
)
from kinesis_publishers.publishers.quota import ShardQuota
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    FakeDataPlane,
    ShardBehaviour,
    finish,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from kinesis_publishers import Event
    from kinesis_publishers.errors import ServiceError
    from kinesis_publishers.model import Shard
    from kinesis_publishers.testing.fakes import RecordingConsumer

__all__ = ["CONFIG", "POLICY", "Polling", "failure", "polling_factory"]

POLICY = RetryPolicy(max_retries=3, base_seconds=0.3, max_seconds=1.0, exponent=1.5)
CONFIG = PollingConfig(
    max_records=10_000,
    interval_seconds=0.2,
    adaptive_reads=False,
    get_records_retry=POLICY,
    get_iterator_retry=POLICY,
)


def failure(kind: type[ServiceError], operation: str = "GetRecords") -> ServiceError:
    return kind(f"{operation} failed", operation=operation, code=kind.__name__)


def polling_factory(plane: FakeDataPlane, clock: ManualClock) -> PollingRecordPublisherFactory:
    context = PublisherContext(
        data_plane=plane, control_plane=FakeControlPlane(), clock=clock, events=lambda _: None
    )
    return PollingRecordPublisherFactory(CONFIG, context)


@frozen(kw_only=True)
class Polling:
    """A publisher that is run by hand."""

    plane: FakeDataPlane
    publisher: PollingRecordPublisher
    clock: ManualClock
    control: FakeControlPlane
    events: list[Event] = field(factory=list)

    @classmethod
    def of(
        cls,
        plane: FakeDataPlane | ShardBehaviour,
        *,
        start: StartingPosition | None = None,
        shard: Shard | None = None,
        control: FakeControlPlane | None = None,
        **config: object,
    ) -> Polling:
        if isinstance(plane, ShardBehaviour):
            plane = FakeDataPlane(plane)
        clock, events = ManualClock(), []
        control = control or FakeControlPlane()
        changed = evolve(CONFIG, **config)
        publisher = PollingRecordPublisher(
            shard or sample_shard(),
            start or StartingPosition.trim_horizon(),
            changed,
            PublisherContext(
                data_plane=plane,
                control_plane=control,
                clock=clock,
                events=events.append,
            ),
            ShardQuota(clock, is_kept=changed.limits is ShardLimits.AWS),
        )
        return cls(plane=plane, publisher=publisher, clock=clock, control=control, events=events)

    async def run(self, consumer: RecordingConsumer, times: int = 1) -> list[RunResult]:
        """Run the publisher until it has delivered ``times`` times; return what those runs did.

        The clock moves on while the publisher sleeps.
        """
        return await finish(self._deliver(consumer, times), self.clock, within=times * 30.0)

    async def run_within(self, consumer: RecordingConsumer, *, seconds: float) -> RunResult:
        """Run the publisher until it delivers, which may take so long."""
        (result,) = await finish(self._deliver(consumer, 1), self.clock, within=seconds)
        return result

    async def run_once(self, consumer: RecordingConsumer) -> RunResult:
        """Run the publisher once, whether it delivers or not."""
        return await finish(self.publisher.run(consumer), self.clock, within=30.0)

    async def _deliver(self, consumer: RecordingConsumer, times: int) -> list[RunResult]:
        results: list[RunResult] = []
        while len(results) < times:
            before = len(consumer.batches)
            result = await self.publisher.run(consumer)
            if len(consumer.batches) > before:
                results.append(result)
            else:
                assert result is RunResult.INCOMPLETE, "a run without a delivery ended the shard"
        return results

    def events_of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]
