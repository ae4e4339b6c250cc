"""One exchange over an HTTP/2 connection of its own (RFC 9113): bytes in, bytes out, no I/O.

A library for HTTP/2 serves any number of streams and makes objects of every frame, which costs a
subscription half as much CPU again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from hpack import Decoder, Encoder

PROTOCOL: Final = "h2"
# How much the service may send before it is read, and the largest frame.
WINDOW_BYTES = 256 * 1024
_DATA, _HEADERS, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _HAS_PRIORITY = 0x4, 0x8, 0x20
_STREAM = 1
_HEAD_BYTES = 9
# What holds until the service says otherwise.
_MAX_SENT_BYTES = 16 * 1024
_INITIAL_WINDOW_BYTES = 65_535
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 2, 4, 5
_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_OWN_SETTINGS = struct.pack(
    ">HIHIHI",
    *(_ENABLE_PUSH, 0),
    *(_INITIAL_WINDOW_SIZE, WINDOW_BYTES),
    *(_MAX_FRAME_SIZE, WINDOW_BYTES),
)


class Exchange:
    """A request, and the answer to it as it arrives."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.has_ended = False
        self._sent: list[bytes] = []
        # What is left of a frame that has not arrived as a whole; the body's are handed on at once.
        self._rest = b""
        self._body_left = 0
        self._is_last = False
        self._chunks: list[bytes] = []
        self._unacknowledged = 0
        self._decoder = Decoder()
        self._header_block = b""
        self._ends_with_headers = False

    def request(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send the request. The names of ``headers`` are in lower case, the first ones with ':'."""
        self._sent.append(_OPENING)
        self._send(_SETTINGS, 0, 0, _OWN_SETTINGS)
        self._send_update(0, WINDOW_BYTES - _INITIAL_WINDOW_BYTES)
        kind = _HEADERS
        *pieces, last = _cut(Encoder().encode(headers.items()))
        for piece in pieces:
            self._send(kind, 0, _STREAM, piece)
            kind = _CONTINUATION
        self._send(kind, _END_HEADERS, _STREAM, last)
        *pieces, last = _cut(body)
        for piece in pieces:
            self._send(_DATA, 0, _STREAM, piece)
        self._send(_DATA, _END_STREAM, _STREAM, last)

    def to_send(self) -> bytes:
        """Return the bytes to send now, once."""
        data = b"".join(self._sent)
        self._sent.clear()
        return data

    def take(self) -> bytes:
        """Return what has arrived of the body, and allow the service to send as much again."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        if self._unacknowledged >= WINDOW_BYTES // 4 and not self.has_ended:
            self._send_update(0, self._unacknowledged)
            self._send_update(_STREAM, self._unacknowledged)
            self._unacknowledged = 0
        return data

    def receive(self, data: bytes) -> None:
        """Take what has arrived.

        Raises:
            ConnectionError: the service ended the exchange before its end, or broke the protocol.
            HPACKError: the headers cannot be read.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = 0
        while True:
            if self._body_left:
                piece = data[at : at + self._body_left]
                self._add(piece)
                at += len(piece)
                self._body_left -= len(piece)
                if self._body_left:
                    return
                self.has_ended |= self._is_last
            if len(data) - at < _HEAD_BYTES:
                break
            head = int.from_bytes(data[at : at + _HEAD_BYTES])
            size, kind, flags = head >> 48, head >> 40 & 0xFF, head >> 32 & 0xFF
            if size > WINDOW_BYTES:
                raise ConnectionAbortedError(f"a frame of {size:,} bytes")
            start, end = at + _HEAD_BYTES, at + _HEAD_BYTES + size
            if kind == _DATA and size and not flags & _PADDED:
                self._body_left, self._is_last = size, bool(flags & _END_STREAM)
                at = start
            elif end <= len(data):
                self._handle(kind, flags, data[start:end])
                at = end
            else:
                break
        self._rest = data[at:]

    def _add(self, piece: bytes) -> None:
        self._chunks.append(piece)
        self._unacknowledged += len(piece)

    def _handle(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _DATA:
            self._unacknowledged += len(payload)
            piece = _without_padding(flags, payload)
            self._unacknowledged -= len(piece)
            self._add(piece)
            self.has_ended |= bool(flags & _END_STREAM)
        elif kind == _HEADERS:
            piece = _without_padding(flags, payload)
            self._header_block = piece[5:] if flags & _HAS_PRIORITY else piece
            self._ends_with_headers = bool(flags & _END_STREAM)
            self._end_of_headers(flags)
        elif kind == _CONTINUATION:
            self._header_block += payload
            self._end_of_headers(flags)
        elif kind == _SETTINGS and not flags & _ACK:
            # They limit requests, and the only one has been sent.
            self._send(_SETTINGS, _ACK, 0)
        elif kind == _PING and not flags & _ACK:
            self._send(_PING, _ACK, 0, payload)
        elif kind == _RESET and not self.has_ended:
            raise ConnectionResetError(f"the service reset the stream with code {_number(payload)}")
        elif kind == _GOAWAY:
            last_stream, code = _number(payload[:4]), _number(payload[4:8])
            # A service that drains may finish what it has begun.
            if (code or last_stream < _STREAM) and not self.has_ended:
                raise ConnectionAbortedError(f"the service ended the connection with code {code}")
        elif kind == _PUSH:
            raise ConnectionAbortedError("a push, which was disabled")

    def _end_of_headers(self, flags: int) -> None:
        if len(self._header_block) > WINDOW_BYTES:
            raise ConnectionAbortedError(f"headers of {len(self._header_block):,} bytes")
        if not flags & _END_HEADERS:
            return
        fields = {str(name): str(value) for name, value in self._decoder.decode(self._header_block)}
        # Before the answer there may be provisional ones, and after it trailers.
        if self.status is None:
            status = fields.pop(":status", "")
            if not status.isdecimal():
                raise ConnectionAbortedError(f"an answer with the status {status!r}")
            if int(status) >= 200:
                self.status, self.headers = int(status), fields
        self.has_ended |= self._ends_with_headers

    def _send_update(self, stream: int, size: int) -> None:
        self._send(_WINDOW, 0, stream, size.to_bytes(4))

    def _send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self._sent.append(
            len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload
        )


def _cut(data: bytes) -> list[bytes]:
    starts = range(0, max(1, len(data)), _MAX_SENT_BYTES)
    return [data[start : start + _MAX_SENT_BYTES] for start in starts]


def _without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    return payload[1 : len(payload) - _number(payload[:1])]


def _number(data: bytes) -> int:
    return int.from_bytes(data)
