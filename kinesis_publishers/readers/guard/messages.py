"""The two messages between a reader and its guard: one line in each direction."""

from __future__ import annotations

import json
from typing import Self

from attrs import frozen

from kinesis_publishers.config import Properties

__all__ = ["READY", "GuardRequest"]

#: The guard sends this once it holds its leases.
READY = b"ready\n"


@frozen(kw_only=True)
class GuardRequest:
    """What the guard does; it travels through a pipe, because it holds credentials.

    Attributes:
        properties: the configuration of the reader.
        stream_arns: the streams whose consumers the guard holds.
        linger_seconds: how long the guard waits after the reader's end before it removes them.
    """

    properties: Properties
    stream_arns: tuple[str, ...]
    linger_seconds: float

    def to_line(self) -> bytes:
        """Return the request as one line of JSON."""
        message = {
            "properties": self.properties.to_dict(),
            "streamArns": self.stream_arns,
            "lingerSeconds": self.linger_seconds,
        }
        return json.dumps(message).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Return the request that :meth:`to_line` wrote."""
        message = json.loads(line)
        return cls(
            properties=Properties.parse(message["properties"]),
            stream_arns=tuple(message["streamArns"]),
            linger_seconds=message["lingerSeconds"],
        )
