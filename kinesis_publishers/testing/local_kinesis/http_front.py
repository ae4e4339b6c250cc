"""The HTTP/1.1 front: carries calls to the service, and breaks connections when it is told to."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.admin import Admin
    from kinesis_publishers.testing.local_kinesis.service import Answer, KinesisService

__all__ = ["HttpFront"]

_LINGER_ZERO = struct.pack("ii", 1, 0)
# Handlers that are still busy when the server stops hold a scripted delay: nobody waits for them.
_SHUTDOWN_SECONDS = 0.05
# From accept() to the handler, and from close() to a closed socket, asyncio takes some turns.
_SETTLE_TURNS = 5


class HttpFront:
    """Listens on one address until it is closed."""

    def __init__(self, service: KinesisService, admin: Admin) -> None:
        self._service = service
        self._admin = admin
        # The low-level server: no routes and no middleware between a socket and the service.
        self._server = web.Server(self._handle, access_log=None)
        self._listener: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes any free one."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, host, port)
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
        transports = [handler.transport for handler in self._server.connections]
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN_SECONDS)
        for transport in transports:
            # A transport that was only closed waits for its client to read what is buffered.
            if transport is not None:
                transport.abort()
        await _settle()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # Not request.read(): that refuses bodies above 1 MiB, PutRecords has up to 14.
        body = await request.content.read()
        if request.path.startswith("/_admin/"):
            return _response(self._admin.handle(request.method, request.path, body))
        answer = await self._service.handle(request.headers.get("X-Amz-Target", ""), body)
        if answer.delivery == "reset":
            return _reset(request)
        if answer.delivery == "truncate":
            return await _truncate(request, answer)
        return _response(answer)


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
