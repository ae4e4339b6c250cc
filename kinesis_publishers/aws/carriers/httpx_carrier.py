"""Subscriptions over HTTP/2 with httpx."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import h2.exceptions
import httpx

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

# httpcore lets h2's own errors through: a server may send more after it has said GOAWAY.
_ERRORS = (httpx.HTTPError, httpx.StreamError, h2.exceptions.H2Error, OSError)


class HttpxCarrier(SubscriptionCarrier):
    """Opens a connection per subscription, as with HTTP/1.1.

    httpcore cannot share an HTTP/2 connection between subscriptions. At the server's limit of
    streams it waits instead of opening a second connection. An unread stream uses up the receive
    window of all. The server never learns that a stream is no longer wanted.
    """

    def __init__(self, endpoint: Endpoint, http: SubscriptionHttpConfig) -> None:
        self._endpoint = endpoint
        self._timeouts = {
            "connect": CONNECT_TIMEOUT_SECONDS,
            "read": http.read_timeout_seconds,
            "write": CONNECT_TIMEOUT_SECONDS,
            "pool": None,
        }
        self._requires_http_2 = http.version is HttpVersion.HTTP_2
        self._context: ssl.SSLContext | None = None
        self._context_lock = asyncio.Lock()

    async def open(self, call: SignedCall) -> SubscriptionResponse:
        async with self._context_lock:
            if self._context is None:
                self._context = await asyncio.to_thread(self._endpoint.tls_context)
        # A transport, not a client: no redirects, cookies or log lines between us and the bytes.
        transport = httpx.AsyncHTTPTransport(
            verify=self._context,
            http1=True,
            http2=True,
            trust_env=False,
            proxy=self._endpoint.proxy_url,
        )
        request = httpx.Request(
            "POST",
            call.url,
            headers=dict(call.headers),
            content=call.body,
            extensions={"timeout": self._timeouts},
        )
        try:
            with connection_errors(_ERRORS, call.where):
                response = await transport.handle_async_request(request)
            if self._requires_http_2 and response.http_version != "HTTP/2":
                raise http_2_not_offered(call.url)
        except BaseException:
            await transport.aclose()
            raise
        return _HttpxResponse(transport, response, call.where)


class _HttpxResponse(SubscriptionResponse):
    def __init__(
        self, transport: httpx.AsyncHTTPTransport, response: httpx.Response, where: str
    ) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._transport = transport
        self._response = response
        self._chunks = response.aiter_raw()
        self._where = where

    async def read(self) -> bytes:
        with connection_errors(_ERRORS, self._where):
            return await anext(self._chunks, b"")

    async def close(self) -> None:
        await self._transport.aclose()
