"""Answers to SubscribeToShard that Kinesis does not give, or gives at the end of a connection."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import pytest
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
)

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


def headers(fields: dict[str, str], *flags: str) -> Frame:
    return HeadersFrame(1, Encoder().encode(fields), flags=["END_HEADERS", *flags])


async def send_all_that_is_allowed(exchange: Exchange) -> None:
    assert isinstance(exchange, Http2Exchange)
    block = Encoder().encode({":status": "200", "x-amzn-requestid": "id-1", "x": "é"})
    first = HeadersFrame(1, block[:3], flags=["PADDED", "PRIORITY"])
    first.pad_length, first.stream_weight = 9, 3
    padded = DataFrame(1, INITIAL + event(1), flags=["PADDED"])
    padded.pad_length = 200
    await exchange.send_raw(
        headers({":status": "103"}),
        first,
        ContinuationFrame(1, block[3:5]),
        ContinuationFrame(1, block[5:], flags=["END_HEADERS"]),
        padded,
        PingFrame(0, b"12345678"),
        ExtensionFrame(type=0xBE, stream_id=0),
        DataFrame(1, event(2)),
        headers({"trailer": "x"}, "END_STREAM"),
        RstStreamFrame(1, 0),
        GoAwayFrame(0, error_code=1),
    )


async def test_all_that_the_protocol_allows_is_understood(
    authority: trustme.CA, ca_bundle: Path
) -> None:
    assert await read_all(send_all_that_is_allowed, authority, ca_bundle, "https-2") == ["1", "2"]


async def test_a_service_sends_as_much_as_may_wait_unread_and_goes_on_after_that(
    authority: trustme.CA, ca_bundle: Path
) -> None:
    is_full = []

    async def send_much(exchange: Exchange) -> None:
        assert isinstance(exchange, Http2Exchange)
        await exchange.answer()
        body = INITIAL + b"".join(event(number, "QUJD" * 100_000) for number in range(3))
        await exchange.send(body[: 256 * 1024])
        is_full.append(exchange.window_bytes)
        await exchange.send(body[256 * 1024 :])
        await exchange.end()

    assert await read_all(send_much, authority, ca_bundle, "https-2") == ["0", "1", "2"]
    assert is_full == [0]


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (RstStreamFrame(1, 2), "reset the stream with code 2"),
        (GoAwayFrame(0, last_stream_id=1, error_code=11), "ended the connection with code 11"),
        (GoAwayFrame(0, last_stream_id=0), "ended the connection with code 0"),
        (PushPromiseFrame(1, promised_stream_id=2, flags=["END_HEADERS"]), "ProtocolError"),
        (DataFrame(1, bytes(256 * 1024 + 1)), "FrameTooLargeError"),
        (None, "closed the connection"),
    ],
    ids=["reset", "goaway", "not begun", "push", "too long", "closed"],
)
async def test_an_end_before_the_end_is_a_failed_connection_after_what_has_come(
    authority: trustme.CA, ca_bundle: Path, frame: Frame | None, problem: str
) -> None:
    async def break_off(exchange: Exchange) -> None:
        assert isinstance(exchange, Http2Exchange)
        await exchange.answer()
        await exchange.send(INITIAL + event(1))
        if frame is None:
            exchange.leave()
        else:
            await exchange.send_raw(frame)

    tls, position = server_tls(authority, ["h2"]), StartingPosition.trim_horizon()
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        ScriptedService(break_off, tls).serve() as service,
        AioDataPlane(aws_config(service.url, ca_bundle), http=http_config("https-2")) as plane,
        plane.subscribe_to_shard(SHARD, CONSUMER_ARN, position) as subscription,
    ):
        assert await subscription.wait_for_event() is not None
        await subscription.receive()
        with pytest.raises(ConnectionFailedError, match=problem) as raised:
            await subscription.wait_for_event()
    assert raised.value.retryable


@pytest.mark.parametrize(
    "fields", [{":status": "ok"}, {"x": "y"}, {":status": "200", "x": "y" * 70_000}]
)
async def test_headers_that_cannot_be_read_are_a_failed_connection(
    authority: trustme.CA, ca_bundle: Path, fields: dict[str, str]
) -> None:
    async def answer(exchange: Exchange) -> None:
        assert isinstance(exchange, Http2Exchange)
        await exchange.send_raw(headers(fields))

    with pytest.raises(ConnectionFailedError, match=r"orders/shardId-0"):
        await read_all(answer, authority, ca_bundle, "https-2")


async def test_what_came_before_broken_tls_is_read_and_then_an_error_is_raised(
    authority: trustme.CA, ca_bundle: Path
) -> None:
    """More has come than may wait unread, so that reading it would send an update."""
    body, context = INITIAL + event(1, "QUJD" * 40_000), server_tls(authority, ["h2"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, to_send, server_side=True)
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        while not state.open_inbound_streams:
            try:
                tls.do_handshake()
                state.receive_data(tls.read(65_536))
            except ssl.SSLWantReadError:
                writer.write(to_send.read())
                received.write(await reader.read(65_536))
        state.send_headers(1, [(":status", "200")])
        for start in range(0, len(body), 16_000):
            state.send_data(1, body[start : start + 16_000])
        tls.write(state.data_to_send())
        # A record that nobody has encrypted.
        writer.write(to_send.read() + b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await reader.read()
        writer.close()
        has_ended.set()

    has_ended, position = asyncio.Event(), StartingPosition.trim_horizon()
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
    ):
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with (
            AioDataPlane(aws_config(url, ca_bundle), http=http_config("https-2")) as plane,
            plane.subscribe_to_shard(SHARD, CONSUMER_ARN, position) as subscription,
        ):
            assert await subscription.wait_for_event() is not None
            assert str((await subscription.receive()).continuation_sequence_number) == "1"
            with pytest.raises(ConnectionFailedError) as raised:
                await subscription.wait_for_event()
        await has_ended.wait()
    assert raised.value.retryable
