"""Splits a body into frames of ``application/vnd.amazon.eventstream``; does no I/O.

A frame has its own length and that of its headers, a CRC of both lengths, the headers, the payload,
and a CRC of everything before (AWS event stream encoding, in the Transcribe developer guide).
botocore parses the headers; its own buffer would copy a frame for each chunk.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping

from attrs import frozen
from botocore.eventstream import EventStreamHeaderParser, ParserError

from kinesis_publishers.errors import MalformedResponseError

_OPERATION = "SubscribeToShard"
_PRELUDE = struct.Struct("!III")
_CRC = struct.Struct("!I")
# botocore's limits. An event is at most a record of 10 MiB in base64, or many small ones.
_MAX_HEADER_BYTES = 128 * 1024
_MAX_PAYLOAD_BYTES = 24 * 1024 * 1024


@frozen
class FrameHead:
    """The string headers of a frame, unverified because its CRC comes last; the payload's place."""

    headers: Mapping[str, str]
    payload_start: int
    payload_bytes: int


@frozen
class Frame:
    """A whole, verified frame with its string headers."""

    headers: Mapping[str, str]
    payload: bytes


class EventStreamDecoder:
    """Assembles frames from chunks of any size.

    From a damaged frame on, :meth:`peek` and :meth:`take` raise ``MalformedResponseError``: the
    start of the next frame cannot be found. Error messages name the ``source`` of the bytes.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        # The chunks as they arrived: bytes are copied once, into the payload.
        self._pieces: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._head: FrameHead | None = None

    def feed(self, chunk: bytes) -> None:
        self._pieces.append(memoryview(chunk))
        self._waiting_bytes += len(chunk)

    @property
    def is_inside_frame(self) -> bool:
        """Whether the body would end inside a frame."""
        return self._waiting_bytes > 0

    def peek(self) -> FrameHead | None:
        """Return the head of the next frame, ``None`` before it is complete."""
        self._head = self._head or self._parse_head()
        return self._head

    def take(self) -> Frame | None:
        """Remove and return the next frame, ``None`` before it is complete."""
        head = self.peek()
        if head is None:
            return None
        end = head.payload_start + head.payload_bytes
        if self._waiting_bytes < end + _CRC.size:
            return None
        crc = 0
        for view in self._views(0, end):
            crc = zlib.crc32(view, crc)
        if crc != _CRC.unpack(self._copy(end, end + _CRC.size))[0]:
            raise self._malformed("the checksum of a frame is wrong")
        payload = self._copy(head.payload_start, end)
        self._drop(end + _CRC.size)
        self._head = None
        return Frame(head.headers, payload)

    def _views(self, start: int, end: int) -> Iterator[memoryview]:
        for piece in self._pieces:
            if end <= 0:
                return
            if start < len(piece):
                yield piece[max(start, 0) : end]
            start -= len(piece)
            end -= len(piece)

    def _copy(self, start: int, end: int) -> bytes:
        return b"".join(self._views(start, end))

    def _drop(self, count: int) -> None:
        self._waiting_bytes -= count
        while count:
            piece = self._pieces.popleft()
            if len(piece) > count:
                self._pieces.appendleft(piece[count:])
            count -= min(len(piece), count)

    def _parse_head(self) -> FrameHead | None:
        if self._waiting_bytes < _PRELUDE.size:
            return None
        prelude = self._copy(0, _PRELUDE.size)
        total_bytes, header_bytes, crc = _PRELUDE.unpack(prelude)
        if zlib.crc32(prelude[: -_CRC.size]) != crc:
            raise self._malformed("the checksum of a frame's prelude is wrong")
        start = _PRELUDE.size + header_bytes
        payload_bytes = total_bytes - start - _CRC.size
        if header_bytes > _MAX_HEADER_BYTES or not 0 <= payload_bytes <= _MAX_PAYLOAD_BYTES:
            raise self._malformed(
                f"a frame of {total_bytes} bytes with {header_bytes} bytes of headers is impossible"
            )
        if self._waiting_bytes < start:
            return None
        headers = self._parse_headers(self._copy(_PRELUDE.size, start))
        return FrameHead(headers, start, payload_bytes)

    def _parse_headers(self, data: bytes) -> dict[str, str]:
        try:
            headers = EventStreamHeaderParser().parse(data)
        except (ParserError, ValueError, KeyError, struct.error) as error:
            raise self._malformed(f"a frame has headers that cannot be read ({error!r})") from error
        return {name: value for name, value in headers.items() if isinstance(value, str)}

    def _malformed(self, problem: str) -> MalformedResponseError:
        return MalformedResponseError(
            f"{self._source}: {problem}. Nothing of the frame was delivered.",
            operation=_OPERATION,
            code="MalformedResponse",
        )
