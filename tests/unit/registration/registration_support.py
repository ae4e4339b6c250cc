"""A process that registers consumers with a fake service, and the numbers that most tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, frozen

from kinesis_publishers import PublisherContext
from kinesis_publishers.config import (
    DeregistrationPolicy,
    RegistrationConfig,
    RegistrationStrategy,
)
from kinesis_publishers.registration import create_registrar
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import (
    CONSUMER_NAME,
    STREAM_ARN,
    ConsumerCall,
    DeregisterConsumerCall,
    DescribeConsumerCall,
    FakeControlPlane,
    FakeDataPlane,
    ListConsumersCall,
    RegisterConsumerCall,
    StoredShard,
    finish,
)
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kinesis_publishers import Event
    from kinesis_publishers.abc import StreamConsumerRegistrar

__all__ = ["CONFIG", "SHORT_NAMES", "Application"]

_T = TypeVar("_T")


def policy(max_retries: int) -> RetryPolicy:
    return RetryPolicy(max_retries=max_retries, base_seconds=0.5, max_seconds=2.0, exponent=1.5)


CONFIG = RegistrationConfig(
    strategy=RegistrationStrategy.LAZY,
    consumer_name=CONSUMER_NAME,
    consumer_arns={},
    deregister=DeregistrationPolicy.CREATED,
    describe_retry=policy(5),
    list_retry=policy(2),
    register_retry=policy(3),
    register_timeout_seconds=60.0,
    deregister_retry=policy(4),
    deregister_timeout_seconds=60.0,
)
SHORT_NAMES: dict[type[ConsumerCall], str] = {
    DescribeConsumerCall: "describe",
    ListConsumersCall: "list",
    RegisterConsumerCall: "register",
    DeregisterConsumerCall: "deregister",
}


@frozen(kw_only=True)
class Application:
    """A process that reads, as far as its consumers are concerned."""

    plane: FakeControlPlane
    clock: ManualClock
    registrar: StreamConsumerRegistrar
    events: list[Event]

    @classmethod
    def of(
        cls,
        plane: FakeControlPlane,
        clock: ManualClock | None = None,
        **changes: Any,
    ) -> Application:
        """Return an application with ``changes`` to :data:`CONFIG`."""
        clock = clock or ManualClock()
        events: list[Event] = []
        context = PublisherContext(
            data_plane=FakeDataPlane(StoredShard()),
            control_plane=plane,
            clock=clock,
            events=events.append,
        )
        registrar = create_registrar(evolve(CONFIG, **changes), context)
        return cls(plane=plane, clock=clock, registrar=registrar, events=events)

    @property
    def calls(self) -> list[str]:
        """Every call about consumers, in order, in one word each."""
        return [SHORT_NAMES[type(call)] for call in self.plane.consumer_calls()]

    @property
    def arns(self) -> list[str]:
        """The consumers that the first stream has."""
        return self.plane.streams[0].consumers.arns

    async def arn(self, stream_arn: str = STREAM_ARN) -> str:
        """Return the consumer's ARN, with time running."""
        return await self.finish(self.registrar.consumer_arn(stream_arn))

    async def renew(self, consumer_arn: str, stream_arn: str = STREAM_ARN) -> str:
        """Return the ARN after ``consumer_arn`` was not found, with time running."""
        return await self.finish(self.registrar.renew(stream_arn, consumer_arn))

    async def close(self) -> None:
        """Leave, with time running."""
        await self.finish(self.registrar.close())

    async def finish(self, work: Awaitable[_T]) -> _T:
        """Run ``work`` to its end."""
        return await finish(work, self.clock)
