"""Answers to SubscribeToShard that Kinesis does not give, or gives at the end of a connection."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame

from kinesis_publishers import StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.errors import (
    AccessDeniedError,
    ConnectionFailedError,
    InternalServiceError,
    MalformedResponseError,
    ResourceInUseError,
    ServiceError,
)
from tests.integration.aws.aws_harness import (
    CARRIERS,
    CONSUMER_ARN,
    INITIAL,
    SHARD,
    Exchange,
    Http2Exchange,
    ScriptedService,
    aws_config,
    event,
    http_config,
    server_tls,
)

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

    from tests.integration.aws.aws_harness import Script

DEADLINE_SECONDS = 30
DENIED = b'{"__type": "com.amazonaws.kinesis#AccessDeniedException", "message": "No"}'
IN_USE = b'{"__type": "ResourceInUseException", "message": "No"}'


async def read_all(
    script: Script, authority: trustme.CA, ca_bundle: Path, carrier: str
) -> list[str]:
    tls = server_tls(authority, ["h2", "http/1.1"]) if CARRIERS[carrier][1] else None
    position, found = StartingPosition.trim_horizon(), []
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        ScriptedService(script, tls).serve() as service,
        AioDataPlane(aws_config(service.url, ca_bundle), http=http_config(carrier)) as plane,
        plane.subscribe_to_shard(SHARD, CONSUMER_ARN, position) as subscription,
    ):
        while await subscription.wait_for_event() is not None:
            found.append(str((await subscription.receive()).continuation_sequence_number))
    return found


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize(
    ("status", "body", "kind", "is_retryable"),
    [
        (202, b"ok", MalformedResponseError, True),
        (307, b"", MalformedResponseError, True),
        (400, IN_USE, ResourceInUseError, True),
        (400, gzip.compress(IN_USE, mtime=0), MalformedResponseError, True),
        (403, DENIED, AccessDeniedError, False),
        (503, "<html>Désolé".encode("latin-1"), InternalServiceError, True),
        (200, b"<html>Log in first", MalformedResponseError, True),
        (200, gzip.compress(INITIAL + event(1), mtime=0), MalformedResponseError, True),
        (200, b"ok", ConnectionFailedError, True),
    ],
)
async def test_any_answer_is_an_error_of_this_package(
    authority: trustme.CA,
    ca_bundle: Path,
    carrier: str,
    status: int,
    body: bytes,
    kind: type[ServiceError],
    is_retryable: bool,
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(status)
        for part in (body[:1], body[1:]) if body else ():
            await exchange.send(part)
        await exchange.end()

    with pytest.raises(ServiceError, match=r"SubscribeToShard of orders/shardId-0") as raised:
        await read_all(answer, authority, ca_bundle, carrier)
    assert type(raised.value) is kind
    assert raised.value.retryable is is_retryable
    if kind in (ResourceInUseError, AccessDeniedError):
        code = f"{kind.__name__.removesuffix('Error')}Exception"
        assert raised.value.code == code
        assert f"{code}: No" in str(raised.value)
        assert raised.value.request_id == "id-1"


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_body_without_any_frame_is_a_subscription_that_has_ended(
    authority: trustme.CA, ca_bundle: Path, carrier: str
) -> None:
    async def end(exchange: Exchange) -> None:
        await exchange.answer()
        await exchange.end()

    assert await read_all(end, authority, ca_bundle, carrier) == []


async def say_goodbye(exchange: Exchange) -> None:
    """Send an event, GOAWAY and another event in one piece, as a server does that drains."""
    assert isinstance(exchange, Http2Exchange)
    await exchange.answer()
    await exchange.send_raw(
        DataFrame(exchange.stream_id, INITIAL + event(1)),
        GoAwayFrame(0, last_stream_id=exchange.stream_id),
        DataFrame(exchange.stream_id, event(2), flags=["END_STREAM"]),
    )


async def test_a_server_that_says_goodbye_may_finish(
    authority: trustme.CA, ca_bundle: Path
) -> None:
    assert await read_all(say_goodbye, authority, ca_bundle, "https-2") == ["1", "2"]
