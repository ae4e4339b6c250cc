"""The front: one port, where clients speak HTTP/1.1 or HTTP/2.

Over TLS they agree on it by ALPN. A client that does not, or has no TLS, says it by how it begins:
the SDK for Java speaks HTTP/2 without asking.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from kinesis_publishers.testing.local_kinesis.http1_server import Http1Server
from kinesis_publishers.testing.local_kinesis.http2_connection import Http2Connection

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher
    from kinesis_publishers.testing.local_kinesis.tls import HttpVersion, TlsOptions

__all__ = ["HttpFront"]

_HTTP_1, _HTTP_2 = "http/1.1", "h2"
_HTTP_2_BEGINNING = b"PRI "
_ALPN_NAMES: dict[HttpVersion, str] = {"1.1": _HTTP_1, "2": _HTTP_2}
# From accept() to the handler, and from close() to a closed socket, asyncio takes some turns.
_SETTLE_TURNS = 5
# What a client does not read is kept at most so far; asyncio's own mark over TLS is 512 KiB.
_WRITE_BUFFER_BYTES = 64 * 1024


class HttpFront:
    """Listens on one address until it is closed.

    Args:
        dispatcher: answers each request.
        tls: makes it serve https; without it, http.
        max_streams: how many calls an HTTP/2 connection may have open at once.
    """

    def __init__(
        self, dispatcher: Dispatcher, tls: TlsOptions | None = None, *, max_streams: int = 128
    ) -> None:
        self._dispatcher = dispatcher
        self._tls = tls
        self._max_streams = max_streams
        self._http1 = Http1Server(dispatcher)
        # A connection lives as long as its transport, or the last call that came over it.
        self._http2: WeakSet[Http2Connection] = WeakSet()
        self._listener: asyncio.Server | None = None
        #: The connections whose clients have not said yet what they speak.
        self.undecided: set[asyncio.Transport] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes any free one."""
        loop = asyncio.get_running_loop()
        context = None
        if self._tls is not None:
            protocols = [_ALPN_NAMES[version] for version in self._tls.http_versions]
            context = self._tls.certificate.server_context(protocols)
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
        await self._http1.close()
        await _settle()

    @property
    def is_open(self) -> bool:
        return self._listener is not None and self._listener.is_serving()

    def connection_for(self, protocol: str) -> asyncio.Protocol | None:
        """Return what serves a connection whose client speaks ``protocol``, if anything does."""
        version: HttpVersion = "2" if protocol == _HTTP_2 else "1.1"
        if self._tls is not None and version not in self._tls.http_versions:
            return None
        if version == "1.1":
            return self._http1.new_connection()
        connection = Http2Connection(self._dispatcher, max_streams=self._max_streams)
        self._http2.add(connection)
        return connection


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
            self._hand_over(agreed)
        else:
            self._front.undecided.add(transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= len(_HTTP_2_BEGINNING):
            is_http_2 = self._received.startswith(_HTTP_2_BEGINNING)
            self._hand_over(_HTTP_2 if is_http_2 else _HTTP_1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.undecided.discard(self._transport)

    def _hand_over(self, protocol: str) -> None:
        transport, connection = self._transport, self._front.connection_for(protocol)
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
