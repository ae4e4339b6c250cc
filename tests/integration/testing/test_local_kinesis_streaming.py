"""Streaming answers over every way to reach a front: http, and https with either HTTP version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import pytest

from kinesis_publishers.testing.local_kinesis.answers import Answer, ConnectionBroken
from tests.integration.readers.fanout_reader import until
from tests.integration.testing.front_harness import (
    WAYS,
    Body,
    Running,
    running,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PIECE = bytes(64 * 1024)
# More than the buffers of sockets and HTTP/2 windows can hold.
FLOOD = 64 * 1024 * 1024 // len(PIECE)


@pytest.fixture(params=list(WAYS))
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    async with running(request.param) as opened:
        yield opened


async def test_every_piece_arrives_before_the_next_one_is_made(server: Running) -> None:
    async with server.open("/", b"first") as stream:
        assert await stream.read(5) == b"first"
        stream.body.give(b"second")
        assert await stream.read(6) == b"second"
        stream.body.give(None)
        assert await stream.read(1) == b""
    assert stream.response.status_code == 200
    assert stream.response.headers["content-type"] == "application/vnd.amazon.eventstream"
    assert stream.response.headers["x-amzn-requestid"]


async def test_the_headers_arrive_before_there_is_a_piece(server: Running) -> None:
    async with server.open("/") as stream:
        assert stream.response.status_code == 200
        assert stream.body.made == 0


async def test_a_request_arrives_whole(server: Running) -> None:
    server.script.add_answer("/put", Answer(400, b"no"))
    content = bytes(range(256)) * 40_000
    target = "Kinesis_20131202.PutRecords"
    response = await server.client.put("/put", content=content, headers={"X-Amz-Target": target})
    assert (response.status_code, response.content) == (400, b"no")
    assert server.script.requests == [("PUT", "/put", target, content)]


async def test_a_client_that_does_not_read_holds_the_body_back(server: Running) -> None:
    async with server.open("/", *[PIECE] * FLOOD, None) as stream:
        assert await settled(lambda: stream.body.made) < FLOOD
        received = await stream.read(FLOOD * len(PIECE) + 1)
    assert len(received) == FLOOD * len(PIECE)


@pytest.mark.parametrize("pieces", [1, FLOOD], ids=["between events", "within an event"])
async def test_a_client_that_leaves_closes_the_body(server: Running, pieces: int) -> None:
    async with server.open("/", *[PIECE] * pieces) as stream:
        await stream.read(1)
        await server.client.aclose()
    await until(stream.body.closed.is_set)
    assert stream.body.made <= pieces


async def test_a_broken_connection_ends_the_body_with_an_error(server: Running) -> None:
    async with server.open("/", b"first") as stream:
        assert await stream.read(5) == b"first"
        stream.body.give(ConnectionBroken())
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await stream.read(1)
    assert stream.body.closed.is_set()


async def test_a_server_that_closes_ends_its_streams_and_leaves_no_task(server: Running) -> None:
    before = asyncio.all_tasks()
    async with (
        server.open("/waiting", b"first") as waiting,
        server.open("/flooding", *[PIECE] * FLOOD) as flooding,
    ):
        await waiting.read(5)
        await settled(lambda: flooding.body.made)
        await server.front.close()
        assert waiting.body.closed.is_set()
        assert flooding.body.closed.is_set()
        assert asyncio.all_tasks() <= before
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await waiting.read(1)


@pytest.mark.parametrize("delivery", ["reset", "truncate"])
@pytest.mark.parametrize("content", [b"", b"content"])
async def test_an_answer_can_break_off(server: Running, delivery: str, content: bytes) -> None:
    server.script.add_answer("/", Answer(200, content, delivery=delivery))  # type: ignore[arg-type]
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await server.client.post("/")


async def test_a_call_is_carried_out_though_its_client_has_left(server: Running) -> None:
    arrived, may_go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def put() -> Answer:
        arrived.set()
        await may_go_on.wait()
        done.set()
        return Answer(200, b"")

    server.script.calls["/"] = put
    calling = asyncio.create_task(server.client.post("/"))
    await until(arrived.is_set)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await server.client.aclose()
    may_go_on.set()
    await until(done.is_set)


async def test_a_body_whose_client_left_before_it_began_is_not_waited_for(server: Running) -> None:
    arrived, may_go_on = asyncio.Event(), asyncio.Event()
    body = Body()
    answer = server.script.answer

    async def slow_answer(*request: Any) -> Any:
        arrived.set()
        await may_go_on.wait()
        return await answer(*request)

    server.script.bodies["/"] = body
    server.script.answer = slow_answer  # type: ignore[method-assign,assignment]
    before = asyncio.all_tasks()
    calling = asyncio.create_task(server.client.post("/"))
    await until(arrived.is_set)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await server.client.aclose()
    may_go_on.set()
    await until(lambda: asyncio.all_tasks() <= before)


async def test_aiohttp_reads_the_pieces_as_chunks() -> None:
    async with running("http") as server, aiohttp.ClientSession() as session:
        body = server.script.bodies["/"] = Body(b"first")
        async with session.post(str(server.client.base_url)) as response:
            chunks = response.content.iter_chunks()
            assert await anext(chunks) == (b"first", True)
            body.give(b"second")
            assert await anext(chunks) == (b"second", True)
            body.give(None)
            assert b"".join([piece async for piece, _ in chunks]) == b""
