"""Subscriptions over HTTP/2 with pyreqwest (Rust's reqwest and hyper)."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.proxy import ProxyBuilder
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response, ResponseBodyReader

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
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.tasks import cancellable

_LOGGER = logging.getLogger(__name__)
_DAEMON_WARNING = (
    "pyreqwest is used by an event loop in a daemon thread: if that is blocked for more than 5 s "
    "when the interpreter ends, the process may be aborted. Stop reading before, or use httpx."
)
_ABANDON_SECONDS = 5.0
# A thread that waits for the interpreter's lock cannot be detected. A sleep releases the lock, and
# the thread then needs microseconds.
_SETTLE_SECONDS = 0.2
_PAUSE_SECONDS = 0.01


class _ExitGuard:
    """The responses to abandon before the interpreter ends, and the calls in flight."""

    def __init__(self) -> None:
        self._open: dict[_PyreqwestResponse, asyncio.AbstractEventLoop] = {}
        self._calls: dict[object, asyncio.AbstractEventLoop] = {}
        self._is_exiting = False
        self._has_warned = False

    def add(self, response: _PyreqwestResponse) -> None:
        """Abandon ``response`` at exit, unless it is discarded before."""
        self._refuse_when_exiting()
        if threading.current_thread().daemon and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(_DAEMON_WARNING)
        self._open[response] = asyncio.get_running_loop()

    def discard(self, response: _PyreqwestResponse) -> None:
        self._open.pop(response, None)

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Allow a call of the foreign thread in the body; the exit waits for its end."""
        self._refuse_when_exiting()
        token = object()
        self._calls[token] = asyncio.get_running_loop()
        try:
            yield
        finally:
            del self._calls[token]

    def _refuse_when_exiting(self) -> None:
        if self._is_exiting:
            raise ClosedError("SubscribeToShard: the interpreter is ending")

    def abandon_all(self) -> None:
        self._is_exiting = True
        deadline = time.monotonic() + _ABANDON_SECONDS  # no clock is injected this late
        responses = list(self._open.items())
        others = [one for one, loop in responses if not loop.is_running()]
        in_threads = [
            asyncio.run_coroutine_threadsafe(one.abandon(), loop)
            for one, loop in responses
            if loop.is_running()  # in a daemon thread
        ]
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            asyncio.run(_abandon(others))
        concurrent.futures.wait(in_threads, max(0.0, deadline - time.monotonic()))
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        time.sleep(_SETTLE_SECONDS)

    def _is_busy(self) -> bool:
        # A loop that was stopped never learns that a call has ended.
        if any(loop.is_running() for loop in list(self._calls.values())):
            return True
        # Threads that Python did not start appear here while they run Python code.
        known = {thread.ident for thread in threading.enumerate()}
        return not sys._current_frames().keys() <= known


async def _abandon(responses: Iterable[_PyreqwestResponse]) -> None:
    async with asyncio.timeout(_ABANDON_SECONDS):
        await asyncio.gather(*(one.abandon() for one in responses), return_exceptions=True)


_EXIT_GUARD = _ExitGuard()
atexit.register(_EXIT_GUARD.abandon_all)


_ERRORS = (PyreqwestError, OSError)
# How much the server may send before we read. hyper's default for a connection is five times that
# of a stream, too much for connections with one stream. The largest frame has the same size,
# because each frame costs a switch of threads.
_WINDOW_BYTES = 256 * 1024
# Only this timeout ends the connection of a call that is cancelled before its answer. It is longer
# than the default timeout of a call, and than the longest silence of a subscription.
_MAX_SILENCE_SECONDS = 65.0


class PyreqwestCarrier(SubscriptionCarrier):
    """Opens a client, and so a connection, per subscription; all share one Rust thread.

    On a shared connection, hyper would make a call wait at the server's limit of streams, and
    unread subscriptions would use up the receive window of the others.

    It trusts the certificates of the endpoint and those of the system.
    """

    def __init__(self, endpoint: Endpoint, http: SubscriptionHttpConfig) -> None:
        self._endpoint = endpoint
        self._read_timeout = timedelta(seconds=min(http.read_timeout_seconds, _MAX_SILENCE_SECONDS))
        self._requires_http_2 = http.version is HttpVersion.HTTP_2

    async def open(self, call: SignedCall) -> SubscriptionResponse:
        # Reading and parsing certificates takes milliseconds.
        response = _PyreqwestResponse(await asyncio.to_thread(self._create_client), call)
        _EXIT_GUARD.add(response)
        try:
            with connection_errors(_ERRORS, call.where):
                answer = await response.start()
            if self._requires_http_2 and answer.version != "HTTP/2.0":
                raise http_2_not_offered(call.url)
        except BaseException:
            await response.close()
            raise
        return response

    def _create_client(self) -> Client:
        builder = (
            ClientBuilder()
            .http2(True)
            .http2_initial_stream_window_size(_WINDOW_BYTES)
            .http2_max_frame_size(_WINDOW_BYTES)
            # Deliver the body as the service sent it, like the other clients.
            .gzip(False)
            .brotli(False)
            .zstd(False)
            .deflate(False)
            .follow_redirects(False)
            .connect_timeout(timedelta(seconds=CONNECT_TIMEOUT_SECONDS))
            .read_timeout(self._read_timeout)
            .no_proxy()
        )
        if self._endpoint.proxy_url is not None:
            builder = builder.proxy(ProxyBuilder.all(self._endpoint.proxy_url))
        if self._endpoint.ca_bundle is None:
            return builder.build()
        try:
            certificates = Path(self._endpoint.ca_bundle).read_bytes()
            return builder.add_root_certificate_pem(certificates).build()
        except (OSError, PyreqwestError) as error:
            raise self._endpoint.unusable_ca_bundle(error) from error


class _PyreqwestResponse(SubscriptionResponse):
    """A call, the client that sends it, and its answer once :meth:`start` has returned."""

    def __init__(self, client: Client, call: SignedCall) -> None:
        self._where = call.where
        self._client: Client | None = client
        self._request: StreamRequest | None = (
            client.post(call.url)
            .headers(dict(call.headers))
            .body_bytes(call.body)
            # Otherwise it would first read this much of the body.
            .streamed_read_buffer_limit(0)
            .build_streamed()
        )
        self._body: ResponseBodyReader | None = None

    async def start(self) -> Response:
        assert self._request is not None
        with _EXIT_GUARD.call():
            answer = await cancellable(self._request.__aenter__)
        self._body = answer.body_reader
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.headers.items()}
        return answer

    async def read(self) -> bytes:
        assert self._body is not None
        with connection_errors(_ERRORS, self._where), _EXIT_GUARD.call():
            chunk = await cancellable(self._body.read_chunk)
        return b"" if chunk is None else bytes(chunk)

    async def close(self) -> None:
        # A connection lives as long as something refers to its client, closed or not.
        client, self._client = self._client, None
        request, self._request = self._request, None
        if client is None:
            return
        try:
            with _EXIT_GUARD.call():
                try:
                    if request is not None and self._body is not None:
                        await request.__aexit__(None, None, None)
                finally:
                    await client.close()
        finally:
            _EXIT_GUARD.discard(self)

    async def abandon(self) -> None:
        # Closing the request waits for a read in progress, in a loop that may never run.
        if self._client is not None:
            await self._client.close()
