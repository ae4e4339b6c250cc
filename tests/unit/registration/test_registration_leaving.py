"""Tear-down: only what this application has registered is removed, once, by the last one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.config import DeregistrationPolicy, Properties, RegistrationConfig
from kinesis_publishers.events import ConsumerDeregistered, ConsumerRegistered
from kinesis_publishers.testing.fakes import STREAM_ARN
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.registration.registration_support import (
    CONFIG,
    Application,
    denied,
    orders,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers.model import StreamConsumer


async def test_a_consumer_that_was_registered_is_removed_once() -> None:
    application = Application.of(orders())
    arn = await application.arn()
    await application.close()
    await application.close()
    assert application.arns == []
    assert application.calls.count("deregister") == 1
    assert application.events[-1] == ConsumerDeregistered(consumer_arn=arn)
    assert len(application.events) == 2


async def test_with_never_nothing_is_removed() -> None:
    application = Application.of(orders(), deregister=DeregistrationPolicy.NEVER)
    arn = await application.arn()
    await application.close()
    # Nor by another process that would remove what was recorded.
    other = Application.of(application.server)
    await other.arn()
    await other.close()
    assert application.arns == [arn]
    assert "deregister" not in application.calls


@pytest.mark.parametrize("policy", list(DeregistrationPolicy))
async def test_those_who_share_the_consumer_keep_it_alive(policy: DeregistrationPolicy) -> None:
    server = orders()
    creator, other = Application.of(server), Application.of(server, deregister=policy)
    arn = await creator.arn()
    assert await other.arn() == arn
    await creator.close()
    assert creator.arns == [arn]
    await other.close()
    assert creator.arns == ([] if policy is DeregistrationPolicy.CREATED else [arn])


async def test_only_the_registration_that_was_recorded_is_removed() -> None:
    application = Application.of(orders())
    mine = await application.arn()
    application.lose()
    theirs = application.add()
    await application.close()
    assert application.arns == [theirs]
    assert application.calls.count("deregister") == 1
    assert theirs != mine


async def test_one_that_is_gone_already_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    application = Application.of(orders())
    await application.arn()
    application.lose()
    await application.close()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("fault", "reason", "retries"),
    [
        ({"kind": "error", "code": "AccessDeniedException"}, "allow kinesis:DeregisterStream", 0),
        ({"kind": "internal_failure"}, "InternalFailure", CONFIG.deregister_retry.max_retries),
        ({"kind": "reset"}, "the connection broke", CONFIG.deregister_retry.max_retries),
    ],
    ids=["denied", "5xx", "no network"],
)
async def test_a_failure_is_logged_with_the_command_and_not_raised(
    fault: dict, reason: str, retries: int, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application.of(orders())
    arn = await application.arn()
    application.server.add_fault(Fault("DeregisterStreamConsumer", times=None, **fault))
    await application.close()
    command = f"aws kinesis deregister-stream-consumer --region eu-west-1 --consumer-arn {arn}"
    assert command in caplog.text
    assert reason in caplog.text
    assert application.calls.count("deregister") == 1 + retries
    # The next one who leaves tries again.
    application.server.clear_faults()
    other = Application.of(application.server)
    await other.arn()
    await other.close()
    assert application.arns == []


async def test_a_throttled_removal_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    application = Application.of(orders())
    await application.arn()
    for code in ("LimitExceededException", "ThrottlingException"):
        application.server.add_fault(Fault("DeregisterStreamConsumer", "error", code=code))
    await application.close()
    assert application.arns == []
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_deleting_is_as_good_as_gone() -> None:
    application = Application.of(orders(consumer_deleting_seconds=1000))
    await application.arn()
    before = len(application.calls)
    await application.close()
    assert application.calls[before:] == ["deregister", "describe"]


async def test_one_that_another_process_registers_at_once_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = Application.of(orders())
    arn = await application.arn()

    async def replace(consumer_arn: str) -> None:
        application.lose()
        application.add()

    monkeypatch.setattr(application.plane, "deregister_stream_consumer", replace)
    await application.registrar.close()  # not finish(): nothing may wait for the clock
    assert application.arns != [arn]
    assert application.events[-1] == ConsumerDeregistered(consumer_arn=arn)
    assert len(application.events) == 2


async def test_one_that_does_not_go_is_logged_after_the_timeout(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application.of(orders())
    arn = await application.arn()

    async def do_nothing(consumer_arn: str) -> None:
        """Accept the call, and leave the consumer ACTIVE."""

    monkeypatch.setattr(application.plane, "deregister_stream_consumer", do_nothing)
    began_at = application.clock.monotonic()
    await application.close()
    assert 60 <= application.clock.monotonic() - began_at < 62
    assert "still there after 60 s" in caplog.text
    assert f"--consumer-arn {arn}" in caplog.text


async def test_several_streams_are_left_together_although_one_fails() -> None:
    second = f"{STREAM_ARN}-2"
    server = orders(streams=("orders", "orders-2"))
    application = Application.of(server)
    await application.arn()
    await application.arn(second)
    server.add_fault(denied("DeregisterStreamConsumer"))
    await application.close()
    assert sorted(map(len, map(server.consumers, ("orders", "orders-2")))) == [0, 1]


async def begin_registering(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Future[str], asyncio.Event]:
    """Ask for the consumer; return once it is registered, but not answered before the event."""
    register, may_answer = application.plane.register_stream_consumer, asyncio.Event()

    async def register_slowly(stream_arn: str, consumer_name: str) -> StreamConsumer:
        consumer = await register(stream_arn, consumer_name)
        await may_answer.wait()
        return consumer

    monkeypatch.setattr(application.plane, "register_stream_consumer", register_slowly)
    asking = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    while not application.arns:
        await application.clock.advance(0.1)
    return asking, may_answer


async def test_a_registration_that_is_cancelled_while_it_is_made_is_removed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = Application.of(orders())
    asking, may_answer = await begin_registering(application, monkeypatch)
    asking.cancel()
    await application.clock.settle()
    assert not asking.done()
    may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [type(one) for one in application.events] == [ConsumerRegistered]
    await application.close()
    assert application.arns == []


@pytest.mark.parametrize(
    ("failure", "policy", "is_said"),
    [
        ({"kind": "reset"}, DeregistrationPolicy.CREATED, True),
        ({"kind": "internal_failure"}, DeregistrationPolicy.CREATED, True),
        ({"kind": "reset"}, DeregistrationPolicy.NEVER, False),
        (
            {"kind": "error", "code": "ResourceInUseException"},
            DeregistrationPolicy.CREATED,
            False,
        ),
    ],
)
async def test_one_that_may_be_ours_is_left_alone_and_named(
    caplog: pytest.LogCaptureFixture,
    failure: dict,
    policy: DeregistrationPolicy,
    is_said: bool,
) -> None:
    application = Application.of(orders(), deregister=policy)
    application.server.add_fault(Fault("RegisterStreamConsumer", **failure))
    waiting = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    await application.clock.wait_for_sleepers()
    await application.clock.advance(application.clock.sleeps[-1])
    unknown = application.add()
    assert await application.finish(waiting) == unknown
    assert (f"--consumer-arn {unknown}" in caplog.text) is is_said
    await application.close()
    assert application.arns == [unknown]


async def test_one_that_is_registered_at_the_second_try_is_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = Application.of(orders())
    application.server.add_fault(Fault("RegisterStreamConsumer", "reset"))
    await application.arn()
    assert caplog.text == ""
    await application.close()
    assert application.arns == []


async def test_cancelling_waits_for_the_answer_to_a_registration_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = Application.of(orders())
    asking, _ = await begin_registering(application, monkeypatch)
    asking.cancel()
    await application.clock.advance(6)
    assert asking.cancelled()


async def test_without_leases_consumers_are_used_and_never_removed(
    runtime_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (runtime_directory / "kinesis-publishers").write_text("in the way")
    application = Application.of(orders())
    arn = await application.arn()
    assert "XDG_STATE_HOME" in caplog.text
    assert f"--consumer-arn {arn}" in caplog.text
    application.lose()
    renewed = await application.renew(arn)
    await application.close()
    assert application.arns == [renewed]


async def test_namesakes_behind_two_endpoints_are_removed_each_by_its_last_user() -> None:
    first, second = (
        Application.of(orders(), endpoint_url=f"http://127.0.0.1:{port}") for port in (1, 2)
    )
    assert await first.arn() == await second.arn()
    await first.close()
    assert first.arns == []
    await second.close()
    assert second.arns == []


@pytest.mark.parametrize(
    "endpoint_url",
    [
        "https://kinesis.eu-west-1.amazonaws.com",
        "https://vpce-1.kinesis.eu-west-1.vpce.amazonaws.com",
    ],
)
async def test_those_who_reach_aws_by_two_ways_share_the_consumer(endpoint_url: str) -> None:
    server = orders()
    first, second = Application.of(server), Application.of(server, endpoint_url=endpoint_url)
    arn = await first.arn()
    assert await second.arn() == arn
    await first.close()
    assert first.arns == [arn]
    await second.close()
    assert first.arns == []


def test_the_endpoint_is_that_of_the_properties() -> None:
    given = {"kinesis.streams": "orders", "aws.endpoint": "http://127.0.0.1:4567"}
    config = RegistrationConfig.from_properties(Properties.parse(given, complete=False))
    assert config.endpoint_url == "http://127.0.0.1:4567"
