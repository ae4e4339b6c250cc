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
    ServiceError,
    StreamNotFoundError,
)
from kinesis_publishers.testing.local_kinesis import Fault, LocalKinesis

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


async def test_calls_may_be_made_at_once(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane
) -> None:
    """The first of them opens the client for all."""
    for number in range(4):
        local_kinesis.create_stream(f"orders-{number}", 1)
    consumers = await asyncio.gather(
        *(plane.register_stream_consumer(f"{ARN}-{number}", "billing") for number in range(4))
    )
    assert len({one.arn for one in consumers}) == 4


async def test_a_consumer_was_created_when_the_service_says(
    local_kinesis: LocalKinesis, plane: Boto3ControlPlane
) -> None:
    local_kinesis.create_stream("orders", 1)
    registered = await plane.register_stream_consumer(ARN, "billing")
    assert abs(registered.created_at - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("DescribeStreamConsumer", ConsumerNotFoundError),
        ("DeregisterStreamConsumer", ConsumerNotFoundError),
        ("RegisterStreamConsumer", StreamNotFoundError),
        ("ListStreamConsumers", StreamNotFoundError),
    ],
)
@pytest.mark.parametrize("is_in_process", [False, True], ids=["over HTTP", "in the process"])
async def test_what_is_not_found_depends_on_the_call(
    plane: Boto3ControlPlane, operation: str, expected: type[ServiceError], *, is_in_process: bool
) -> None:
    call: Callable[[ControlPlane], Awaitable[object]] = _CALLS[operation]
    with pytest.raises(expected) as raised:
        await call(LocalKinesis().control_plane() if is_in_process else plane)
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
