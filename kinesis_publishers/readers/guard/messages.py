"""What a reader and its guard tell each other: one line in each direction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from attrs import frozen

from kinesis_publishers.config import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["READY", "GuardRequest"]

#: What the guard says once it holds its leases.
READY = b"ready\n"


@frozen(kw_only=True)
class GuardRequest:
    """What the guard is asked for; it travels through a pipe, because it has credentials in it.

    Attributes:
        properties: the configuration of the reader.
        stream_arns: the streams whose consumers are to be guarded.
    """

    properties: Properties
    stream_arns: tuple[str, ...]

    @classmethod
    def of(cls, properties: Properties, stream_arns: Iterable[str]) -> Self:
        """Return the request for some streams."""
        return cls(properties=properties, stream_arns=tuple(sorted(stream_arns)))

    def to_line(self) -> bytes:
        """Return the request as it travels."""
        message = {"properties": self.properties.to_dict(), "streamArns": self.stream_arns}
        return json.dumps(message).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Return the request that :meth:`to_line` wrote."""
        message = json.loads(line)
        return cls(
            properties=Properties.parse(message["properties"]),
            stream_arns=tuple(message["streamArns"]),
        )
