"""A service that answers SubscribeToShard as a test scripts it, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import h2.config
import h2.connection
import h2.events
from aiohttp import web
from aiohttp.test_utils import TestServer

from kinesis_publishers import Shard, StartingPosition
from kinesis_publishers.config import (
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
    HttpVersion,
    SubscriptionHttpConfig,
)
from kinesis_publishers.testing.local_kinesis.dispatch import CBOR, json_of_cbor
from kinesis_publishers.testing.local_kinesis.event_feed import encode_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import trustme
    from hyperframe.frame import Frame

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CONSUMER_ARN = f"{ARN}/consumer/reader:1"
SHARD = Shard(stream_arn=ARN, shard_id="shardId-000000000000")
TRIM_HORIZON = StartingPosition.trim_horizon()
INITIAL = encode_frame({":message-type": "event", ":event-type": "initial-response"}, b"{}")
_LINGER_ZERO = struct.pack("ii", 1, 0)

#: The ways in which subscriptions are carried: HTTP version, TLS.
CARRIERS = {
    "http": (HttpVersion.AUTO, False),
    "https-1.1": (HttpVersion.HTTP_1_1, True),
    "https-2": (HttpVersion.AUTO, True),
}


def event(number: int, *payloads: str) -> bytes:
    """Return a frame with records whose payloads are these base64 texts."""
    records = [
        {
            "Data": payload,
            "PartitionKey": "k",
            "SequenceNumber": str(number),
            "ApproximateArrivalTimestamp": 1.5,
        }
        for payload in payloads
    ]
    answer = {
        "Records": records,
        "ContinuationSequenceNumber": str(number),
        "MillisBehindLatest": 0,
    }
    headers = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
    return encode_frame(headers, json.dumps(answer).encode())


class Exchange(ABC):
    """One call as the service sees it."""

    request: dict[str, Any]
    headers: dict[str, str]

    @abstractmethod
    async def answer(self, status: int = 200) -> None:
        """Send the status and the headers."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send a piece of the body and wait until it is on its way."""

    @abstractmethod
    async def end(self) -> None:
        """End the body."""

    @abstractmethod
    def reset(self) -> None:
        """Break the connection with a TCP reset."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Wait until the client has closed the connection or reset the stream."""


Script: TypeAlias = Callable[[Exchange], Awaitable[None]]


class ScriptedService:
    """Listens on the loopback interface; answers every call with ``script``."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None) -> None:
        self.script = script
        self.url = ""
        self.exchanges: list[Exchange] = []
        self.open_connections = 0
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ScriptedService]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        await self.script(exchange)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_connections += 1
        chosen = writer.get_extra_info("ssl_object")
        speak = _speak_http2 if chosen and chosen.selected_alpn_protocol() == "h2" else _speak_http1
        try:
            await speak(self, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    writer.transport.abort()


async def _speak_http1(
    service: ScriptedService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}
    body = await reader.readexactly(int(headers["content-length"]))
    text = json_of_cbor(body) if headers["content-type"] == CBOR else body
    await service.run(_Http1Exchange(reader, writer, headers, json.loads(text)))


class _Http1Exchange(Exchange):
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: dict[str, str],
        request: dict[str, Any],
    ) -> None:
        self.headers = headers
        self.request = request
        self._reader = reader
        self._writer = writer

    async def answer(self, status: int = 200) -> None:
        self._writer.write(
            b"HTTP/1.1 %d X\r\nx-amzn-RequestId: id-1\r\nTransfer-Encoding: chunked\r\n\r\n"
            % status
        )
        await self._writer.drain()

    async def send(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def reset(self) -> None:
        _reset(self._writer)

    async def wait_closed(self) -> None:
        await self._reader.read()


async def _speak_http2(
    service: ScriptedService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    state.initiate_connection()
    exchanges: dict[int, Http2Exchange] = {}
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        while True:
            writer.write(state.data_to_send())
            data = await reader.read(65536)
            if not data:
                for exchange in exchanges.values():
                    exchange.closed.set()
                return
            for one in state.receive_data(data):
                if isinstance(one, h2.events.RequestReceived):
                    headers = {k.decode(): v.decode() for k, v in one.headers}
                    exchanges[one.stream_id] = Http2Exchange(state, writer, one.stream_id, headers)
                elif isinstance(one, h2.events.DataReceived):
                    exchanges[one.stream_id].body += one.data
                    state.acknowledge_received_data(one.flow_controlled_length, one.stream_id)
                elif isinstance(one, h2.events.StreamEnded):
                    exchange = exchanges[one.stream_id]
                    exchange.request = json.loads(exchange.body)
                    group.create_task(service.run(exchange))
                elif isinstance(one, h2.events.StreamReset):
                    exchanges[one.stream_id].closed.set()
                elif isinstance(one, h2.events.WindowUpdated):
                    for exchange in exchanges.values():
                        exchange.window.set()


class Http2Exchange(Exchange):
    """A call on a stream of HTTP/2."""

    def __init__(
        self,
        state: h2.connection.H2Connection,
        writer: asyncio.StreamWriter,
        stream_id: int,
        headers: dict[str, str],
    ) -> None:
        self.headers = headers
        self.body = b""
        self.closed = asyncio.Event()
        self.window = asyncio.Event()
        self._state = state
        self._writer = writer
        self.stream_id = stream_id

    async def answer(self, status: int = 200) -> None:
        self._state.send_headers(
            self.stream_id, [(":status", str(status)), ("x-amzn-requestid", "id-1")]
        )
        await self._flush()

    async def send(self, data: bytes) -> None:
        while data:
            room = min(self.window_bytes, self._state.max_outbound_frame_size)
            if room <= 0:
                self.window.clear()
                await self.window.wait()
                continue
            self._state.send_data(self.stream_id, data[:room])
            data = data[room:]
            await self._flush()

    async def end(self) -> None:
        self._state.end_stream(self.stream_id)
        await self._flush()

    @property
    def window_bytes(self) -> int:
        return self._state.local_flow_control_window(self.stream_id)

    async def send_raw(self, *frames: Frame) -> None:
        """Send frames in one piece, in any state of the connection."""
        self._writer.write(b"".join(one.serialize() for one in frames))
        await self._writer.drain()

    def leave(self) -> None:
        """Close the connection without a word about the stream."""
        self._writer.close()

    async def _flush(self) -> None:
        self._writer.write(self._state.data_to_send())
        await self._writer.drain()

    def reset(self) -> None:
        _reset(self._writer)

    async def wait_closed(self) -> None:
        await self.closed.wait()


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[AwsConfig]:
    """Serve every call over HTTP/1.1 with ``answer``; yield what connects to it."""
    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        yield aws_config(str(server.make_url("")), None)


def server_tls(
    authority: trustme.CA, protocols: list[str], host: str = "127.0.0.1"
) -> ssl.SSLContext:
    """Return a context for ``host`` that offers ``protocols``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(protocols)
    authority.issue_cert(host).configure_cert(context)
    return context


def aws_config(url: str, ca_bundle: Path | None) -> AwsConfig:
    """Return the connection to a scripted service."""
    return AwsConfig(
        region="us-east-1",
        endpoint_url=url,
        ca_bundle=None if ca_bundle is None else str(ca_bundle),
        credentials=CredentialsConfig(
            provider=CredentialsProvider.BASIC, access_key_id="key", secret_key="secret"
        ),
    )


def http_config(carrier: str, **changes: Any) -> SubscriptionHttpConfig:
    """Return the configuration of one of :data:`CARRIERS`."""
    return SubscriptionHttpConfig(version=CARRIERS[carrier][0], **changes)
