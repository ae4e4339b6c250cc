"""The contract of every :class:`~kinesis_publishers.abc.StreamConsumerRegistrar`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import pytest
from attrs import define, evolve, field

from kinesis_publishers.abc import PublisherContext, StreamConsumerRegistrar
from kinesis_publishers.errors import AccessDeniedError, ConsumerNotFoundError
from kinesis_publishers.model.sources import stream_name_of
from kinesis_publishers.testing import Behaviour, Fault, Limits, LocalKinesis
from kinesis_publishers.testing.contracts.subjects import (
    assert_can_be_cancelled,
    closes_subject,
    missing_fixture,
    no_task_is_left,
    outcome_of,
    require,
)
from kinesis_publishers.testing.fakes.planes import publisher_context
from kinesis_publishers.testing.fakes.recording import finish
from kinesis_publishers.testing.manual_clock import ManualClock

MakeRegistrar: TypeAlias = Callable[[PublisherContext, Mapping[str, str]], StreamConsumerRegistrar]
_T = TypeVar("_T")


_STREAMS = ("orders", "orders-2")
_BEHAVIOUR = Behaviour(region="eu-west-1", consumer_creating_seconds=1)


@define(eq=False)
class RegistrarSubject:
    """The registrar under test: the value of the fixture.

    Attributes:
        make: makes the registrar, from its context and the consumers that are there already: their
            ARNs, by the ARN of the stream.
        consumer_name: the name that the registrar gives to its consumers.
        registers: whether it registers consumers. One that does not finds them registered.
        clock: the clock of the registrar.
        server: the service, in this process: two streams.
    """

    make: MakeRegistrar
    consumer_name: str = field(default="billing", kw_only=True)
    registers: bool = field(default=True, kw_only=True)
    clock: ManualClock = field(factory=ManualClock, init=False)
    server: LocalKinesis = field(init=False)
    _in_use: list[StreamConsumerRegistrar] = field(factory=list, init=False)

    @server.default
    def _two_streams(self) -> LocalKinesis:
        limits = evolve(Limits.off(), consumers_per_stream=20)
        server = LocalKinesis(limits, self.clock, _BEHAVIOUR)
        for stream in _STREAMS:
            server.create_stream(stream)
        return server

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
        existing = {one: arn for one in self.stream_arns for arn in self.consumers(one)}
        context = publisher_context(
            self.server.data_plane(), control_plane=self.server.control_plane(), clock=self.clock
        )
        self._in_use.append(self.make(context, existing))
        return self._in_use[-1]

    async def close(self) -> None:
        """Close every registrar; the contract does so at the end of each test."""
        for registrar in self._in_use:
            await registrar.close()

    def consumers(self, stream_arn: str) -> dict[str, str]:
        """Return the status of each consumer of a stream that is not being removed, by its ARN."""
        stream = stream_name_of(stream_arn)
        by_name, arns = self.server.consumers(stream), self.server.consumer_arns(stream)
        return {arn: by_name[name] for name, arn in arns.items() if by_name[name] != "DELETING"}

    def add_consumer(self, stream_arn: str) -> str:
        """Let another process have registered the consumer, long ago; return its ARN."""
        behaviour = self.server.behaviour
        self.let_creating_take(0)
        arn = self.server.register_consumer(stream_name_of(stream_arn), self.consumer_name)
        self.server.behaviour = behaviour
        return arn

    def lose_consumers(self, stream_arn: str) -> None:
        """Let another process have removed the consumers of a stream, long ago."""
        stream = stream_name_of(stream_arn)
        for name in self.server.consumers(stream):
            self.server.deregister_consumer(stream, name)

    def let_creating_take(self, seconds: float) -> None:
        """Let consumers that are registered from now on be CREATING for ``seconds``."""
        self.server.behaviour = evolve(_BEHAVIOUR, consumer_creating_seconds=seconds)

    async def finish(self, work: Awaitable[_T]) -> _T:
        """Run ``work`` to its end while the clock moves on; return its result."""
        return await finish(work, self.clock)


# More than any registrar will wait for.
_NEVER_SECONDS = 10**9


@closes_subject
class StreamConsumerRegistrarContract:
    """The duties of every registration strategy. Override the fixture ``subject``."""

    subject = missing_fixture("RegistrarSubject")

    @pytest.mark.parametrize("is_prepared", [True, False])
    async def test_each_stream_has_an_active_consumer(
        self, subject: RegistrarSubject, is_prepared: bool
    ) -> None:
        registrar = subject.registrar()
        if is_prepared:
            await subject.finish(registrar.prepare(subject.stream_arns))
        for stream_arn in subject.stream_arns:
            arn = await subject.finish(registrar.consumer_arn(stream_arn))
            assert arn.startswith(f"{stream_arn}/consumer/"), (
                f"consumer_arn({stream_arn!r}) returned {arn!r}, a consumer of another stream: its "
                "ARN decides which stream SubscribeToShard reads"
            )
            status = subject.consumers(stream_arn).get(arn, "gone")
            assert status == "ACTIVE", (
                f"consumer_arn() returned {arn} while it was {status}: a subscription with it "
                "would be refused; wait until it is ACTIVE"
            )

    async def test_the_shards_of_a_stream_share_a_consumer(self, subject: RegistrarSubject) -> None:
        registrar, (stream_arn, _) = subject.registrar(), subject.stream_arns
        asked = (registrar.consumer_arn(stream_arn) for _ in range(10))
        arns = set(await subject.finish(asyncio.gather(*asked)))
        assert len(arns) == 1, f"ten shards that asked at once were given {sorted(arns)}"
        again = await subject.finish(registrar.consumer_arn(stream_arn))
        assert {again} == arns, f"the eleventh was given {again} instead of {arns}"
        assert len(subject.consumers(stream_arn)) == 1, (
            f"the stream has the consumers {list(subject.consumers(stream_arn))}: one is enough "
            "for all shards, and a stream takes 20"
        )

    async def test_without_registering_no_call_is_made(self, subject: RegistrarSubject) -> None:
        if subject.registers:
            pytest.skip("this registrar registers consumers")
        registrar = subject.registrar()
        await subject.finish(registrar.prepare(subject.stream_arns))
        for stream_arn in subject.stream_arns:
            await subject.finish(registrar.consumer_arn(stream_arn))
        await subject.finish(registrar.close())
        assert subject.server.calls() == [], (
            f"calls were made: {subject.server.calls()}; an application that may not register may "
            "not be allowed to describe either"
        )

    async def test_a_consumer_that_is_still_there_is_kept(self, subject: RegistrarSubject) -> None:
        require(subject, "registers")
        registrar, stream_arn, arn = await _registered(subject)
        renewed = await subject.finish(registrar.renew(stream_arn, arn))
        assert renewed == arn, (
            f"renew() returned {renewed} though {arn} is there: the same ARN says that something "
            "else was not found"
        )

    async def test_a_consumer_that_is_gone_is_replaced(self, subject: RegistrarSubject) -> None:
        require(subject, "registers")
        registrar, stream_arn, arn = await _registered(subject)
        subject.lose_consumers(stream_arn)
        renewed = await subject.finish(registrar.renew(stream_arn, arn))
        assert renewed != arn, f"renew() returned {arn}, which is gone: register it again"
        status = subject.consumers(stream_arn).get(renewed)
        assert status == "ACTIVE", f"renew() returned {renewed}, not ACTIVE"
        later = await subject.finish(registrar.consumer_arn(stream_arn))
        assert later == renewed, f"after renew() consumer_arn() still returns {later}"

    async def test_a_lost_consumer_of_others_is_an_error(self, subject: RegistrarSubject) -> None:
        if subject.registers:
            pytest.skip("this registrar registers the consumer again")
        registrar, stream_arn, arn = await _registered(subject)
        subject.lose_consumers(stream_arn)
        error = await outcome_of(subject.finish(registrar.renew(stream_arn, arn)))
        assert isinstance(error, ConsumerNotFoundError), (
            f"renew() of a consumer that is gone led to {error!r}: raise ConsumerNotFoundError, or "
            "reading waits for ever"
        )

    async def test_it_removes_only_what_it_has_registered(self, subject: RegistrarSubject) -> None:
        subject.add_consumer(subject.stream_arns[0])
        registrar = subject.registrar()
        theirs = [arn for one in subject.stream_arns for arn in subject.consumers(one)]
        for stream_arn in subject.stream_arns:
            await subject.finish(registrar.consumer_arn(stream_arn))
        await subject.finish(registrar.close())
        left = [arn for one in subject.stream_arns for arn in subject.consumers(one)]
        assert left == theirs, (
            f"close() left {left} instead of {theirs}: remove what this application has "
            "registered, and never a consumer that it did not create"
        )

    async def test_closing_never_fails(self, subject: RegistrarSubject) -> None:
        registrar, _, _ = await _registered(subject)
        subject.server.add_fault(_refusal("DeregisterStreamConsumer"))
        with no_task_is_left():
            error = await outcome_of(subject.finish(registrar.close()))
        assert error is None, (
            f"close() raised {error!r}: log how to remove the consumer by hand instead"
        )

    async def test_it_can_be_closed_unused_and_twice(self, subject: RegistrarSubject) -> None:
        registrar = subject.registrar()
        for times in ("once, unused", "twice"):
            error = await outcome_of(subject.finish(registrar.close()))
            assert error is None, f"close() raised {error!r} when it was called {times}"
        assert subject.server.calls() == [], "close() made calls though nothing was registered"

    async def test_all_streams_are_prepared_or_none(self, subject: RegistrarSubject) -> None:
        require(subject, "registers")
        registrar, (first, second) = subject.registrar(), subject.stream_arns
        full = Fault(
            "RegisterStreamConsumer", "throttle", stream=stream_name_of(second), times=None
        )
        subject.server.add_fault(full)
        error = await outcome_of(subject.finish(registrar.prepare(subject.stream_arns)))
        if error is None:
            pytest.skip("prepare() registers nothing")
        left = list(subject.consumers(first))
        assert left == [], (
            f"prepare() failed for {second} and left {left}: remove again what this call has "
            "registered"
        )

    @pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "RegisterStreamConsumer"])
    async def test_a_refusal_is_passed_on(self, subject: RegistrarSubject, operation: str) -> None:
        require(subject, "registers")
        registrar, (stream_arn, _) = subject.registrar(), subject.stream_arns
        subject.server.add_fault(_refusal(operation))
        error = await outcome_of(subject.finish(registrar.consumer_arn(stream_arn)))
        assert isinstance(error, AccessDeniedError), (
            f"AWS denied access, and consumer_arn() led to {error!r}: waiting does not help, "
            "and the error says which permission is missing"
        )

    async def test_it_can_be_cancelled_while_it_waits(self, subject: RegistrarSubject) -> None:
        require(subject, "registers")
        registrar, (stream_arn, _) = subject.registrar(), subject.stream_arns
        subject.let_creating_take(_NEVER_SECONDS)
        await assert_can_be_cancelled(
            registrar.consumer_arn(stream_arn),
            lambda: len(subject.consumers(stream_arn)) > 0,
            what="while the consumer is being created",
            clock=subject.clock,
        )
        error = await outcome_of(subject.finish(registrar.close()))
        assert error is None, f"close() after a cancellation raised {error!r}"


async def _registered(subject: RegistrarSubject) -> tuple[StreamConsumerRegistrar, str, str]:
    """Return a new registrar, the ARN of a stream, and that of the stream's consumer."""
    registrar, stream_arn = subject.registrar(), subject.stream_arns[0]
    return registrar, stream_arn, await subject.finish(registrar.consumer_arn(stream_arn))


def _refusal(operation: str) -> Fault:
    return Fault(operation, "error", code="AccessDeniedException", times=None)
