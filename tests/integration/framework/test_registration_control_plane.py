"""The calls about stream consumers against a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import Properties
from kinesis_publishers.aws.control_plane import Boto3ControlPlane
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    ConsumerNotFoundError,
    LimitExceededError,
    ResourceInUseError,
    ServiceError,
    StreamNotFoundError,
)
from kinesis_publishers.testing.local_kinesis import Behaviour, Fault, Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kinesis_publishers.abc import ControlPlane

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CONSUMER_ARN = f"{ARN}/consumer/billing:1"

_CALLS = {
    "DescribeStreamConsumer": lambda plane: plane.describe_stream_consumer(ARN, "billing"),
    "ListStreamConsumers": lambda plane: plane.list_stream_consumers(ARN),
    "RegisterStreamConsumer": lambda plane: plane.register_stream_consumer(ARN, "billing"),
    "DeregisterStreamConsumer": lambda plane: plane.deregister_stream_consumer(CONSUMER_ARN),
}


@pytest.fixture
async def plane(local_kinesis: LocalKinesis) -> AsyncIterator[Boto3ControlPlane]:
    aws = AwsConfig.from_properties(Properties.parse(local_kinesis.properties("orders")))
    async with Boto3ControlPlane(aws) as plane:
        yield plane


async def test_a_consumer_is_registered_described_listed_and_removed(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane
) -> None:
    local_kinesis.create_stream("orders", 1)
    registered = await plane.register_stream_consumer(ARN, "billing")
    assert registered.name == "billing"
    assert registered.arn.startswith(f"{ARN}/consumer/billing:")
    assert abs(registered.created_at - datetime.now(UTC)) < timedelta(minutes=5)
    described = await plane.describe_stream_consumer(ARN, "billing")
    assert described == evolve(registered, status="ACTIVE")
    assert await plane.list_stream_consumers(ARN) == (described,)
    await plane.deregister_stream_consumer(registered.arn)
    with pytest.raises(ConsumerNotFoundError):
        await plane.describe_stream_consumer(ARN, "billing")


async def test_the_phases_of_a_consumer_are_seen() -> None:
    behaviour = Behaviour(consumer_creating_seconds=3600, consumer_deleting_seconds=3600)
    with LocalKinesis.in_thread(Limits.aws(), behaviour=behaviour) as server:
        server.create_stream("orders", 1)
        aws = AwsConfig.from_properties(Properties.parse(server.properties("orders")))
        async with Boto3ControlPlane(aws) as plane:
            assert (await plane.register_stream_consumer(ARN, "billing")).status == "CREATING"
            consumer = await plane.describe_stream_consumer(ARN, "billing")
            assert consumer.status == "CREATING"
            await plane.deregister_stream_consumer(consumer.arn)
            consumer = await plane.describe_stream_consumer(ARN, "billing")
            assert consumer.status == "DELETING"


async def test_all_pages_of_the_consumers_are_listed() -> None:
    with LocalKinesis.in_thread(Limits.off()) as server:
        server.create_stream("orders", 1)
        names = {f"consumer-{number:03}" for number in range(250)}
        for name in names:
            server.register_consumer("orders", name)
        aws = AwsConfig.from_properties(Properties.parse(server.properties("orders")))
        async with Boto3ControlPlane(aws) as plane:
            listed = await plane.list_stream_consumers(ARN)
        assert {one.name for one in listed} == names
        assert len(server.calls("ListStreamConsumers")) == 3


async def test_a_name_that_is_taken_and_a_full_stream_are_told_apart(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane
) -> None:
    local_kinesis.create_stream("orders", 1)
    for number in range(20):
        local_kinesis.register_consumer("orders", f"consumer-{number}")
    with pytest.raises(ResourceInUseError):
        await plane.register_stream_consumer(ARN, "consumer-7")
    with pytest.raises(LimitExceededError):
        await plane.register_stream_consumer(ARN, "billing")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("DescribeStreamConsumer", ConsumerNotFoundError),
        ("DeregisterStreamConsumer", ConsumerNotFoundError),
        ("RegisterStreamConsumer", StreamNotFoundError),
        ("ListStreamConsumers", StreamNotFoundError),
    ],
)
async def test_what_is_not_found_depends_on_the_call(
    plane: Boto3ControlPlane, operation: str, expected: type[ServiceError]
) -> None:
    call: Callable[[Boto3ControlPlane], Awaitable[object]] = _CALLS[operation]
    with pytest.raises(expected) as raised:
        await call(plane)
    assert "orders" in str(raised.value)
    assert not raised.value.retryable


@pytest.mark.parametrize("operation", list(_CALLS))
async def test_a_missing_permission_is_named(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane, operation: str
) -> None:
    local_kinesis.create_stream("orders", 1)
    local_kinesis.add_fault(Fault(operation, "error", code="AccessDeniedException"))
    with pytest.raises(AccessDeniedError, match=f"kinesis:{operation}"):
        await _CALLS[operation](plane)


async def test_an_endpoint_with_a_certificate_of_its_own_is_trusted_if_it_is_configured() -> None:
    with LocalKinesis.in_thread(tls=True) as server:
        server.create_stream("orders", 1)
        aws = AwsConfig.from_properties(Properties.parse(server.properties("orders")))
        async with Boto3ControlPlane(evolve(aws, ca_bundle=server.ca_bundle)) as plane:
            assert await plane.list_stream_consumers(ARN) == ()
        async with Boto3ControlPlane(evolve(aws, ca_bundle=None)) as plane:
            with pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
                await plane.list_stream_consumers(ARN)


async def test_calls_may_be_made_at_once(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane
) -> None:
    for number in range(4):
        local_kinesis.create_stream(f"orders-{number}", 1)
    consumers = await asyncio.gather(
        *(plane.register_stream_consumer(f"{ARN}-{number}", "billing") for number in range(4))
    )
    assert len({one.arn for one in consumers}) == 4


async def _outcome(call: Awaitable[object]) -> object:
    try:
        answer = await call
    except ServiceError as error:
        return type(error), error.code
    return getattr(answer, "status", answer)


async def _outcomes(plane: ControlPlane) -> list[object]:
    missing = f"{ARN}-2"
    outcomes = [
        await _outcome(plane.describe_stream_consumer(ARN, "billing")),
        await _outcome(plane.list_stream_consumers(ARN)),
        await _outcome(plane.register_stream_consumer(missing, "billing")),
        await _outcome(plane.list_stream_consumers(missing)),
        await _outcome(plane.describe_stream_consumer(missing, "billing")),
        await _outcome(plane.deregister_stream_consumer(CONSUMER_ARN)),
    ]
    consumer = await plane.register_stream_consumer(ARN, "billing")
    return [
        *outcomes,
        await _outcome(plane.register_stream_consumer(ARN, "billing")),
        await _outcome(plane.describe_stream_consumer(ARN, "billing")),
        await _outcome(plane.deregister_stream_consumer(consumer.arn)),
        await _outcome(plane.describe_stream_consumer(ARN, "billing")),
        await _outcome(plane.deregister_stream_consumer(consumer.arn)),
        await _outcome(plane.list_stream_consumers(ARN)),
    ]


async def test_the_plane_in_the_process_answers_as_the_server_does(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane
) -> None:
    local_kinesis.create_stream("orders", 1)
    in_process = LocalKinesis(Limits.aws())
    in_process.create_stream("orders", 1)
    assert await _outcomes(plane) == await _outcomes(in_process.control_plane())
