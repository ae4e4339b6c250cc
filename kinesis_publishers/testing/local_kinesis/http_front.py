"""The front: one port, where clients speak HTTP/1.1 or HTTP/2.

Over TLS they agree on it by ALPN. A client that does not, or has no TLS, says it by how it begins:
the SDK for Java speaks HTTP/2 without asking.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from aiohttp import web

from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ConnectionBroken,
    StreamingAnswer,
)
from kinesis_publishers.testing.local_kinesis.http2_connection import Http2Connection

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher

_HTTP_2_BEGINNING = b"PRI "
# From accept() to the handler, and from close() to a closed socket, asyncio takes some turns.
_SETTLE_TURNS = 5
# What a client does not read is kept at most so far; asyncio's own mark over TLS is 512 KiB.
_WRITE_BUFFER_BYTES = 64 * 1024
# Handlers that are still busy when the server stops hold a scripted delay: closing does not wait.
_SHUTDOWN_SECONDS = 0.05


class HttpFront:
    """Listens on one address until it is closed; with ``tls`` it serves https, and nothing else."""

    def __init__(
        self, dispatcher: Dispatcher, tls: TlsOptions | None = None, *, max_streams: int = 128
    ) -> None:
        self._dispatcher = dispatcher
        self._tls = tls
        self._max_streams = max_streams
        # The low-level server: no routes and no middleware between a socket and the service.
        self._http1 = web.Server(self._handle)
        # A connection lives as long as its transport, or the last call that came over it.
        self._http2: WeakSet[Http2Connection] = WeakSet()
        self._listener: asyncio.Server | None = None
        #: The connections whose clients have not said yet what they speak.
        self.undecided: set[asyncio.Transport] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes any free one."""
        loop = asyncio.get_running_loop()
        context = None if self._tls is None else self._tls.server_context()
        self._listener = await loop.create_server(
            lambda: _Negotiation(self), host, port, ssl=context
        )
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and break the connections that are open, idle or not."""
        if self._listener is None:
            return
        # Stop accepting before closing: asyncio fails, and leaks the socket, when a connection is
        # set up whose listener has been closed since it was accepted.
        for listening in self._listener.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        await _settle()
        self._listener.close()
        for transport in self.undecided:
            transport.abort()
        for connection in list(self._http2):
            await connection.close()
        await self._close_http1()
        await _settle()

    async def _close_http1(self) -> None:
        connections = self._http1.connections
        transports = [connection.transport for connection in connections]
        for connection in connections:
            if isinstance(connection, _Http1Connection):
                connection.cancel_stream()
        self._http1.pre_shutdown()
        await self._http1.shutdown(_SHUTDOWN_SECONDS)
        for transport in transports:
            # A transport that was only closed waits for its client to read what is buffered.
            if transport is not None:
                transport.abort()

    @property
    def is_open(self) -> bool:
        return self._listener is not None and self._listener.is_serving()

    def connection_for(self, version: HttpVersion) -> asyncio.Protocol | None:
        """Return what serves a connection whose client speaks ``version``, if anything does."""
        if self._tls is not None and version not in self._tls.http_versions:
            return None
        if version == "1.1":
            loop = asyncio.get_running_loop()
            return _Http1Connection(self._http1, loop=loop, access_log=None)
        connection = Http2Connection(self._dispatcher, max_streams=self._max_streams)
        self._http2.add(connection)
        return connection

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # Not request.read(): that refuses bodies above 1 MiB, PutRecords has up to 14.
        body = await request.content.read()
        target, content_type = request.headers.get("X-Amz-Target", ""), request.content_type
        answer = await self._dispatcher.answer(
            request.method, request.path, target, body, content_type
        )
        if isinstance(answer, StreamingAnswer):
            return await _stream(request, answer)
        if answer.delivery == "reset":
            return _reset(request)
        if answer.delivery == "truncate":
            return await _truncate(request, answer)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


class _Negotiation(asyncio.Protocol):
    """Waits for the handshake, or for the first bytes, and hands over to what the client speaks."""

    _transport: asyncio.Transport

    def __init__(self, front: HttpFront) -> None:
        self._front = front
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        encryption = transport.get_extra_info("ssl_object")
        agreed = None if encryption is None else encryption.selected_alpn_protocol()
        if not self._front.is_open:
            transport.abort()
        elif agreed is not None:
            self._hand_over("2" if agreed == _ALPN_NAMES["2"] else "1.1")
        else:
            self._front.undecided.add(transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= len(_HTTP_2_BEGINNING):
            self._hand_over("2" if self._received.startswith(_HTTP_2_BEGINNING) else "1.1")

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.undecided.discard(self._transport)

    def _hand_over(self, version: HttpVersion) -> None:
        transport, connection = self._transport, self._front.connection_for(version)
        self._front.undecided.discard(transport)
        if connection is None:
            transport.abort()
            return
        transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._received:
            connection.data_received(self._received)


async def _settle() -> None:
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)


_LINGER_ZERO = struct.pack("ii", 1, 0)


class _Http1Connection(web.RequestHandler):
    """Cancels the stream whose client has left: it may be waiting for an event that never comes.

    Not aiohttp's ``handler_cancellation``: a call that has arrived is carried out, whether its
    client waits for the answer or not.
    """

    __slots__ = ("streaming",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.streaming: asyncio.Task[Any] | None = None

    def cancel_stream(self) -> None:
        if self.streaming is not None:
            self.streaming.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.cancel_stream()


async def _stream(request: web.BaseRequest, answer: StreamingAnswer) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, _Http1Connection)
    connection.streaming = asyncio.current_task()
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    try:
        # It fails if the client has left before: nothing would cancel the stream later.
        await response.prepare(request)
        async for piece in answer.body:
            await response.write(piece)
    except ConnectionBroken:
        return _reset(request)
    finally:
        connection.streaming = None
        await answer.body.aclose()
    return response


def _reset(request: web.BaseRequest) -> web.Response:
    transport = request.transport
    if transport is not None:
        # Lingering for no time at all makes close() send RST instead of FIN.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()
    return web.Response()


async def _truncate(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    promised, sent = answer.cut_short()
    headers = answer.headers | {"Content-Length": str(promised)}
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.force_close()
    await response.prepare(request)
    await response.write(sent)
    if request.transport is not None:
        request.transport.close()
    return response


HttpVersion = Literal["2", "1.1"]
_ALPN_NAMES: dict[HttpVersion, str] = {"1.1": "http/1.1", "2": "h2"}

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class TlsOptions:
    """What an https front offers: protocols, the best one first, and a certificate, in memory.

    The certificate is for ``host`` and the names of the loopback interface.
    """

    def __init__(self, host: str, http_versions: Sequence[HttpVersion]) -> None:
        # It brings cryptography with it, which a server without TLS has no use for.
        import trustme

        self._authority = trustme.CA()
        self.http_versions = http_versions
        self._certificate = self._authority.issue_cert(*dict.fromkeys((*_LOCAL_NAMES, host)))

    @contextmanager
    def ca_bundle(self, path: str | None = None) -> Iterator[str]:
        """Write what a client has to trust to ``path``, or for a while to a temporary file."""
        pem = self._authority.cert_pem.bytes()
        if path is not None:
            Path(path).write_bytes(pem)
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="local-kinesis-") as directory:
            temporary = Path(directory, "ca.pem")
            temporary.write_bytes(pem)
            yield str(temporary)

    def server_context(self) -> ssl.SSLContext:
        """Return what a server needs; the protocols are offered by ALPN."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        configure: Any = self._certificate.configure_cert
        configure(context)
        context.set_alpn_protocols([_ALPN_NAMES[version] for version in self.http_versions])
        return context
