"""Subscriptions over HTTP/2, each over a connection of its own."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from hpack import HPACKError

from kinesis_publishers.aws.carriers.aiohttp_carrier import AiohttpCarrier, _split_proxy
from kinesis_publishers.aws.carriers.carrier import (
    CONNECT_TIMEOUT_SECONDS,
    Endpoint,
    SignedCall,
    SubscriptionCarrier,
    SubscriptionResponse,
    connection_errors,
    http_2_not_offered,
)
from kinesis_publishers.aws.carriers.http2_frames import PROTOCOL, Exchange
from kinesis_publishers.config import HttpVersion, SubscriptionHttpConfig

_ERRORS = (OSError, HPACKError)
_TLS_RECORD_BYTES = 16 * 1024
_MAX_PROXY_ANSWER_BYTES = 64 * 1024
_HTTPS_PORT = 443
_SECOND_ADDRESS_SECONDS = 0.25
_CLOSED = "the service closed the connection"

_T = TypeVar("_T")


class Http2Carrier(SubscriptionCarrier):
    """Opens a connection per subscription, as with HTTP/1.1.

    On a shared connection, a call would wait at the server's limit of streams, and unread
    subscriptions would use up the receive window of the others.
    """

    def __init__(
        self, endpoint: Endpoint, http: SubscriptionHttpConfig, max_connections: int
    ) -> None:
        self._endpoint = endpoint
        self._requires_http_2 = http.version is HttpVersion.HTTP_2
        self._read_timeout_seconds = http.read_timeout_seconds
        self._proxy, self._proxy_headers = _split_proxy(endpoint.proxy_url)
        self._context: ssl.SSLContext | None = None
        self._context_lock = asyncio.Lock()
        # For a server that does not offer HTTP/2. It connects with the first call.
        self._http_1 = AiohttpCarrier(
            endpoint,
            read_timeout_seconds=http.read_timeout_seconds,
            max_connections=max_connections,
        )
        self._offers_http_2 = True

    async def open(self, call: SignedCall) -> SubscriptionResponse:
        if self._offers_http_2:
            connection = _Connection()
            try:
                with connection_errors(_ERRORS, call.where):
                    if await self._connect(connection, urlsplit(call.url)):
                        connection.send(_request_headers(call), call.body)
                        while connection.exchange.status is None:
                            await connection.wait(self._read_timeout_seconds)
                        return _Http2Response(connection, self._read_timeout_seconds, call.where)
            except BaseException:
                connection.abort()
                raise
            connection.abort()
            if self._requires_http_2:
                raise http_2_not_offered(call.url)
            self._offers_http_2 = False
        return await self._http_1.open(call)

    async def _connect(self, connection: _Connection, url: SplitResult) -> bool:
        """Return whether the other end speaks HTTP/2."""
        proxy, loop = self._proxy, asyncio.get_running_loop()
        context = self._context or await self._create_context()
        host, port = url.hostname or "", url.port or _HTTPS_PORT
        at, tls_of_proxy = (host, port), None
        if proxy is not None:
            at = proxy.host or "", proxy.port or 0
            if proxy.scheme == "https":
                tls_of_proxy = await asyncio.to_thread(self._endpoint.tls_context)
        connecting = loop.create_connection(
            lambda: connection,
            *at,
            ssl=tls_of_proxy,
            happy_eyeballs_delay=_SECOND_ADDRESS_SECONDS,
        )
        await _within(CONNECT_TIMEOUT_SECONDS, connecting)
        if proxy is not None:
            await connection.open_tunnel(host, port, self._proxy_headers)
        return await connection.start_tls(context, host)

    async def _create_context(self) -> ssl.SSLContext:
        async with self._context_lock:
            if self._context is None:
                context = await asyncio.to_thread(self._endpoint.tls_context)
                context.set_alpn_protocols([PROTOCOL, "http/1.1"])
                self._context = context
        return self._context

    async def close(self) -> None:
        await self._http_1.close()


async def _within(seconds: float, result: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        raise TimeoutError(f"nothing came for {seconds:g} s") from None


def _request_headers(call: SignedCall) -> dict[str, str]:
    url = urlsplit(call.url)
    authority = url.netloc.removesuffix(f":{_HTTPS_PORT}")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    names = {":method": "POST", ":scheme": "https", ":authority": authority, ":path": path}
    return names | {name.lower(): value for name, value in call.headers.items()}


class _Http2Response(SubscriptionResponse):
    def __init__(self, connection: _Connection, timeout_seconds: float, where: str) -> None:
        exchange = connection.exchange
        assert exchange.status is not None
        self.status, self.headers = exchange.status, exchange.headers
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._where = where

    async def read(self) -> bytes:
        while True:
            data = self._connection.take()
            if data or self._connection.exchange.has_ended:
                return data
            with connection_errors(_ERRORS, self._where):
                await self._connection.wait(self._timeout_seconds)

    async def close(self) -> None:
        self._connection.abort()


class _Connection(asyncio.Protocol):
    """A socket, TLS on it, and the exchange that it carries.

    asyncio's TLS keeps 256 KiB for every connection.
    """

    def __init__(self) -> None:
        self.exchange = Exchange()
        self._transport: asyncio.Transport | None = None
        self._proxy_answer = b""
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_secure = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None

    async def open_tunnel(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._write("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._proxy_answer:
            await self.wait(CONNECT_TIMEOUT_SECONDS)
        status = self._proxy_answer.partition(b"\r\n")[0].decode("latin-1")
        if not re.match(r"HTTP/1\.\d 2\d\d\b", status):
            raise ConnectionRefusedError(f"the proxy opens no tunnel: {status}")

    async def start_tls(self, context: ssl.SSLContext, host: str) -> bool:
        """Return whether HTTP/2 has been agreed on."""
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=host)
        self.data_received(b"")
        while not self._is_secure:
            await self.wait(CONNECT_TIMEOUT_SECONDS)
        return self._tls.selected_alpn_protocol() == PROTOCOL

    def send(self, headers: Mapping[str, str], body: bytes) -> None:
        self.exchange.request(headers, body)
        self._flush()

    def take(self) -> bytes:
        data = self.exchange.take()
        self._flush()
        return data

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until something has arrived.

        Raises:
            Exception: one of _ERRORS, from the connection's end on.
        """
        if self._error is not None:
            raise self._error
        self._news = asyncio.get_running_loop().create_future()
        try:
            await _within(timeout_seconds, self._news)
        finally:
            self._news = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._error is not None:
            return
        try:
            if self._tls is None:
                self._proxy_answer += data
                if len(self._proxy_answer) > _MAX_PROXY_ANSWER_BYTES:
                    raise ConnectionRefusedError("the proxy answers without an end")
            else:
                self._received.write(data)
                self._read_tls(self._tls)
        except _ERRORS as error:
            self._error = error
        self._flush()
        self._wake()

    def _read_tls(self, tls: ssl.SSLObject) -> None:
        with suppress(ssl.SSLWantReadError):
            if not self._is_secure:
                tls.do_handshake()
                self._is_secure = True
            while data := tls.read(_TLS_RECORD_BYTES):
                self.exchange.receive(data)
            raise ConnectionResetError(_CLOSED)

    def _flush(self) -> None:
        # OpenSSL refuses to encrypt after an error.
        if self._is_secure and self._tls is not None and self._error is None:
            data = self.exchange.to_send()
            if data:
                self._tls.write(data)
        if self._to_send.pending:
            self._write(self._to_send.read())

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._error = self._error or error or ConnectionResetError(_CLOSED)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
