"""The front: one port, where clients speak HTTP/1.1 or, over TLS, what they agree on by ALPN."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from kinesis_publishers.testing.local_kinesis.http1_server import Http1Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_publishers.testing.local_kinesis.certificates import ServerCertificate
    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher
    from kinesis_publishers.testing.local_kinesis.http2_server import Http2Server

__all__ = ["HttpFront", "HttpVersion", "TlsOptions"]

HttpVersion = Literal["2", "1.1"]

_HTTP_1, _HTTP_2 = "http/1.1", "h2"
_ALPN_NAMES: dict[HttpVersion, str] = {"1.1": _HTTP_1, "2": _HTTP_2}
# From accept() to the handler, and from close() to a closed socket, asyncio takes some turns.
_SETTLE_TURNS = 5
# What a client does not read is kept at most so far; asyncio's own mark over TLS is 512 KiB.
_WRITE_BUFFER_BYTES = 64 * 1024


@frozen
class TlsOptions:
    """What an https front offers.

    Attributes:
        certificate: what it shows.
        http_versions: the protocols it offers, the best one first.
        max_streams: how many calls an HTTP/2 connection may have open at once.
    """

    certificate: ServerCertificate
    http_versions: Sequence[HttpVersion] = ("2", "1.1")
    max_streams: int = 128


class HttpFront:
    """Listens on one address until it is closed.

    Args:
        dispatcher: answers each request.
        tls: makes it serve https; without it, http.
    """

    def __init__(self, dispatcher: Dispatcher, tls: TlsOptions | None = None) -> None:
        self._tls = tls
        self._http1 = Http1Server(dispatcher)
        self._http2 = _http2_server(dispatcher, tls)
        self._listener: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes any free one."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._listener = await loop.create_server(self._http1.new_connection, host, port)
        else:
            protocols = [_ALPN_NAMES[version] for version in self._tls.http_versions]
            context = self._tls.certificate.server_context(protocols)
            self._listener = await loop.create_server(
                lambda: _Negotiation(self._connection_for), host, port, ssl=context
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
        if self._http2 is not None:
            await self._http2.close()
        await self._http1.close()
        await _settle()

    def _connection_for(self, protocol: str | None) -> asyncio.Protocol | None:
        """Return what serves a connection whose client agreed to ``protocol``, if anything does."""
        if self._listener is None or not self._listener.is_serving() or self._tls is None:
            return None
        if protocol == _HTTP_2 and self._http2 is not None:
            return self._http2.new_connection()
        # A client that does not negotiate speaks HTTP/1.1.
        return self._http1.new_connection() if "1.1" in self._tls.http_versions else None


class _Negotiation(asyncio.Protocol):
    """Waits for the handshake and hands over to the protocol that was agreed on in it."""

    def __init__(self, connection_for: Callable[[str | None], asyncio.Protocol | None]) -> None:
        self._connection_for = connection_for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        connection = self._connection_for(agreed)
        if connection is None:
            transport.abort()
            return
        transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        transport.set_protocol(connection)
        connection.connection_made(transport)


def _http2_server(dispatcher: Dispatcher, tls: TlsOptions | None) -> Http2Server | None:
    if tls is None or "2" not in tls.http_versions:
        return None
    # Only a server that offers HTTP/2 needs h2.
    from kinesis_publishers.testing.local_kinesis.http2_server import Http2Server

    return Http2Server(dispatcher, max_streams=tls.max_streams)


async def _settle() -> None:
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)
