"""Subscriptions over HTTP/2, each over a connection of its own."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

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
from kinesis_publishers.config import HttpVersion, SubscriptionHttpConfig

if TYPE_CHECKING:
    from hyperframe.frame import Frame, GoAwayFrame

_ERRORS = (OSError, ProtocolError)
_PROTOCOL: Final = "h2"
_STREAM: Final = 1
# How much the service may send before it is read, and the largest frame.
_WINDOW_BYTES = 256 * 1024
_FIRST_WINDOW_BYTES = 65_535
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
                        while connection.status is None:
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
            lambda: connection, *at, ssl=tls_of_proxy, happy_eyeballs_delay=_SECOND_ADDRESS_SECONDS
        )
        await _within(CONNECT_TIMEOUT_SECONDS, connecting)
        if proxy is not None:
            await connection.open_tunnel(host, port, self._proxy_headers)
        return await connection.start_tls(context, host)

    async def _create_context(self) -> ssl.SSLContext:
        async with self._context_lock:
            if self._context is None:
                context = await asyncio.to_thread(self._endpoint.tls_context)
                context.set_alpn_protocols([_PROTOCOL, "http/1.1"])
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
        assert connection.status is not None
        self.status, self.headers = connection.status, connection.headers
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._where = where

    async def read(self) -> bytes:
        while True:
            data = self._connection.take()
            if data or self._connection.has_ended:
                return data
            with connection_errors(_ERRORS, self._where):
                await self._connection.wait(self._timeout_seconds)

    async def close(self) -> None:
        self._connection.abort()


class _Http(H2Connection):
    """Goes on after a GOAWAY that lets the stream end; h2 would receive nothing more."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code == ErrorCodes.NO_ERROR and frame.last_stream_id >= _STREAM:
            return [], []
        return super()._receive_goaway_frame(frame)


class _Connection(asyncio.Protocol):
    """A socket, TLS on it (asyncio's would keep 256 KiB), and the only stream of HTTP/2 on that."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.has_ended = False
        # Latin-1 reads any header.
        self._http = _Http(H2Configuration(header_encoding="latin-1"))
        self._chunks: list[bytes] = []
        self._unacknowledged = 0
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
        return self._tls.selected_alpn_protocol() == _PROTOCOL

    def send(self, headers: Mapping[str, str], body: bytes) -> None:
        self._http.send_headers(_STREAM, headers.items())
        self._http.send_data(_STREAM, body, end_stream=True)
        self._flush()

    def take(self) -> bytes:
        """Return what has arrived of the body, and allow the service to send as much again."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        if self._unacknowledged:
            self._http.acknowledge_received_data(self._unacknowledged, _STREAM)
            self._unacknowledged = 0
            self._flush()
        return data

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until something has arrived; from the connection's end on, raise one of _ERRORS."""
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
                if tls.selected_alpn_protocol() == _PROTOCOL:
                    self._begin_http()
            while data := tls.read(_TLS_RECORD_BYTES):
                for event in self._http.receive_data(data):
                    self._handle(event)
            raise ConnectionResetError(_CLOSED)

    def _begin_http(self) -> None:
        self._http.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: _WINDOW_BYTES,
            },
        )
        self._http.max_inbound_frame_size = _WINDOW_BYTES
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW_BYTES - _FIRST_WINDOW_BYTES)

    def _handle(self, event: Event) -> None:
        match event:
            case DataReceived():
                self._chunks.append(bytes(event.data or b""))
                self._unacknowledged += event.flow_controlled_length
            case ResponseReceived():
                fields = {str(name): str(value) for name, value in event.headers}
                status = fields.pop(":status")
                if not status.isdecimal():
                    raise ConnectionAbortedError(f"an answer with the status {status!r}")
                self.status, self.headers = int(status), fields
            case StreamEnded():
                self.has_ended = True
            case StreamReset(error_code=code):
                raise ConnectionResetError(f"the service reset the stream with code {code}")
            case ConnectionTerminated(error_code=code) if not self.has_ended:
                raise ConnectionAbortedError(f"the service ended the connection with code {code}")

    def _flush(self) -> None:
        # OpenSSL refuses to encrypt after an error.
        if self._is_secure and self._tls is not None and self._error is None:
            data = self._http.data_to_send()
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
