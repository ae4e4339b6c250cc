"""A fake control plane answers as the service does, whose changes take a second each."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from kinesis_publishers.aws import Boto3ControlPlane
from kinesis_publishers.config import AwsConfig, Properties
from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    LimitExceededError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
)
from kinesis_publishers.testing import fakes
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis
from tests.contract.service_subjects import ShiftedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from kinesis_publishers import ControlPlane
    from kinesis_publishers.testing.fakes import FakeControlPlane

STREAM = "orders"
CONSUMER = fakes.CONSUMER_NAME
SECOND = timedelta(seconds=1)
# Changes are over with the description after them, as those of the fakes are.
SLOW = Behaviour(consumer_creating_seconds=1, consumer_deleting_seconds=1)


@frozen(kw_only=True)
class Service:
    """Either of the two; ``is_fake`` says which behaviour a test has to arrange."""

    server: LocalKinesis
    clock: ShiftedClock
    client: ControlPlane
    is_fake: bool

    @property
    def stream_arn(self) -> str:
        region, account = self.server.behaviour.region, self.server.behaviour.account_id
        local = f"arn:aws:kinesis:{region}:{account}:stream/{STREAM}"
        return fakes.STREAM_ARN if self.is_fake else local

    def control_plane(
        self, fake: Callable[[], FakeControlPlane], *faults: Fault, stream: bool = True
    ) -> ControlPlane:
        """Return the fake, or a client of a service with a stream that has ``faults``."""
        if self.is_fake:
            return fake()
        if stream:
            self.server.create_stream(STREAM)
        for fault in faults:
            self.server.add_fault(fault)
        return self.client

    def let_pass(self, seconds: int = 1) -> None:
        """Let changes of the service go on; those of a fake do with every description."""
        self.clock.shift += seconds * SECOND


@pytest.fixture(scope="module")
def slow_clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture(scope="module")
def slow_server(slow_clock: ShiftedClock) -> Iterator[LocalKinesis]:
    with LocalKinesis.in_thread(Limits.off(), slow_clock, SLOW) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["fake", "LocalKinesis"])
async def service(
    request: pytest.FixtureRequest, slow_server: LocalKinesis, slow_clock: ShiftedClock
) -> AsyncIterator[Service]:
    slow_server.reset()
    aws = AwsConfig.from_properties(Properties.parse(slow_server.properties(STREAM)))
    async with Boto3ControlPlane(aws) as client:
        yield Service(server=slow_server, clock=slow_clock, client=client, is_fake=request.param)


async def error_of(work: Awaitable[object]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await work
    return caught.value


async def test_stream_not_found_has_neither_stream_nor_consumer(service: Service) -> None:
    plane, arn = service.control_plane(fakes.stream_not_found, stream=False), service.stream_arn
    assert type(await error_of(plane.describe_stream(STREAM))) is StreamNotFoundError
    assert type(await error_of(plane.list_shards(arn))) is StreamNotFoundError
    describing = plane.describe_stream_consumer(arn, CONSUMER)
    assert type(await error_of(describing)) is ConsumerNotFoundError
    registering = plane.register_stream_consumer(arn, CONSUMER)
    assert type(await error_of(registering)) is StreamNotFoundError


async def test_consumer_not_found_can_be_registered(service: Service) -> None:
    plane, arn = service.control_plane(fakes.consumer_not_found), service.stream_arn
    describing = plane.describe_stream_consumer(arn, CONSUMER)
    error = await error_of(describing)
    assert (type(error), error.code) == (ConsumerNotFoundError, "ResourceNotFoundException")
    registered = await plane.register_stream_consumer(arn, CONSUMER)
    assert registered.status == "CREATING"
    assert registered.arn.startswith(f"{arn}/consumer/{CONSUMER}:")
    service.let_pass()
    found = await plane.describe_stream_consumer(arn, CONSUMER)
    assert (found.arn, found.status) == (registered.arn, "ACTIVE")
    assert [one.arn for one in await plane.list_stream_consumers(arn)] == [registered.arn]


async def test_active_consumer_exists_until_it_is_removed(service: Service) -> None:
    plane, arn = service.control_plane(fakes.active_consumer), service.stream_arn
    if not service.is_fake:
        service.server.register_consumer(STREAM, CONSUMER)
        service.let_pass()
    found = await plane.describe_stream_consumer(arn, CONSUMER)
    assert found.status == "ACTIVE"
    again = await error_of(plane.register_stream_consumer(arn, CONSUMER))
    assert (type(again), again.code) == (ResourceInUseError, "ResourceInUseException")
    await plane.deregister_stream_consumer(found.arn)
    service.let_pass()
    gone = await error_of(plane.describe_stream_consumer(arn, CONSUMER))
    assert type(gone) is ConsumerNotFoundError
    missing = await error_of(plane.deregister_stream_consumer(found.arn))
    assert type(missing) is ConsumerNotFoundError


@pytest.mark.parametrize(
    ("fake", "status", "then"),
    [
        (fakes.creating_until, "CREATING", "ACTIVE"),
        (fakes.deleting_until, "DELETING", "ConsumerNotFoundError"),
    ],
)
async def test_a_change_of_a_consumer_takes_a_while(
    service: Service, fake: Callable[[int], FakeControlPlane], status: str, then: str
) -> None:
    plane, arn = service.control_plane(lambda: fake(2)), service.stream_arn
    if not service.is_fake:
        service.server.register_consumer(STREAM, CONSUMER)
        if status == "DELETING":
            service.let_pass()
            service.server.deregister_consumer(STREAM, CONSUMER)
    seen = []
    for number in range(3):
        if number == 2:
            service.let_pass()
        try:
            seen.append((await plane.describe_stream_consumer(arn, CONSUMER)).status)
        except ConsumerNotFoundError as error:
            seen.append(type(error).__name__)
        if seen[-1] == status:
            refusal = await error_of(plane.register_stream_consumer(arn, CONSUMER))
            assert type(refusal) is ResourceInUseError
    assert seen == [status, status, then]


async def test_limit_exceeded_refuses_and_then_registers(service: Service) -> None:
    limit = Fault("RegisterStreamConsumer", "throttle", times=2)
    plane = service.control_plane(lambda: fakes.limit_exceeded(2), limit)
    for _ in range(2):
        error = await error_of(plane.register_stream_consumer(service.stream_arn, CONSUMER))
        assert (type(error), error.code) == (LimitExceededError, "LimitExceededException")
        assert error.retryable
    registered = await plane.register_stream_consumer(service.stream_arn, CONSUMER)
    assert registered.status == "CREATING"
