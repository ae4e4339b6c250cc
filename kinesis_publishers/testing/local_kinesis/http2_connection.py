"""One HTTP/2 connection: takes requests, runs the calls, sends within the client's windows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import h2.connection
from attrs import define, field
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from kinesis_publishers.testing.local_kinesis.answers import (
    Answer,
    ConnectionBroken,
    StreamingAnswer,
)

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from hyperframe.frame import Frame, GoAwayFrame

    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher

# PutRecords has up to 14 MB: a small window would make it wait for each piece.
_RECEIVE_WINDOW = 16 * 1024 * 1024


class _Http(h2.connection.H2Connection):
    """Goes on after a GOAWAY, after which h2 would neither send nor receive."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code == ErrorCodes.NO_ERROR:
            return [], [ConnectionTerminated()]
        return super()._receive_goaway_frame(frame)


@define
class _Call:
    """A stream that the client has not left: a request as far as it has come, then its task."""

    headers: dict[str, str]
    body: bytearray = field(factory=bytearray)
    sending: asyncio.Task[None] | None = None


class Http2Connection(asyncio.Protocol):
    """Answers the calls of one client, at most ``max_streams`` at once, until it leaves."""

    _sender: Http2Sender
    _transport: asyncio.Transport

    def __init__(self, dispatcher: Dispatcher, *, max_streams: int) -> None:
        self._dispatcher = dispatcher
        self._max_streams = max_streams
        # Latin-1 reads any header: bytes that are not text must not end the connection.
        self._http = _Http(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._is_left = False
        self._calls: dict[int, _Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sender = Http2Sender(self._http, transport)
        self._http.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self._max_streams,
                SettingCodes.INITIAL_WINDOW_SIZE: _RECEIVE_WINDOW,
            },
        )
        self._http.initiate_connection()
        # h2 would end the connection for one call too many; RFC 9113 5.1.2 refuses that call.
        del self._http.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS]
        self._http.increment_flow_control_window(_RECEIVE_WINDOW)
        self._sender.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        for stream_id in tuple(self._calls):
            self._leave(stream_id)

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._http.receive_data(data):
                self._handle(event)
        except ProtocolError:
            # h2 has prepared the GOAWAY that says what was wrong.
            self._sender.flush()
            self._transport.close()
        else:
            self._sender.flush()
            self._close_if_done()

    def _close_if_done(self) -> None:
        # RFC 9113 6.8: the streams of a client that leaves may end.
        if self._is_left and not self._calls:
            self._transport.close()

    async def close(self) -> None:
        """Send GOAWAY, abort the connection and cancel the calls that are open on it."""
        if not self._transport.is_closing():
            self._http.close_connection()
            self._sender.flush()
        self._transport.abort()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=int(stream_id)):
                self._take(stream_id, {str(name): str(value) for name, value in event.headers})
            case DataReceived(stream_id=int(stream_id)):
                if (call := self._calls.get(stream_id)) is not None:
                    call.body += event.data
                self._http.acknowledge_received_data(event.flow_controlled_length, stream_id)
            case StreamEnded(stream_id=int(stream_id)):
                if (call := self._calls.get(stream_id)) is not None:
                    self._start(stream_id, call)
            case StreamReset(stream_id=int(stream_id)):
                self._leave(stream_id)
            case WindowUpdated(stream_id=int(stream_id)) if stream_id:
                self._sender.wake(stream_id)
            case WindowUpdated() | RemoteSettingsChanged():
                self._sender.wake_all()
            case ConnectionTerminated(error_code=code):
                self._is_left = True
                if code:
                    self._transport.close()

    def _take(self, stream_id: int, headers: dict[str, str]) -> None:
        if len(self._calls) < self._max_streams:
            self._calls[stream_id] = _Call(headers)
        else:
            self._sender.reset(stream_id, ErrorCodes.REFUSED_STREAM)

    def _leave(self, stream_id: int) -> None:
        """End what is being sent; a call that has arrived is carried out nevertheless."""
        call = self._calls.pop(stream_id, None)
        if call is not None and call.sending is not None:
            call.sending.cancel()

    def _start(self, stream_id: int, call: _Call) -> None:
        def forget(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._calls.pop(stream_id, None)
            self._close_if_done()

        task = asyncio.get_running_loop().create_task(self._answer(stream_id, call))
        self._tasks.add(task)
        task.add_done_callback(forget)

    async def _answer(self, stream_id: int, call: _Call) -> None:
        try:
            answer = await self._dispatcher.answer(
                call.headers[":method"],
                # CONNECT has none.
                call.headers.get(":path", ""),
                call.headers.get("x-amz-target", ""),
                bytes(call.body),
                call.headers.get("content-type", ""),
            )
            call.sending = asyncio.current_task()
            await self._send(stream_id, answer)
        except (ConnectionBroken, ProtocolError):
            self._sender.reset(stream_id, ErrorCodes.INTERNAL_ERROR)
        except Exception:
            # The loop reports it; the client must not wait for ever.
            self._sender.reset(stream_id, ErrorCodes.INTERNAL_ERROR)
            raise

    async def _send(self, stream_id: int, answer: Answer | StreamingAnswer) -> None:
        """Send an answer, unless its client has left."""
        if isinstance(answer, Answer):
            if stream_id in self._calls:
                await self._send_whole(stream_id, answer)
            return
        try:
            if stream_id in self._calls:
                await self._send_streaming(stream_id, answer)
        finally:
            await answer.body.aclose()

    async def _send_streaming(self, stream_id: int, answer: StreamingAnswer) -> None:
        self._sender.send_headers(stream_id, answer.status, answer.headers.items())
        async for piece in answer.body:
            await self._sender.send(stream_id, piece)
        self._sender.end(stream_id)

    async def _send_whole(self, stream_id: int, answer: Answer) -> None:
        if answer.delivery == "reset":
            raise ConnectionBroken
        promised, sent = len(answer.body), answer.body
        if answer.delivery == "truncate":
            promised, sent = answer.cut_short()
        headers = answer.headers | {"content-length": str(promised)}
        self._sender.send_headers(stream_id, answer.status, headers.items())
        await self._sender.send(stream_id, sent)
        if answer.delivery == "truncate":
            raise ConnectionBroken
        self._sender.end(stream_id)


class Http2Sender:
    """Sends headers and bodies of many streams over one transport."""

    def __init__(self, http: H2Connection, transport: asyncio.Transport) -> None:
        self._http = http
        self._transport = transport
        self._may_write = True
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def pause(self) -> None:
        self._may_write = False

    def resume(self) -> None:
        self._may_write = True
        self.wake_all()

    def wake(self, stream_id: int) -> None:
        """Look again whether a stream may send."""
        waiter = self._waiting.pop(stream_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wake_all(self) -> None:
        for stream_id in tuple(self._waiting):
            self.wake(stream_id)

    def send_headers(self, stream_id: int, status: int, headers: Iterable[tuple[str, str]]) -> None:
        lower = ((name.lower(), value) for name, value in headers)
        self._http.send_headers(stream_id, [(":status", str(status)), *lower])
        self.flush()

    async def send(self, stream_id: int, data: bytes) -> None:
        """Send all of ``data``, waiting for room in the windows and in the socket."""
        left = memoryview(data)
        while left:
            room = self._http.local_flow_control_window(stream_id) if self._may_write else 0
            if room <= 0:
                await self._wait(stream_id)
                continue
            now, left = left[:room], left[room:]
            largest = self._http.max_outbound_frame_size
            for start in range(0, len(now), largest):
                self._http.send_data(stream_id, now[start : start + largest])
            # One write for all frames: each is a TLS record and a system call.
            self.flush()

    def end(self, stream_id: int) -> None:
        self._http.end_stream(stream_id)
        self.flush()

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Break a stream off, if it is not over on the other side as well."""
        with suppress(ProtocolError):
            self._http.reset_stream(stream_id, code)
        self.flush()

    def flush(self) -> None:
        data = self._http.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def _wait(self, stream_id: int) -> None:
        waiter = self._waiting[stream_id] = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiting.pop(stream_id, None)
