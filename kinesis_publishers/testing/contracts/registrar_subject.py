"""Two fake streams, and the registrar that a contract tests on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from attrs import define, field

from kinesis_publishers.abc import PublisherContext, StreamConsumerRegistrar
from kinesis_publishers.testing.fakes.context import publisher_context
from kinesis_publishers.testing.fakes.control_plane import FakeControlPlane, FakeStream
from kinesis_publishers.testing.fakes.reading import finish
from kinesis_publishers.testing.fakes.registration import CONSUMER_NAME
from kinesis_publishers.testing.fakes.samples import STREAM_ARN
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MakeRegistrar", "RegistrarSubject"]

MakeRegistrar: TypeAlias = Callable[[PublisherContext, Mapping[str, str]], StreamConsumerRegistrar]
_T = TypeVar("_T")


def _two_streams() -> FakeControlPlane:
    return FakeControlPlane(FakeStream(), FakeStream(arn=f"{STREAM_ARN}-2"))


@define(eq=False)
class RegistrarSubject:
    """How a contract gets at a registrar: the value of its fixture.

    Attributes:
        make: makes the registrar, from its context and the consumers that are there already: their
            ARNs, by the ARN of the stream.
        consumer_name: the name that the registrar gives to its consumers.
        registers: whether it registers consumers. One that does not finds them registered.
        control_plane: the service: two streams.
        clock: what the registrar sleeps on.
    """

    make: MakeRegistrar
    consumer_name: str = field(default=CONSUMER_NAME, kw_only=True)
    registers: bool = field(default=True, kw_only=True)
    control_plane: FakeControlPlane = field(factory=_two_streams, init=False)
    clock: ManualClock = field(factory=ManualClock, init=False)

    @property
    def stream_arns(self) -> Sequence[str]:
        """The two streams."""
        return [stream.arn for stream in self.control_plane.streams]

    def registrar(self) -> StreamConsumerRegistrar:
        """Return a new registrar."""
        if not self.registers:
            for stream_arn in self.stream_arns:
                if not self.consumers(stream_arn):
                    self.add_consumer(stream_arn)
        existing = {arn: self.consumers(arn)[0] for arn in self.stream_arns if self.consumers(arn)}
        context = publisher_context(control_plane=self.control_plane, clock=self.clock)
        return self.make(context, existing)

    def stream(self, stream_arn: str) -> FakeStream:
        """Return one of the two streams."""
        return next(one for one in self.control_plane.streams if one.arn == stream_arn)

    def consumers(self, stream_arn: str) -> list[str]:
        """Return the consumers of a stream that are not being removed."""
        listed = self.stream(stream_arn).consumers.list()
        return [one.arn for one in listed if one.status != "DELETING"]

    def status_of(self, consumer_arn: str) -> str:
        """Return the status of a consumer, ``gone`` if there is none."""
        listed = (one for stream in self.control_plane.streams for one in stream.consumers.list())
        return next((one.status for one in listed if one.arn == consumer_arn), "gone")

    def add_consumer(self, stream_arn: str) -> str:
        """Let somebody else have registered the consumer; return its ARN."""
        return self.stream(stream_arn).consumers.add(stream_arn, self.consumer_name)

    def lose_consumers(self, stream_arn: str) -> None:
        """Let somebody else have removed the consumers of a stream, long ago."""
        consumers = self.stream(stream_arn).consumers
        for one in consumers.list():
            consumers.remove(one.name)

    async def finish(self, work: Awaitable[_T]) -> _T:
        """Run ``work`` to its end while the clock moves on; return its result."""
        return await finish(work, self.clock)
