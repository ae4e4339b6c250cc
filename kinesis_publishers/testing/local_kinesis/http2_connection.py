"""One HTTP/2 connection: many calls at once, each within the windows that the client opens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h2.connection
from attrs import define, field
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
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
    from collections.abc import Mapping

    from h2.events import Event

    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher

__all__ = ["Http2Connection"]

# PutRecords has up to 14 MB: a small window would make it wait for each piece.
_RECEIVE_WINDOW = 16 * 1024 * 1024


@define
class _Request:
    """A request as far as it has arrived."""

    headers: Mapping[str, str]
    body: bytearray = field(factory=bytearray)


class Http2Connection(asyncio.Protocol):
    """Answers the calls of one client until it leaves.

    Args:
        dispatcher: answers each call.
        max_streams: how many calls the client may have open at once.
    """

    def __init__(self, dispatcher: Dispatcher, *, max_streams: int) -> None:
        self._dispatcher = dispatcher
        self._max_streams = max_streams
        self._http = h2.connection.H2Connection(
            H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._transport: asyncio.Transport | None = None
        self._requests: dict[int, _Request] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._progress = asyncio.Event()
        self._may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self._max_streams,
                SettingCodes.INITIAL_WINDOW_SIZE: _RECEIVE_WINDOW,
            },
        )
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_RECEIVE_WINDOW)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for task in self._tasks.values():
            task.cancel()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._progress.set()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._http.receive_data(data):
                self._handle(event)
        except ProtocolError:
            # h2 has prepared the GOAWAY that says what was wrong.
            self._flush()
            self.close()
        else:
            self._flush()

    def close(self) -> None:
        """Break the connection off; what is open on it is cancelled."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until every call has been cleaned up."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._requests[event.stream_id] = _Request(
                    {str(name): str(value) for name, value in event.headers}
                )
            case DataReceived():
                if event.stream_id in self._requests:
                    self._requests[event.stream_id].body += event.data
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded():
                self._start(event.stream_id, self._requests.pop(event.stream_id))
            case StreamReset():
                self._requests.pop(event.stream_id, None)
                if event.stream_id in self._tasks:
                    self._tasks[event.stream_id].cancel()
            case WindowUpdated() | RemoteSettingsChanged():
                self._progress.set()
            case ConnectionTerminated():
                self.close()

    def _start(self, stream_id: int, request: _Request) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(stream_id, request))
        self._tasks[stream_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(stream_id, None))

    async def _answer(self, stream_id: int, request: _Request) -> None:
        headers = request.headers
        answer = await self._dispatcher.answer(
            headers[":method"],
            headers[":path"],
            headers.get("x-amz-target", ""),
            bytes(request.body),
        )
        try:
            if isinstance(answer, StreamingAnswer):
                await self._send_streaming(stream_id, answer)
            else:
                await self._send_whole(stream_id, answer)
        except (ConnectionBroken, ProtocolError):
            # A ProtocolError here says that the client has left the call meanwhile.
            self._reset(stream_id)

    async def _send_streaming(self, stream_id: int, answer: StreamingAnswer) -> None:
        try:
            self._send_headers(stream_id, answer)
            async for piece in answer.body:
                await self._send(stream_id, piece)
            self._end(stream_id)
        finally:
            await answer.body.aclose()

    async def _send_whole(self, stream_id: int, answer: Answer) -> None:
        if answer.delivery == "reset":
            raise ConnectionBroken
        # As over HTTP/1.1, an empty body cannot be cut short: promise a little more than there is.
        is_whole = answer.delivery == "whole"
        promised = len(answer.body) if is_whole else max(len(answer.body), 2)
        self._send_headers(stream_id, answer, ("content-length", str(promised)))
        await self._send(stream_id, answer.body if is_whole else answer.body[: promised // 2])
        self._end(stream_id)

    def _send_headers(
        self, stream_id: int, answer: Answer | StreamingAnswer, *more: tuple[str, str]
    ) -> None:
        names = ((name.lower(), value) for name, value in answer.headers.items())
        self._http.send_headers(stream_id, [(":status", str(answer.status)), *names, *more])
        self._flush()

    async def _send(self, stream_id: int, data: bytes) -> None:
        """Send all of ``data``, waiting for the client's windows and for the socket."""
        left = memoryview(data)
        while left:
            room = self._http.local_flow_control_window(stream_id) if self._may_write else 0
            if room <= 0:
                self._progress.clear()
                await self._progress.wait()
                continue
            now, left = left[:room], left[room:]
            largest = self._http.max_outbound_frame_size
            for start in range(0, len(now), largest):
                self._http.send_data(stream_id, now[start : start + largest])
            self._flush()

    def _end(self, stream_id: int) -> None:
        self._http.end_stream(stream_id)
        self._flush()

    def _reset(self, stream_id: int) -> None:
        try:
            self._http.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
        except ProtocolError:
            return  # it is over on the other side as well
        self._flush()

    def _flush(self) -> None:
        if self._transport is not None and (data := self._http.data_to_send()):
            self._transport.write(data)
