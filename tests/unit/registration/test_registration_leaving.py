"""Tear-down: only what this application has registered is removed, once, by the last one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.config import DeregistrationPolicy
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    InternalServiceError,
    LimitExceededError,
    ResourceInUseError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.events import ConsumerDeregistered, ConsumerRegistered
from kinesis_publishers.testing.fakes import (
    CONSUMER_NAME,
    STREAM_ARN,
    DeregisterConsumerCall,
    FakeControlPlane,
    FakeStream,
    RegisterConsumerCall,
    active_consumer,
    consumer_not_found,
)
from tests.unit.registration.registration_support import CONFIG, Application

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.model import StreamConsumer


async def test_a_consumer_that_was_registered_is_removed_once() -> None:
    application = Application.of(consumer_not_found())
    arn = await application.arn()
    await application.close()
    await application.close()
    assert application.arns == []
    assert application.calls.count("deregister") == 1
    assert application.events[-1] == ConsumerDeregistered(consumer_arn=arn)
    assert len(application.events) == 3


async def test_a_consumer_of_somebody_else_is_left_alone() -> None:
    application = Application.of(active_consumer())
    arn = await application.arn()
    await application.close()
    assert application.arns == [arn]
    assert "deregister" not in application.calls


async def test_with_never_nothing_is_removed() -> None:
    application = Application.of(consumer_not_found(), deregister=DeregistrationPolicy.NEVER)
    arn = await application.arn()
    await application.close()
    # Nor by another process that would remove what was recorded.
    other = Application.of(application.plane)
    await other.arn()
    await other.close()
    assert application.arns == [arn]
    assert "deregister" not in application.calls


@pytest.mark.parametrize("policy", list(DeregistrationPolicy))
async def test_those_who_share_the_consumer_keep_it_alive(policy: DeregistrationPolicy) -> None:
    plane = consumer_not_found()
    creator, other = Application.of(plane), Application.of(plane, deregister=policy)
    arn = await creator.arn()
    assert await other.arn() == arn
    await creator.close()
    assert creator.arns == [arn]
    await other.close()
    assert creator.arns == ([] if policy is DeregistrationPolicy.CREATED else [arn])


async def test_only_the_registration_that_was_recorded_is_removed() -> None:
    application = Application.of(consumer_not_found())
    mine = await application.arn()
    consumers = application.plane.streams[0].consumers
    consumers.remove(CONSUMER_NAME)
    theirs = consumers.add(STREAM_ARN, CONSUMER_NAME)
    await application.close()
    assert application.arns == [theirs]
    (call,) = application.plane.consumer_calls(DeregisterConsumerCall)
    assert call == DeregisterConsumerCall(consumer_arn=mine)


async def test_one_that_is_gone_already_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    application = Application.of(consumer_not_found())
    await application.arn()
    application.plane.streams[0].consumers.remove(CONSUMER_NAME)
    await application.close()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_nothing_is_left_of_streams_that_were_never_read() -> None:
    application = Application.of(consumer_not_found())
    await application.close()
    assert application.calls == []


@pytest.mark.parametrize(
    "error",
    [
        AccessDeniedError("Allow kinesis:DeregisterStreamConsumer in the IAM policy."),
        InternalServiceError("5xx"),
        ConnectionFailedError("no network"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_is_logged_with_the_command_and_not_raised(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application.of(consumer_not_found())
    arn = await application.arn()
    application.plane.consumer_errors[DeregisterConsumerCall] = [error] * 100
    await application.close()
    command = f"aws kinesis deregister-stream-consumer --region eu-west-1 --consumer-arn {arn}"
    assert command in caplog.text
    assert str(error) in caplog.text
    # The next one who leaves tries again.
    application.plane.consumer_errors.clear()
    other = Application.of(application.plane)
    await other.arn()
    await other.close()
    assert application.arns == []


async def test_a_removal_that_keeps_failing_is_given_up() -> None:
    application = Application.of(consumer_not_found())
    await application.arn()
    application.plane.consumer_errors[DeregisterConsumerCall] = [InternalServiceError("5xx")] * 100
    await application.close()
    assert application.calls.count("deregister") == 1 + CONFIG.deregister_retry.max_retries


async def test_a_throttled_removal_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    application = Application.of(consumer_not_found())
    await application.arn()
    application.plane.consumer_errors[DeregisterConsumerCall] = [
        LimitExceededError("5 calls/s"),
        ThroughputExceededError("later"),
    ]
    await application.close()
    assert application.arns == []
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_deleting_is_as_good_as_gone() -> None:
    plane = consumer_not_found()
    plane.streams[0].consumers.deleting_descriptions = 1000
    application = Application.of(plane)
    await application.arn()
    before = len(application.calls)
    await application.close()
    assert application.calls[before:] == ["deregister", "describe"]


class _CovetedControlPlane(FakeControlPlane):
    """Somebody else registers the consumer as soon as it is removed."""

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        consumers = self.streams[0].consumers
        consumers.remove(CONSUMER_NAME)
        consumers.add(STREAM_ARN, CONSUMER_NAME)


async def test_one_that_somebody_registers_at_once_is_not_waited_for() -> None:
    application = Application.of(_CovetedControlPlane(FakeStream()))
    arn = await application.arn()
    await application.registrar.close()  # not finish(): nothing may wait for the clock
    assert application.arns != [arn]
    assert application.events[-1] == ConsumerDeregistered(consumer_arn=arn)
    assert len(application.events) == 3


class _DeafControlPlane(FakeControlPlane):
    """Accepts to remove a consumer, and shows it as ACTIVE for ever."""

    async def deregister_stream_consumer(self, consumer_arn: str) -> None:
        pass


async def test_one_that_does_not_go_is_logged_after_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = Application.of(_DeafControlPlane(FakeStream()))
    arn = await application.arn()
    began_at = application.clock.monotonic()
    await application.close()
    assert 60 <= application.clock.monotonic() - began_at < 62
    assert "still there after 60 s" in caplog.text
    assert f"--consumer-arn {arn}" in caplog.text


async def test_several_streams_are_left_together_although_one_fails() -> None:
    second = f"{STREAM_ARN}-2"
    plane = FakeControlPlane(FakeStream(), FakeStream(arn=second))
    application = Application.of(plane)
    await application.arn()
    await application.arn(second)
    plane.consumer_errors[DeregisterConsumerCall] = [AccessDeniedError("no")]
    await application.close()
    assert sorted(len(one.consumers.arns) for one in plane.streams) == [0, 1]


class _SlowControlPlane(FakeControlPlane):
    """Answers a registration, and what is asked about a removal, only when it is told to."""

    def __init__(self, stream: FakeStream) -> None:
        super().__init__(stream)
        self.has_registered = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> StreamConsumer:
        consumer = await super().register_stream_consumer(stream_arn, consumer_name)
        self.has_registered.set()
        await self.may_answer.wait()
        return consumer


async def test_a_registration_that_is_cancelled_while_it_is_made_is_removed_too() -> None:
    plane = _SlowControlPlane(FakeStream())
    application = Application.of(plane)
    asking = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    while not plane.has_registered.is_set():
        await application.clock.advance(0.1)
    asking.cancel()
    await application.clock.settle()
    assert not asking.done()
    plane.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [type(one) for one in application.events] == [ConsumerRegistered]
    await application.close()
    assert application.arns == []


@pytest.mark.parametrize(
    ("failure", "policy", "is_said"),
    [
        (ConnectionFailedError("reset"), DeregistrationPolicy.CREATED, True),
        (InternalServiceError("500"), DeregistrationPolicy.CREATED, True),
        (ConnectionFailedError("reset"), DeregistrationPolicy.NEVER, False),
        (ResourceInUseError("exists"), DeregistrationPolicy.CREATED, False),
    ],
)
async def test_one_that_may_be_ours_is_left_alone_and_named(
    caplog: pytest.LogCaptureFixture,
    failure: ServiceError,
    policy: DeregistrationPolicy,
    is_said: bool,
) -> None:
    plane = consumer_not_found()
    application = Application.of(plane, deregister=policy)
    plane.consumer_errors[RegisterConsumerCall] = [failure]
    waiting = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    await application.clock.wait_for_sleepers()
    await application.clock.advance(application.clock.sleeps[-1])
    unknown = plane.streams[0].consumers.add(STREAM_ARN, CONSUMER_NAME)
    assert await application.finish(waiting) == unknown
    assert (f"--consumer-arn {unknown}" in caplog.text) is is_said
    await application.close()
    assert application.arns == [unknown]


async def test_one_that_is_registered_at_the_second_try_is_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plane = consumer_not_found()
    application = Application.of(plane)
    plane.consumer_errors[RegisterConsumerCall] = [ConnectionFailedError("reset")]
    await application.arn()
    assert caplog.text == ""
    await application.close()
    assert application.arns == []


async def test_cancelling_waits_for_the_answer_to_a_registration_but_not_for_ever() -> None:
    plane = _SlowControlPlane(FakeStream())
    application = Application.of(plane)
    asking = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    while not plane.has_registered.is_set():
        await application.clock.advance(0.1)
    asking.cancel()
    await application.clock.advance(6)
    assert asking.cancelled()


async def test_without_leases_consumers_are_used_and_never_removed(
    runtime_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (runtime_directory / "kinesis-publishers").write_text("in the way")
    application = Application.of(consumer_not_found())
    arn = await application.arn()
    assert f"--consumer-arn {arn}" in caplog.text
    application.plane.streams[0].consumers.remove(CONSUMER_NAME)
    renewed = await application.renew(arn)
    await application.close()
    assert application.arns == [renewed]
