"""The front: carries calls to the service over HTTP/1.1 and HTTP/2, and breaks connections.

Over TLS the client chooses the protocol (ALPN); without TLS it is HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiohttp import web

from kinesis_publishers.testing.local_kinesis.answers import ConnectionBroken, StreamingAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_publishers.testing.local_kinesis.answers import Answer
    from kinesis_publishers.testing.local_kinesis.certificates import ServerCertificate
    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher
    from kinesis_publishers.testing.local_kinesis.http2_connection import Http2Connection

__all__ = ["HttpFront"]

_ALPN_NAMES = {"2": "h2", "1.1": "http/1.1"}
_LINGER_ZERO = struct.pack("ii", 1, 0)
# Handlers that are still busy when the server stops hold a scripted delay: nobody waits for them.
_SHUTDOWN_SECONDS = 0.05
# From accept() to the handler, and from close() to a closed socket, asyncio takes some turns.
_SETTLE_TURNS = 5


class HttpFront:
    """Listens on one address until it is closed.

    Args:
        dispatcher: answers each request.
        certificate: makes it serve https; without it, http.
        http_versions: the protocols that are offered over https, ``2`` and ``1.1``.
        max_streams: how many calls an HTTP/2 connection may have open at once.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        certificate: ServerCertificate | None = None,
        *,
        http_versions: Sequence[str] = ("2", "1.1"),
        max_streams: int = 128,
    ) -> None:
        self._dispatcher = dispatcher
        self._certificate = certificate
        self._protocols = [_ALPN_NAMES[version] for version in http_versions]
        self._max_streams = max_streams
        # The low-level server: no routes and no middleware between a socket and the service. A
        # handler that waits for the next event is cancelled when its client has gone.
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._http2: WeakSet[Http2Connection] = WeakSet()
        self._listener: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes any free one."""
        loop = asyncio.get_running_loop()
        if self._certificate is None:
            self._listener = await loop.create_server(self._server, host, port)
        else:
            context = self._certificate.server_context(self._protocols)
            self._listener = await loop.create_server(
                lambda: _Negotiation(self._protocol_for), host, port, ssl=context
            )
        return int(self._listener.sockets[0].getsockname()[1])

    def _protocol_for(self, alpn_name: str | None) -> asyncio.Protocol:
        if alpn_name != _ALPN_NAMES["2"]:
            return self._server()
        # Only a server that speaks HTTP/2 needs h2.
        from kinesis_publishers.testing.local_kinesis.http2_connection import Http2Connection

        connection = Http2Connection(self._dispatcher, max_streams=self._max_streams)
        self._http2.add(connection)
        return connection

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
        connections = list(self._http2)
        for connection in connections:
            connection.close()
        transports = [handler.transport for handler in self._server.connections]
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN_SECONDS)
        for transport in transports:
            # A transport that was only closed waits for its client to read what is buffered.
            if transport is not None:
                transport.abort()
        await _settle()
        for connection in connections:
            await connection.wait_closed()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # Not request.read(): that refuses bodies above 1 MiB, PutRecords has up to 14.
        body = await request.content.read()
        target = request.headers.get("X-Amz-Target", "")
        answer = await self._dispatcher.answer(request.method, request.path, target, body)
        if isinstance(answer, StreamingAnswer):
            return await _stream(request, answer)
        if answer.delivery == "reset":
            return _reset(request)
        if answer.delivery == "truncate":
            return await _truncate(request, answer)
        return _response(answer)


class _Negotiation(asyncio.Protocol):
    """Waits for the handshake and hands over to the protocol that was agreed on in it."""

    def __init__(self, protocol_for: Callable[[str | None], asyncio.Protocol]) -> None:
        self._protocol_for = protocol_for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = self._protocol_for(agreed)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


async def _settle() -> None:
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


def _reset(request: web.BaseRequest) -> web.Response:
    transport = request.transport
    if transport is not None:
        # Lingering for no time at all makes close() send RST instead of FIN.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()
    return web.Response()


async def _stream(request: web.BaseRequest, answer: StreamingAnswer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    try:
        await response.prepare(request)
        async for piece in answer.body:
            await response.write(piece)
    except ConnectionBroken:
        return _reset(request)
    finally:
        await answer.body.aclose()
    return response


async def _truncate(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    # An empty body cannot be cut short: promise a little more than there is.
    promised = max(len(answer.body), 2)
    headers = answer.headers | {"Content-Length": str(promised)}
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.force_close()
    await response.prepare(request)
    await response.write(answer.body[: promised // 2])
    if request.transport is not None:
        request.transport.close()
    return response
