"""EAGER: all streams are registered before anything is read, or none. NONE: no call is made."""

from __future__ import annotations

import asyncio

import pytest

from kinesis_publishers.config import DeregistrationPolicy, RegistrationStrategy
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConsumerNotFoundError,
    InvalidOptionError,
    LimitExceededError,
    MissingOptionError,
)
from kinesis_publishers.testing.fakes import STREAM_ARN
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis
from tests.unit.registration.registration_support import (
    CONSUMER_NAME,
    Application,
    billed,
    denied,
    orders,
)

SECOND = f"{STREAM_ARN}-2"
BOTH = (STREAM_ARN, SECOND)
EAGER = {"strategy": RegistrationStrategy.EAGER}


def two_streams(*, is_second_full: bool = False) -> LocalKinesis:
    server = orders(streams=("orders", "orders-2"))
    if is_second_full:
        full = Fault("RegisterStreamConsumer", "throttle", stream="orders-2", times=None)
        server.add_fault(full)
    return server


def consumers_of(server: LocalKinesis) -> list[list[str]]:
    return [list(server.consumer_arns(stream).values()) for stream in ("orders", "orders-2")]


async def test_all_streams_are_registered_at_once_and_answered_from_memory() -> None:
    server = two_streams()
    application = Application.of(server, **EAGER)
    await application.finish(application.registrar.prepare(BOTH))
    made = len(server.calls())
    assert [[await application.registrar.consumer_arn(arn)] for arn in BOTH] == consumers_of(server)
    assert len(server.calls()) == made
    await application.close()
    assert consumers_of(server) == [[], []]


async def test_it_does_not_wait_for_others_who_might_start_at_the_same_time() -> None:
    application = Application.of(orders(), **EAGER)
    await application.finish(application.registrar.prepare([STREAM_ARN]))
    assert application.clock.sleeps == []


@pytest.mark.parametrize("policy", list(DeregistrationPolicy))
async def test_if_one_stream_fails_what_was_registered_for_the_others_is_removed(
    policy: DeregistrationPolicy,
) -> None:
    server = two_streams(is_second_full=True)
    application = Application.of(server, **EAGER, deregister=policy)
    with pytest.raises(LimitExceededError):
        await application.finish(application.registrar.prepare(BOTH))
    assert consumers_of(server) == [[], []]
    assert "deregister" in application.calls
    await application.close()
    assert application.calls.count("deregister") == 1


async def test_what_was_there_before_is_not_rolled_back() -> None:
    server = two_streams(is_second_full=True)
    application = Application.of(server, **EAGER)
    theirs = application.add()
    with pytest.raises(LimitExceededError):
        await application.finish(application.registrar.prepare(BOTH))
    await application.close()
    assert consumers_of(server) == [[theirs], []]


async def test_what_another_process_uses_by_now_is_not_rolled_back() -> None:
    server = two_streams(is_second_full=True)
    application, other = Application.of(server, **EAGER), Application.of(server)
    failing = asyncio.ensure_future(application.registrar.prepare(BOTH))
    while not application.arns:
        await application.clock.advance(0.01)
    shared = await other.arn()
    with pytest.raises(LimitExceededError):
        await application.finish(failing)
    assert consumers_of(server) == [[shared], []]
    await other.close()
    assert consumers_of(server) == [[], []]


async def test_after_a_failure_it_can_be_tried_again() -> None:
    server = two_streams()
    server.add_fault(denied("RegisterStreamConsumer", stream="orders-2"))
    application = Application.of(server, **EAGER)
    with pytest.raises(AccessDeniedError):
        await application.finish(application.registrar.prepare(BOTH))
    await application.finish(application.registrar.prepare(BOTH))
    assert all(len(arns) == 1 for arns in consumers_of(server))


async def test_an_arn_that_travelled_is_used_without_a_call() -> None:
    server = billed()
    (arn,) = server.consumer_arns("orders").values()
    application = Application.of(server, **EAGER, consumer_arns={"orders": arn})
    await application.registrar.prepare([STREAM_ARN])
    assert await application.registrar.consumer_arn(STREAM_ARN) == arn
    await application.registrar.close()
    assert server.calls() == []


async def test_a_user_of_an_arn_that_travelled_keeps_the_others_from_removing_it() -> None:
    first = Application.of(orders(), **EAGER)
    await first.finish(first.registrar.prepare([STREAM_ARN]))
    (arn,) = first.arns
    second = Application.of(first.server, **EAGER, consumer_arns={"orders": arn})
    await second.registrar.prepare([STREAM_ARN])
    await first.close()
    assert second.arns == [arn]
    await second.close()
    assert second.arns == []


async def test_a_consumer_that_travelled_and_is_gone_is_registered_again_and_removed() -> None:
    server = orders()
    gone = f"{STREAM_ARN}/consumer/{CONSUMER_NAME}:1"
    application = Application.of(server, **EAGER, consumer_arns={"orders": gone})
    assert await application.renew(gone) != gone
    await application.close()
    assert application.arns == []


@pytest.mark.parametrize("strategy", [RegistrationStrategy.LAZY, RegistrationStrategy.EAGER])
class TestRenewing:
    """What a subscription does when its consumer was not found."""

    async def test_a_consumer_that_is_there_keeps_its_arn(self, strategy) -> None:
        application = Application.of(billed(), strategy=strategy)
        arn = await application.arn()
        assert await application.registrar.renew(STREAM_ARN, arn) == arn
        assert application.calls == ["describe", "describe"]

    async def test_all_shards_share_one_look_at_a_consumer_that_is_there(self, strategy) -> None:
        application = Application.of(billed(), strategy=strategy)
        arn = await application.arn()
        application.server.add_fault(Fault("DescribeStreamConsumer", "delay", delay_seconds=1.0))
        renewals = (application.registrar.renew(STREAM_ARN, arn) for _ in range(16))
        assert set(await application.finish(asyncio.gather(*renewals))) == {arn}
        assert application.calls == ["describe", "describe"]

    async def test_one_that_another_process_has_registered_again_is_used(self, strategy) -> None:
        application = Application.of(billed(), strategy=strategy)
        arn = await application.arn()
        application.lose()
        theirs = application.add()
        assert await application.renew(arn) == theirs
        assert "register" not in application.calls

    async def test_all_shards_share_one_renewal(self, strategy) -> None:
        application = Application.of(orders(), strategy=strategy)
        arn = await application.arn()
        application.lose()
        renewals = (application.registrar.renew(STREAM_ARN, arn) for _ in range(16))
        renewed = set(await application.finish(asyncio.gather(*renewals)))
        assert renewed == set(application.arns)
        assert application.calls.count("register") == 2
        # One that comes late gets what the others have found, without a call.
        made = len(application.calls)
        assert {await application.registrar.renew(STREAM_ARN, arn)} == renewed
        assert len(application.calls) == made

    async def test_it_works_before_the_consumer_was_ever_asked_for(self, strategy) -> None:
        application = Application.of(billed(), strategy=strategy)
        unknown = f"{STREAM_ARN}/consumer/{CONSUMER_NAME}:1"
        assert [await application.renew(unknown)] == application.arns

    async def test_a_failure_is_raised(self, strategy) -> None:
        application = Application.of(billed(), strategy=strategy)
        arn = await application.arn()
        application.server.add_fault(denied("DescribeStreamConsumer"))
        with pytest.raises(AccessDeniedError):
            await application.renew(arn)


class TestNone:
    """The ARNs are configured, and the service is never asked."""

    ARN = f"{STREAM_ARN}/consumer/{CONSUMER_NAME}:1"

    def application(self) -> Application:
        return Application.of(
            billed(),
            strategy=RegistrationStrategy.NONE,
            consumer_name=None,
            consumer_arns={"orders": self.ARN},
        )

    async def test_no_call_is_made(self) -> None:
        application = self.application()
        await application.registrar.prepare([STREAM_ARN])
        assert await application.registrar.consumer_arn(STREAM_ARN) == self.ARN
        with pytest.raises(ConsumerNotFoundError) as raised:
            await application.registrar.renew(STREAM_ARN, self.ARN)
        assert self.ARN in str(raised.value)
        assert "stream.efo.consumerarn.orders" in str(raised.value)
        await application.registrar.close()
        assert application.server.calls() == []

    @pytest.mark.parametrize(
        "other", [STREAM_ARN.replace(":stream", "9:stream"), STREAM_ARN.replace("eu-", "us-")]
    )
    async def test_the_consumer_of_a_namesake_in_another_account_is_refused(self, other) -> None:
        assert other != STREAM_ARN
        application = self.application()
        with pytest.raises(InvalidOptionError, match=r"consumerarn\.orders.*another region or"):
            await application.registrar.prepare([other])
        with pytest.raises(InvalidOptionError, match=other):
            await application.registrar.consumer_arn(other)

    async def test_a_stream_without_an_arn_is_an_error(self) -> None:
        with pytest.raises(MissingOptionError, match=r"consumerarn\.orders-2"):
            await self.application().registrar.consumer_arn(SECOND)
