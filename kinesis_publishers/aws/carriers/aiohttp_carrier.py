"""Subscriptions over HTTP/1.1 with aiohttp, and ordinary calls."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from io import BytesIO

import aiohttp
from botocore.parsers import ResponseParserError
from yarl import URL

from kinesis_publishers.aws.carriers.carrier import (
    CONNECT_TIMEOUT_SECONDS,
    Endpoint,
    SignedCall,
    SubscriptionCarrier,
    SubscriptionResponse,
    connection_errors,
)

_ERRORS = (aiohttp.ClientError, OSError)
# aiohttp stops reading at twice this size. Its default of 256 KiB is too much for 1,000 shards.
_BUFFER_BYTES = 64 * 1024
# aiobotocore keeps idle connections for as long.
_KEEPALIVE_SECONDS = 12.0
_WHOLE_BYTES = 1024 * 1024
# GetRecords returns 10 MiB of data with 10,000 keys, all of whose characters may be escaped.
_MAX_ANSWER_BYTES = 128 * 1024 * 1024
# glibc adapts to no block above 32 MiB (mallopt(3), M_MMAP_THRESHOLD).
_UNMAPPED_BYTES = 31 * 1024 * 1024


class AiohttpCarrier(SubscriptionCarrier):
    """Sends subscriptions, which occupy its connections for long, or ordinary calls."""

    def __init__(
        self, endpoint: Endpoint, *, read_timeout_seconds: float, max_connections: int
    ) -> None:
        self._endpoint = endpoint
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=read_timeout_seconds
        )
        self._max_connections = max_connections
        self._proxy, self._proxy_headers = _split_proxy(endpoint.proxy_url)
        self._session: aiohttp.ClientSession | None = None
        self._session_lock = asyncio.Lock()

    async def open(self, call: SignedCall) -> SubscriptionResponse:
        with connection_errors(_ERRORS, call.where):
            response = await self._send(call)
        return _AiohttpResponse(response, call.where)

    async def post(self, call: SignedCall) -> tuple[int, Mapping[str, str], bytes]:
        """Send ``call`` and return the status, the headers in any case, and the whole body.

        Raises what aiohttp does, or ``ResponseParserError`` for more than an answer of AWS.
        """
        async with await self._send(call) as response:
            chunks, size = [], 0
            async for chunk in response.content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                if size > _MAX_ANSWER_BYTES:
                    raise ResponseParserError(f"it has more than {_MAX_ANSWER_BYTES:,} bytes")
            return response.status, response.headers, b"".join(chunks)

    async def _send(self, call: SignedCall) -> aiohttp.ClientResponse:
        session = self._session or await self._open_session()
        headers = call.headers
        if self._proxy_headers and not self._endpoint.is_https:
            # Without a tunnel, the proxy sees everything that the endpoint sees.
            headers = {**headers, **self._proxy_headers}
        return await session.post(
            URL(call.url, encoded=True),
            headers=headers,
            # aiohttp warns of a larger one that it gets as bytes, and writes this one in pieces.
            data=call.body if len(call.body) <= _WHOLE_BYTES else BytesIO(call.body),
            allow_redirects=False,
            proxy=self._proxy,
            proxy_headers=self._proxy_headers,
        )

    async def _open_session(self) -> aiohttp.ClientSession:
        endpoint = self._endpoint
        async with self._session_lock:
            if self._session is None:
                # glibc returns free memory from twice the largest block that it has unmapped. That
                # would be the last answer, which is held in pieces and as a whole, and the next
                # answer would map its pages again. No page of this block is ever touched.
                bytes(_UNMAPPED_BYTES)
                tls = await asyncio.to_thread(endpoint.tls_context) if endpoint.is_https else True
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        limit=self._max_connections, ssl=tls, keepalive_timeout=_KEEPALIVE_SECONDS
                    ),
                    timeout=self._timeout,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    # Otherwise aiohttp asks for gzip.
                    headers={"Accept-Encoding": "identity"},
                    auto_decompress=False,
                    read_bufsize=_BUFFER_BYTES,
                )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _split_proxy(url: str | None) -> tuple[URL | None, Mapping[str, str]]:
    """Return the proxy and its credentials separately, because aiohttp's errors quote the URL."""
    if url is None:
        return None, {}
    proxy = URL(url)
    if proxy.user is None:
        return proxy, {}
    credentials = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return proxy.with_user(None), {"Proxy-Authorization": f"Basic {credentials}"}


class _AiohttpResponse(SubscriptionResponse):
    def __init__(self, response: aiohttp.ClientResponse, where: str) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.lower(): value for name, value in response.headers.items()
        }
        self._response = response
        self._where = where

    async def read(self) -> bytes:
        body = self._response.content
        if error := body.exception():
            # aiohttp raises the error of a connection before it returns the earlier bytes.
            body.set_exception(None)  # type: ignore[arg-type]
            chunk = body.read_nowait()
            body.set_exception(error)
            if chunk:
                return chunk
        with connection_errors(_ERRORS, self._where):
            return await body.readany()

    async def close(self) -> None:
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            # Closing would first shut down TLS with a peer that is still sending.
            connection.transport.abort()
        self._response.close()
