"""An HTTP/2 client that shows what a server sends, and breaks rules when it is told to."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import h2.connection
from attrs import define, field
from h2.config import H2Configuration
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from h2.events import Event


@define
class Received:
    """What has come of one stream; ``frames`` are the sizes of its DATA frames."""

    status: str = ""
    body: bytearray = field(factory=bytearray)
    frames: list[int] = field(factory=list)
    has_ended: bool = False
    reset_code: int | None = None


class Http2Client:
    """One connection.

    Attributes:
        acknowledges: give the server room for as much as has come.
        last_error: the code of the server's GOAWAY.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_frame_bytes: int
    ) -> None:
        self.http = h2.connection.H2Connection(H2Configuration(header_encoding="utf-8"))
        self.http.local_settings = Settings(
            initial_values={SettingCodes.MAX_FRAME_SIZE: max_frame_bytes}
        )
        self.http.max_inbound_frame_size = max_frame_bytes
        self.streams: dict[int, Received] = {}
        self.acknowledges = True
        self.has_settings = False
        self.last_error: int | None = None
        self._reader = reader
        self._writer = writer

    def request(self, path: str) -> int:
        """Send a request without content and return its stream."""
        number = self.http.get_next_available_stream_id()
        self.streams[number] = Received()
        headers = {":method": "POST", ":scheme": "https", ":authority": "local", ":path": path}
        self.http.send_headers(number, list(headers.items()), end_stream=True)
        self.flush()
        return number

    def flush(self) -> None:
        self._writer.write(self.http.data_to_send())

    def leave(self, code: int) -> None:
        """Say GOAWAY; not by h2, which would take nothing more."""
        self._writer.write(GoAwayFrame(0, error_code=code).serialize())

    @property
    def is_left(self) -> bool:
        """Whether the server has closed the connection."""
        return self._reader.at_eof()

    async def receive(self) -> None:
        """Take what comes until the server closes the connection."""
        while data := await self._reader.read(1024 * 1024):
            for event in self.http.receive_data(data):
                self._take(event)
            self.flush()

    def _take(self, event: Event) -> None:
        stream = self.streams.get(getattr(event, "stream_id", 0) or 0, Received())
        match event:
            case RemoteSettingsChanged():
                self.has_settings = True
            case ResponseReceived():
                stream.status = dict(event.headers)[":status"]
            case DataReceived():
                stream.body += event.data
                stream.frames.append(len(event.data))
                if self.acknowledges:
                    self.http.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
            case StreamEnded():
                stream.has_ended = True
            case StreamReset():
                stream.reset_code = event.error_code
            case ConnectionTerminated():
                self.last_error = event.error_code


@asynccontextmanager
async def http2_client(
    host: str, port: int, ca_bundle: str, *, max_frame_bytes: int = 16384
) -> AsyncIterator[Http2Client]:
    context = ssl.create_default_context(cafile=ca_bundle)
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    client = Http2Client(reader, writer, max_frame_bytes)
    client.http.initiate_connection()
    client.flush()
    receiving = asyncio.create_task(client.receive())
    try:
        yield client
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        writer.transport.abort()
