"""An HTTP/2 connection on which canned subscriptions are sent, in a thread of its own."""

from __future__ import annotations

import json
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import h2.connection
from h2.config import H2Configuration
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

from benchmarks.canned_events import HEARTBEAT_SECONDS, CannedSubscription

if TYPE_CHECKING:
    from h2.events import Event

    from benchmarks.canned_server import CannedService

__all__ = ["Http2Connection"]

_RECEIVE_BYTES = 64 * 1024
# What one stream may send before the next one has its turn.
_TURN_BYTES = 256 * 1024
_ANSWER = [
    (":status", "200"),
    ("content-type", "application/vnd.amazon.eventstream"),
    ("x-amzn-requestid", "e5d2f3a4-0000-4000-8000-0123456789ab"),
]


class Http2Connection:
    """Serves one connection until the client leaves; it knows no call but SubscribeToShard.

    Args:
        connection: the socket, after the handshake.
        service: lends the records.
    """

    def __init__(self, connection: ssl.SSLSocket, service: CannedService) -> None:
        self._socket = connection
        self._service = service
        self._http = h2.connection.H2Connection(
            H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._requests: dict[int, bytearray] = {}
        self._streams: dict[int, _Stream] = {}
        self._is_open = True

    def serve(self) -> None:
        """Answer calls and send events until the connection ends."""
        self._http.initiate_connection()
        self._flush()
        while self._is_open:
            has_sent = False
            for number, stream in list(self._streams.items()):
                has_sent |= self._send_turn(number, stream)
            # A sender looks for updates of the windows but does not wait for any.
            self._receive(0 if has_sent else HEARTBEAT_SECONDS)

    def _send_turn(self, number: int, stream: _Stream) -> bool:
        quota = min(_TURN_BYTES, self._http.local_flow_control_window(number))
        if quota <= 0:
            return False
        piece = stream.take(quota)
        largest = self._http.max_outbound_frame_size
        for start in range(0, len(piece), largest):
            self._http.send_data(number, piece[start : start + largest])
        self._flush()
        return bool(piece)

    def _receive(self, timeout_seconds: float) -> None:
        self._socket.settimeout(timeout_seconds)
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except (TimeoutError, ssl.SSLWantReadError):
            return
        finally:
            self._socket.settimeout(None)
        if not data:
            self._is_open = False
            return
        with suppress(ProtocolError):
            for event in self._http.receive_data(data):
                self._handle(event)
        self._flush()

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._requests[event.stream_id] = bytearray()
            case DataReceived() if event.stream_id in self._requests:
                self._requests[event.stream_id] += event.data
            case StreamEnded():
                request = json.loads(self._requests.pop(event.stream_id))
                self._http.send_headers(event.stream_id, _ANSWER)
                subscription = CannedSubscription(self._service, request)
                self._streams[event.stream_id] = _Stream(subscription)
            case StreamReset():
                self._requests.pop(event.stream_id, None)
                self._streams.pop(event.stream_id, None)
            case ConnectionTerminated():
                self._is_open = False

    def _flush(self) -> None:
        data = self._http.data_to_send()
        if data:
            self._socket.sendall(data)


class _Stream:
    """Cuts the frames of a subscription into pieces of any size."""

    def __init__(self, subscription: CannedSubscription) -> None:
        self._subscription = subscription
        self._frame = memoryview(b"")

    def take(self, size: int) -> memoryview:
        if not self._frame:
            self._frame = memoryview(self._subscription.next_frame() or b"")
        piece, self._frame = self._frame[:size], self._frame[size:]
        return piece
