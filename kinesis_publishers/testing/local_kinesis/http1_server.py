"""HTTP/1.1: carries calls to the service, and breaks connections when it is told to."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kinesis_publishers.testing.local_kinesis.answers import ConnectionBroken, StreamingAnswer

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.answers import Answer
    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher

__all__ = ["Http1Server"]

_LINGER_ZERO = struct.pack("ii", 1, 0)
# Handlers that are still busy when the server stops hold a scripted delay: nobody waits for them.
_SHUTDOWN_SECONDS = 0.05


class Http1Server:
    """Makes the protocols of connections and closes what is left of them.

    Args:
        dispatcher: answers each request.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        # The low-level server: no routes and no middleware between a socket and the service.
        self._server = web.Server(self._handle)

    def new_connection(self) -> asyncio.Protocol:
        return _Connection(self._server, loop=asyncio.get_running_loop(), access_log=None)

    async def close(self) -> None:
        """Break the connections that are open, idle or not, and end the streams on them."""
        connections = self._server.connections
        transports = [connection.transport for connection in connections]
        for connection in connections:
            if isinstance(connection, _Connection):
                connection.cancel_stream()
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN_SECONDS)
        for transport in transports:
            # A transport that was only closed waits for its client to read what is buffered.
            if transport is not None:
                transport.abort()

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


class _Connection(web.RequestHandler):
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
    assert isinstance(connection, _Connection)
    connection.streaming = asyncio.current_task()
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    try:
        # It fails where the client has left before this: nobody would cancel the stream later.
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
