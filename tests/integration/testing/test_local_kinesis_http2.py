"""HTTP/2 as such: streams on one connection, windows, limits, odd headers, and what breaks off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from h2.errors import ErrorCodes

from kinesis_publishers.testing.local_kinesis.answers import Answer, ConnectionBroken
from tests.integration.readers.fanout_reader import until
from tests.integration.testing.front_harness import HOST, Body, Running, running, settled
from tests.integration.testing.http2_client import Http2Client, Received, http2_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PIECE = bytes(64 * 1024)
MANY = 300


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running("https-2", max_streams=MANY) as opened:
        yield opened


@pytest.fixture
async def client(server: Running) -> AsyncIterator[Http2Client]:
    async with http2_client(HOST, server.port, server.ca_bundle) as opened:
        yield opened


def open_stream(server: Running, client: Http2Client, *pieces: bytes | None) -> tuple[Body, int]:
    path = f"/{len(server.script.bodies)}"
    body = server.script.bodies[path] = Body(*pieces)
    return body, client.request(path)


async def test_hundreds_of_streams_share_a_connection(server: Running, client: Http2Client) -> None:
    opened = [open_stream(server, client, b"first") for _ in range(MANY)]
    for body, number in opened:
        await until(lambda number=number: client.streams[number].body == b"first")
        body.give(PIECE)
        body.give(None)
    for _, number in opened:
        await until(lambda number=number: client.streams[number].has_ended)
        assert len(client.streams[number].body) == len(b"first") + len(PIECE)


async def test_one_call_too_many_is_refused_alone() -> None:
    async with (
        running("https-2", max_streams=2) as small,
        http2_client(HOST, small.port, small.ca_bundle) as client,
    ):
        # Before it knows the limit, a client may open as many streams as it likes.
        opened = [open_stream(small, client, b"first") for _ in range(3)]
        last = opened[-1][1]
        await until(lambda: client.streams[last].reset_code == ErrorCodes.REFUSED_STREAM)
        assert client.http.remote_settings.max_concurrent_streams == 2
        opened[0][0].give(None)
        await until(lambda: client.streams[opened[0][1]].has_ended)
        _, another = open_stream(small, client, b"first")
        for number in (opened[1][1], another):
            await until(lambda number=number: client.streams[number].body == b"first")
        assert client.last_error is None


async def test_a_stream_without_room_does_not_hold_up_the_others(
    server: Running, client: Http2Client
) -> None:
    client.acknowledges = False
    client.http.increment_flow_control_window(16 * 1024 * 1024)
    stuck, number = open_stream(server, client, *[PIECE] * 10)
    window = client.http.local_settings.initial_window_size
    await until(lambda: len(client.streams[number].body) == window)
    _, other = open_stream(server, client, b"other", None)
    await until(lambda: client.streams[other].has_ended)
    assert stuck.made == 1


async def test_room_on_the_connection_goes_to_every_stream(
    server: Running, client: Http2Client
) -> None:
    client.acknowledges = False
    opened = [open_stream(server, client, PIECE, PIECE, None) for _ in range(4)]
    received = client.streams
    await settled(lambda: sum(len(received[number].body) for _, number in opened))
    window = client.http.local_settings.initial_window_size
    assert sum(len(received[number].body) for _, number in opened) == window
    for _, number in opened:
        client.http.increment_flow_control_window(len(PIECE) * 2, number)
    client.http.increment_flow_control_window(len(PIECE) * 8)
    client.flush()
    for _, number in opened:
        await until(lambda number=number: received[number].has_ended)


async def test_a_reset_by_the_client_closes_that_body_alone(
    server: Running, client: Http2Client
) -> None:
    left, number = open_stream(server, client, b"first")
    kept, other = open_stream(server, client, b"first")
    await until(lambda: client.streams[number].body == b"first")
    client.http.reset_stream(number, ErrorCodes.CANCEL)
    client.flush()
    await until(left.closed.is_set)
    kept.give(b" second")
    await until(lambda: client.streams[other].body == b"first second")


async def test_a_reset_by_the_client_closes_a_body_that_waits_for_room(
    server: Running, client: Http2Client
) -> None:
    client.acknowledges = False
    body, number = open_stream(server, client, *[PIECE] * 10)
    await settled(lambda: len(client.streams[number].body))
    client.http.reset_stream(number, ErrorCodes.CANCEL)
    client.flush()
    await until(body.closed.is_set)


async def test_a_broken_connection_is_a_reset_of_its_stream(
    server: Running, client: Http2Client
) -> None:
    body, number = open_stream(server, client, b"first")
    kept, other = open_stream(server, client, b"first")
    body.give(ConnectionBroken())
    await until(lambda: client.streams[number].reset_code is not None)
    assert client.streams[number].body == b"first"
    kept.give(None)
    await until(lambda: client.streams[other].has_ended)


async def test_a_truncated_answer_is_half_a_body_and_a_reset(
    server: Running, client: Http2Client
) -> None:
    server.script.add_answer("/", Answer(200, b"content", delivery="truncate"))
    number = client.request("/")
    await until(lambda: client.streams[number].reset_code is not None)
    assert client.streams[number].body == b"con"


async def test_frames_are_as_large_as_the_client_allows(server: Running) -> None:
    async with http2_client(
        HOST, server.port, server.ca_bundle, max_frame_bytes=len(PIECE)
    ) as client:
        await until(lambda: client.has_settings)
        client.http.increment_flow_control_window(len(PIECE))
        _, number = open_stream(server, client, PIECE[:60_000], None)
        await until(lambda: client.streams[number].has_ended)
        assert client.streams[number].frames[0] == 60_000


async def test_a_server_that_closes_says_so(server: Running, client: Http2Client) -> None:
    body, number = open_stream(server, client, b"first")
    await until(lambda: client.streams[number].body == b"first")
    await server.front.close()
    await until(lambda: client.last_error == ErrorCodes.NO_ERROR)
    assert body.closed.is_set()


@pytest.mark.parametrize("code", [ErrorCodes.NO_ERROR, ErrorCodes.INTERNAL_ERROR])
async def test_the_streams_of_a_client_that_leaves_end_by_themselves(
    server: Running, client: Http2Client, code: ErrorCodes
) -> None:
    """JavaScript's SDK says it once an answer begins; after an error none goes on."""
    body, number = open_stream(server, client, b"first")
    await until(lambda: client.streams[number].body == b"first")
    client.leave(code)
    if code is ErrorCodes.NO_ERROR:
        body.give(PIECE)
        await until(lambda: client.streams[number].body == b"first" + PIECE)
        assert not client.is_left
        body.give(None)
        await until(lambda: client.streams[number].has_ended)
    await until(lambda: client.is_left)
    assert body.closed.is_set()


async def test_a_client_that_breaks_the_protocol_is_told_and_its_streams_end(
    server: Running, client: Http2Client
) -> None:
    body, number = open_stream(server, client, b"first")
    await until(lambda: client.streams[number].body == b"first")
    client._writer.write(b"\0\0\4\10\0\0\0\0\0" + bytes(4))  # WINDOW_UPDATE by nothing
    await until(lambda: client.last_error == ErrorCodes.PROTOCOL_ERROR)
    await until(body.closed.is_set)


async def test_a_defect_of_the_service_does_not_leave_the_client_waiting(
    server: Running, client: Http2Client
) -> None:
    reported: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

    async def fail() -> Answer:
        raise LookupError("defect")

    server.script.calls["/"] = fail
    number = client.request("/")
    await until(lambda: client.streams[number].reset_code == ErrorCodes.INTERNAL_ERROR)
    await until(lambda: [type(error) for error in reported] == [LookupError])


HEADERS = {":method": b"POST", ":scheme": b"https", ":authority": b"local", ":path": b"/"}


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        (HEADERS | {"x-odd": b"\xff\xfe"}, "/"),
        ({":method": b"CONNECT", ":authority": b"local"}, ""),
    ],
    ids=["not text", "no path"],
)
async def test_a_request_with_odd_headers_is_answered(headers: dict[str, bytes], path: str) -> None:
    async with (
        running("https-2") as server,
        http2_client(HOST, server.port, server.ca_bundle) as client,
    ):
        server.script.add_answer(path, Answer(200, b"content"))
        client.http.config.validate_outbound_headers = False
        number = client.http.get_next_available_stream_id()
        client.streams[number] = Received()
        client.http.send_headers(number, list(headers.items()), end_stream=True)
        client.flush()
        await until(lambda: client.streams[number].has_ended)
        assert client.streams[number].body == b"content"
