"""A process that registers consumers with a local service, and what most tests use of both."""

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
from kinesis_publishers.testing.fakes import STREAM_ARN, finish
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kinesis_publishers import Event
    from kinesis_publishers.abc import ControlPlane, StreamConsumerRegistrar

__all__ = ["CONFIG", "CONSUMER_NAME", "Application", "billed", "denied", "leaving", "orders"]

_T = TypeVar("_T")


def policy(max_retries: int) -> RetryPolicy:
    return RetryPolicy(max_retries=max_retries, base_seconds=0.5, max_seconds=2.0, exponent=1.5)


CONSUMER_NAME = "billing"
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
LIMITS = evolve(Limits.off(), consumers_per_stream=20)
SHORT_NAMES = {
    "DescribeStreamConsumer": "describe",
    "ListStreamConsumers": "list",
    "RegisterStreamConsumer": "register",
    "DeregisterStreamConsumer": "deregister",
}


def orders(*, streams: tuple[str, ...] = ("orders",), **behaviour: Any) -> LocalKinesis:
    """Return a service with streams that have no consumers."""
    behaves = Behaviour(region="eu-west-1", **behaviour)
    server = LocalKinesis(LIMITS, ManualClock(), behaves)
    for stream in streams:
        server.create_stream(stream)
    return server


def billed(**behaviour: Any) -> LocalKinesis:
    """Return a service whose stream has the consumer, CREATING for as long as it is said to be."""
    server = orders(**behaviour)
    server.register_consumer("orders", CONSUMER_NAME)
    return server


def leaving(seconds: float) -> LocalKinesis:
    """Return a service whose stream had the consumer, which is DELETING for so long."""
    server = billed(consumer_deleting_seconds=seconds)
    server.deregister_consumer("orders", CONSUMER_NAME)
    return server


def denied(operation: str, **more: Any) -> Fault:
    return Fault(operation, "error", code="AccessDeniedException", **more)


@frozen(kw_only=True)
class Application:
    """A process that reads, as far as its consumers are concerned."""

    server: LocalKinesis
    plane: ControlPlane
    clock: ManualClock
    registrar: StreamConsumerRegistrar
    events: list[Event]

    @classmethod
    def of(
        cls, server: LocalKinesis, plane: ControlPlane | None = None, **changes: Any
    ) -> Application:
        """Return an application with ``changes`` to :data:`CONFIG`."""
        clock, plane = server.clock, plane or server.control_plane()
        assert isinstance(clock, ManualClock)
        events: list[Event] = []
        context = PublisherContext(
            data_plane=server.data_plane(), control_plane=plane, clock=clock, events=events.append
        )
        registrar = create_registrar(evolve(CONFIG, **changes), context)
        return cls(server=server, plane=plane, clock=clock, registrar=registrar, events=events)

    @property
    def calls(self) -> list[str]:
        """Every call about consumers, in order, in one word each."""
        return [SHORT_NAMES[call.operation] for call in self.server.calls()]

    @property
    def arns(self) -> list[str]:
        """The consumers that the first stream has."""
        return list(self.server.consumer_arns("orders").values())

    def add(self) -> str:
        """Let another process register the consumer; return its ARN."""
        return self.server.register_consumer("orders", CONSUMER_NAME)

    def lose(self) -> None:
        """Let another process remove the consumer."""
        self.server.deregister_consumer("orders", CONSUMER_NAME)

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
