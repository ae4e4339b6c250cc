"""LAZY: described, registered if it is absent, waited for until it is ACTIVE."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from kinesis_publishers.errors import (
    AccessDeniedError,
    LimitExceededError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from kinesis_publishers.events import ConsumerAwaited, ConsumerRegistered
from kinesis_publishers.testing.fakes import STREAM_ARN
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.registration.registration_support import (
    CONFIG,
    CONSUMER_NAME,
    Application,
    billed,
    denied,
    leaving,
    orders,
)


async def test_nothing_happens_before_the_first_shard_is_read() -> None:
    application = Application.of(orders())
    await application.registrar.prepare([STREAM_ARN])
    assert application.calls == []


async def test_an_active_consumer_is_used_at_once() -> None:
    application = Application.of(billed())
    # Not finish(): nothing may wait for the clock.
    arn = await application.registrar.consumer_arn(STREAM_ARN)
    assert [arn] == application.arns
    assert application.calls == ["describe"]
    assert application.clock.sleeps == []
    assert application.events == []


async def test_an_absent_consumer_is_registered_and_waited_for() -> None:
    application = Application.of(orders(consumer_creating_seconds=3))
    arn = await application.arn()
    assert [arn] == application.arns
    assert application.calls[:3] == ["describe", "describe", "register"]
    assert set(application.calls[3:]) == {"describe"}
    # Waiting is reported once, however often the consumer was asked about.
    assert application.events == [
        ConsumerRegistered(stream_arn=STREAM_ARN, consumer_arn=arn),
        ConsumerAwaited(stream_arn=STREAM_ARN, consumer_arn=arn, status="CREATING"),
    ]


async def test_processes_that_start_together_are_spread_out_by_a_random_delay() -> None:
    delays = set()
    for _ in range(5):
        application = Application.of(orders())
        await application.arn()
        delays.add(application.clock.sleeps[0])
    bound = CONFIG.register_retry.delay_bound_seconds(0)
    assert len(delays) == 5
    assert all(0 <= delay < bound for delay in delays)


async def test_the_polls_for_active_have_full_jitter() -> None:
    application = Application.of(billed(consumer_creating_seconds=6))
    await application.arn()
    policy = CONFIG.register_retry
    sleeps = application.clock.sleeps
    assert len(set(sleeps)) == len(sleeps) >= 3
    assert all(
        0 <= seconds < policy.delay_bound_seconds(poll) for poll, seconds in enumerate(sleeps)
    )


async def test_one_that_appears_during_the_delay_is_not_registered_again() -> None:
    application = Application.of(orders())
    waiting = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    await application.clock.wait_for_sleepers()
    other = application.add()
    assert await application.finish(waiting) == other
    assert application.calls == ["describe", "describe"]


async def test_resource_in_use_means_that_another_process_has_won() -> None:
    application = Application.of(orders())
    exists = Fault("RegisterStreamConsumer", "error", code="ResourceInUseException")
    application.server.add_fault(exists)
    waiting = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    await application.clock.wait_for_sleepers()
    # The head start, and no more: the next delay may be short.
    await application.clock.advance(application.clock.sleeps[-1])
    assert "register" in application.calls
    other = application.add()
    assert await application.finish(waiting) == other
    assert application.calls.count("register") == 1
    assert not [one for one in application.events if isinstance(one, ConsumerRegistered)]


async def test_a_consumer_in_deleting_is_waited_out_and_then_registered() -> None:
    application = Application.of(leaving(5))
    (before,) = application.arns
    arn = await application.arn()
    assert arn != before
    assert [arn] == application.arns
    assert application.calls.index("register") == len(application.calls) - 1


async def test_one_that_vanishes_while_it_is_waited_for_is_registered_again() -> None:
    application = Application.of(billed(consumer_creating_seconds=100))
    (before,) = application.arns
    waiting = asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN))
    await application.clock.wait_for_sleepers()
    application.server.behaviour = evolve(application.server.behaviour, consumer_creating_seconds=1)
    application.lose()
    arn = await application.finish(waiting)
    assert arn != before
    assert application.calls.count("register") == 1


@pytest.mark.parametrize(
    ("server", "status", "advice"),
    [
        (
            lambda: billed(consumer_creating_seconds=10_000),
            "CREATING",
            "aws kinesis deregister-stream-consumer --region eu-west-1",
        ),
        (lambda: leaving(10_000), "DELETING", "another consumer name"),
    ],
    ids=["CREATING", "DELETING"],
)
async def test_one_that_is_stuck_is_an_error_after_the_timeout(server, status, advice) -> None:
    application = Application.of(server())
    with pytest.raises(RetriesExhaustedError) as raised:
        await application.arn()
    message = str(raised.value)
    assert all(text in message for text in (STREAM_ARN, CONSUMER_NAME, status, advice))
    assert "registerstreamconsumer.timeout" in message
    assert 60 <= raised.value.elapsed_seconds < 63
    assert 60 <= application.clock.monotonic() < 65


async def test_each_phase_has_the_whole_timeout() -> None:
    application = Application.of(leaving(50))
    application.server.behaviour = evolve(
        application.server.behaviour, consumer_creating_seconds=50
    )
    assert [await application.arn()] == application.arns
    assert application.clock.monotonic() >= 100


async def test_a_refused_registration_is_backed_off() -> None:
    application = Application.of(orders())
    application.server.add_fault(Fault("RegisterStreamConsumer", "throttle", times=3))
    assert [await application.arn()] == application.arns
    assert application.calls.count("register") == 4
    assert application.calls.count("list") == 0


async def test_the_limit_of_consumers_is_an_error_that_names_them() -> None:
    server = orders()
    for number in range(20):
        server.register_consumer("orders", f"other-{number}")
    # However long outages are ridden through: waiting makes no room.
    patient = evolve(CONFIG.register_retry, outage_seconds=300.0)
    application = Application.of(server, register_retry=patient)
    with pytest.raises(LimitExceededError) as raised:
        await application.arn()
    message = str(raised.value)
    assert "20 consumers: other-0 (ACTIVE), other-1 (ACTIVE)" in message
    assert "other-19" in message
    assert "remove one" in message
    assert all(text in message for text in (STREAM_ARN, CONSUMER_NAME, "LimitExceededException"))
    assert isinstance(raised.value.__cause__, RetriesExhaustedError)
    assert application.calls.count("register") == 4
    assert application.calls.count("list") == 1


async def test_the_limit_of_consumers_is_an_error_even_if_they_cannot_be_listed() -> None:
    application = Application.of(orders())
    application.server.add_fault(Fault("RegisterStreamConsumer", "throttle", times=None))
    application.server.add_fault(denied("ListStreamConsumers"))
    with pytest.raises(LimitExceededError, match=r"could not be listed \(.*allow kinesis:List"):
        await application.arn()


@pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "RegisterStreamConsumer"])
async def test_a_call_that_is_not_allowed_is_made_once(operation) -> None:
    application = Application.of(orders())
    application.server.add_fault(denied(operation))
    with pytest.raises(AccessDeniedError):
        await application.arn()
    assert len(application.server.calls(operation)) == 1


async def test_a_call_that_fails_on_the_side_of_the_service_is_repeated() -> None:
    application = Application.of(orders())
    for operation in ("DescribeStreamConsumer", "RegisterStreamConsumer"):
        application.server.add_fault(Fault(operation, "internal_failure", times=2))
    assert [await application.arn()] == application.arns
    assert application.calls.count("register") == 3


async def test_an_outage_while_registering_is_ridden_through() -> None:
    application = Application.of(
        orders(), register_retry=evolve(CONFIG.register_retry, outage_seconds=300.0)
    )
    outage = Fault("RegisterStreamConsumer", "internal_failure", times=50)
    application.server.add_fault(outage)
    assert [await application.arn()] == application.arns
    assert application.calls.count("register") == 51


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        ("DescribeStreamConsumer", 1 + CONFIG.describe_retry.max_retries),
        ("RegisterStreamConsumer", 1 + CONFIG.register_retry.max_retries),
        ("ListStreamConsumers", 1 + CONFIG.list_retry.max_retries),
    ],
)
async def test_each_call_is_repeated_as_often_as_its_own_policy_says(operation, calls) -> None:
    application = Application.of(orders())
    application.server.add_fault(Fault("RegisterStreamConsumer", "throttle", times=None))
    application.server.add_fault(Fault(operation, "internal_failure", times=None))
    with pytest.raises((RetriesExhaustedError, LimitExceededError)):
        await application.arn()
    assert len(application.server.calls(operation)) == calls


async def test_a_stream_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(StreamNotFoundError):
        await Application.of(orders(streams=())).arn()


async def test_all_shards_of_a_stream_share_one_search() -> None:
    application = Application.of(billed(consumer_creating_seconds=3))
    arns = await application.finish(
        asyncio.gather(*(application.registrar.consumer_arn(STREAM_ARN) for _ in range(16)))
    )
    assert set(arns) == set(application.arns)
    assert set(application.calls) == {"describe"}
    made = len(application.calls)
    await application.arn()
    assert len(application.calls) == made


async def test_a_failure_reaches_all_who_wait_for_it_and_the_next_one_tries_again() -> None:
    application = Application.of(orders())
    application.server.add_fault(denied("RegisterStreamConsumer"))
    failures = await application.finish(
        asyncio.gather(
            *(application.registrar.consumer_arn(STREAM_ARN) for _ in range(16)),
            return_exceptions=True,
        )
    )
    assert [type(one) for one in failures] == [AccessDeniedError] * 16
    assert application.calls.count("register") == 1
    assert [await application.arn()] == application.arns


async def test_when_the_one_who_searches_is_cancelled_the_others_still_get_the_consumer() -> None:
    application = Application.of(billed(consumer_creating_seconds=3))
    first, *others = (
        asyncio.ensure_future(application.registrar.consumer_arn(STREAM_ARN)) for _ in range(3)
    )
    await application.clock.wait_for_sleepers()
    first.cancel()
    arns = await application.finish(asyncio.gather(*others))
    assert set(arns) == set(application.arns)
    assert first.cancelled()
