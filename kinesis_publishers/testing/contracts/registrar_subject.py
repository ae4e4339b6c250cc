"""Two local streams, and the registrar that a contract tests on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from attrs import define, evolve, field

from kinesis_publishers.abc import PublisherContext, StreamConsumerRegistrar
from kinesis_publishers.testing.fakes.planes import publisher_context
from kinesis_publishers.testing.fakes.reading import finish
from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MakeRegistrar", "RegistrarSubject"]

MakeRegistrar: TypeAlias = Callable[[PublisherContext, Mapping[str, str]], StreamConsumerRegistrar]
_T = TypeVar("_T")


_STREAMS = ("orders", "orders-2")
_BEHAVIOUR = Behaviour(region="eu-west-1", consumer_creating_seconds=1)


def _two_streams(clock: ManualClock) -> LocalKinesis:
    limits = evolve(Limits.off(), consumers_per_stream=20)
    server = LocalKinesis(limits, clock, _BEHAVIOUR)
    for stream in _STREAMS:
        server.create_stream(stream)
    return server


@define(eq=False)
class RegistrarSubject:
    """How a contract gets at a registrar: the value of its fixture.

    Attributes:
        make: makes the registrar, from its context and the consumers that are there already: their
            ARNs, by the ARN of the stream.
        consumer_name: the name that the registrar gives to its consumers.
        registers: whether it registers consumers. One that does not finds them registered.
        clock: what the registrar sleeps on.
        server: the service, in this process: two streams.
    """

    make: MakeRegistrar
    consumer_name: str = field(default="billing", kw_only=True)
    registers: bool = field(default=True, kw_only=True)
    clock: ManualClock = field(factory=ManualClock, init=False)
    server: LocalKinesis = field(init=False)

    @server.default
    def _server(self) -> LocalKinesis:
        return _two_streams(self.clock)

    @property
    def stream_arns(self) -> Sequence[str]:
        """The two streams."""
        region, account = _BEHAVIOUR.region, _BEHAVIOUR.account_id
        return [f"arn:aws:kinesis:{region}:{account}:stream/{name}" for name in _STREAMS]

    def registrar(self) -> StreamConsumerRegistrar:
        """Return a new registrar."""
        if not self.registers:
            for stream_arn in self.stream_arns:
                if not self.consumers(stream_arn):
                    self.add_consumer(stream_arn)
        existing = {arn: self.consumers(arn)[0] for arn in self.stream_arns if self.consumers(arn)}
        context = publisher_context(
            self.server.data_plane(), control_plane=self.server.control_plane(), clock=self.clock
        )
        return self.make(context, existing)

    def consumers(self, stream_arn: str) -> list[str]:
        """Return the consumers of a stream that are not being removed."""
        stream = _name_of(stream_arn)
        status = self.server.consumers(stream)
        arns = self.server.consumer_arns(stream)
        return [arn for name, arn in arns.items() if status[name] != "DELETING"]

    def status_of(self, consumer_arn: str) -> str:
        """Return the status of a consumer, ``gone`` if there is none."""
        for stream in _STREAMS:
            for name, arn in self.server.consumer_arns(stream).items():
                if arn == consumer_arn:
                    return self.server.consumers(stream)[name]
        return "gone"

    def add_consumer(self, stream_arn: str) -> str:
        """Let another process have registered the consumer, long ago; return its ARN."""
        behaviour = self.server.behaviour
        self.let_creating_take(0)
        arn = self.server.register_consumer(_name_of(stream_arn), self.consumer_name)
        self.server.behaviour = behaviour
        return arn

    def lose_consumers(self, stream_arn: str) -> None:
        """Let another process have removed the consumers of a stream, long ago."""
        stream = _name_of(stream_arn)
        for name in self.server.consumers(stream):
            self.server.deregister_consumer(stream, name)

    def let_creating_take(self, seconds: float) -> None:
        """Let a consumer that is registered from now on be CREATING for so long."""
        self.server.behaviour = evolve(_BEHAVIOUR, consumer_creating_seconds=seconds)

    async def finish(self, work: Awaitable[_T]) -> _T:
        """Run ``work`` to its end while the clock moves on; return its result."""
        return await finish(work, self.clock)


def _name_of(stream_arn: str) -> str:
    return stream_arn.rpartition("/")[2]
