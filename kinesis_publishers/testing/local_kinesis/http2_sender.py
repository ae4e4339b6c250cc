"""The sending half of an HTTP/2 connection: within the client's windows and its socket's room."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from h2.exceptions import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from h2.connection import H2Connection
    from h2.errors import ErrorCodes

__all__ = ["Http2Sender"]


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
