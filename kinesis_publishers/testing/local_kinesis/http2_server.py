"""HTTP/2: makes the protocols of connections and closes what is left of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from kinesis_publishers.testing.local_kinesis.http2_connection import Http2Connection

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.dispatch import Dispatcher

__all__ = ["Http2Server"]


class Http2Server:
    """The HTTP/2 connections of a server.

    Args:
        dispatcher: answers each call.
        max_streams: how many calls a connection may have open at once.
    """

    def __init__(self, dispatcher: Dispatcher, *, max_streams: int) -> None:
        self._dispatcher = dispatcher
        self._max_streams = max_streams
        # A connection lives as long as its transport, or the last call that came over it.
        self._connections: WeakSet[Http2Connection] = WeakSet()

    def new_connection(self) -> Http2Connection:
        connection = Http2Connection(self._dispatcher, max_streams=self._max_streams)
        self._connections.add(connection)
        return connection

    async def close(self) -> None:
        """Break the connections that are open and end the calls on them."""
        for connection in list(self._connections):
            await connection.close()
