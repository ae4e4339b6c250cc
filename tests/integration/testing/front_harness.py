"""A front without a service: what it answers is scripted, and so is the client's reading."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx

from kinesis_publishers.testing.local_kinesis.answers import Answer, StreamingAnswer
from kinesis_publishers.testing.local_kinesis.http_front import HttpFront, TlsOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from kinesis_publishers.testing.local_kinesis.http_front import HttpVersion

HOST = "127.0.0.1"
DEADLINE_SECONDS = 60
#: The ways to reach a front, and the HTTP version that is spoken there.
WAYS: dict[str, HttpVersion] = {
    "http": "1.1",
    "http-2": "2",
    "https-1.1": "1.1",
    "https-2": "2",
}


async def settled(value: Callable[[], int]) -> int:
    """Return the value once it has stopped to change."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        last, unchanged = value(), 0
        while unchanged < 10:
            await asyncio.sleep(0.02)
            unchanged = unchanged + 1 if value() == last else 0
            last = value()
    return last


class Body:
    """Pieces that a test hands out one by one; None ends the body, an exception is raised."""

    def __init__(self, *pieces: bytes | Exception | None) -> None:
        self.closed = asyncio.Event()
        self.made = 0
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for piece in pieces:
            self.give(piece)

    def give(self, piece: bytes | Exception | None) -> None:
        self._pieces.put_nowait(piece)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            while (piece := await self._pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                self.made += 1
                yield piece
        finally:
            self.closed.set()


class Script:
    """Stands in for the dispatcher: an answer, or a coroutine that returns one, for each path."""

    def __init__(self) -> None:
        self.bodies: dict[str, Body] = {}
        self.calls: dict[str, Callable[[], Awaitable[Answer]]] = {}
        self.requests: list[tuple[str, str, str, bytes]] = []

    async def answer(
        self, method: str, path: str, target: str, body: bytes, content_type: str
    ) -> Answer | StreamingAnswer:
        self.requests.append((method, path, target, body))
        if path in self.bodies:
            return StreamingAnswer(self.bodies[path].stream())
        return await self.calls[path]()

    def add_answer(self, path: str, answer: Answer) -> None:
        async def give() -> Answer:
            return answer

        self.calls[path] = give


class Running:
    """A front that listens, and the client that reaches it."""

    def __init__(
        self, front: HttpFront, script: Script, client: httpx.AsyncClient, ca_bundle: str
    ) -> None:
        self.front = front
        self.script = script
        self.client = client
        self.ca_bundle = ca_bundle

    @property
    def port(self) -> int:
        return self.client.base_url.port or 0

    @asynccontextmanager
    async def open(self, path: str, *pieces: bytes | Exception | None) -> AsyncIterator[Stream]:
        """Open a stream whose body begins with ``pieces``."""
        body = self.script.bodies[path] = Body(*pieces)
        async with self.client.stream("POST", path, content=b"{}") as response:
            yield Stream(body, response)


class Stream:
    """Both ends of a streaming answer."""

    def __init__(self, body: Body, response: httpx.Response) -> None:
        self.body = body
        self.response = response
        self._received = response.aiter_raw()

    async def read(self, size: int) -> bytes:
        """Read until ``size`` bytes are there; fewer come at the end of the body."""
        found = bytearray()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(found) < size:
                piece = await anext(self._received, b"")
                if not piece:
                    break
                found += piece
        return bytes(found)


@asynccontextmanager
async def running(way: str, *, max_streams: int = 128) -> AsyncIterator[Running]:
    script = Script()
    is_secure = way.startswith("https")
    tls = TlsOptions(HOST, (WAYS[way],))
    front = HttpFront(script, tls if is_secure else None, max_streams=max_streams)
    with tls.ca_bundle() as ca_bundle:
        port = await front.open(HOST, 0)
        try:
            async with httpx.AsyncClient(
                base_url=f"{'https' if is_secure else 'http'}://{HOST}:{port}",
                http1=WAYS[way] == "1.1",
                http2=WAYS[way] == "2",
                verify=_trust(ca_bundle),
                timeout=DEADLINE_SECONDS,
            ) as client:
                yield Running(front, script, client, ca_bundle)
        finally:
            await front.close()


def _trust(ca_bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_bundle)
