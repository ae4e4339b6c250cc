"""The typed view of which streams are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.options import publisher
from kinesis_publishers.config.rules import selected_streams
from kinesis_publishers.config.stream_selectors import StreamSelector
from kinesis_publishers.errors import MissingOptionError

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["StreamSelector", "StreamsConfig"]


@frozen(kw_only=True)
class StreamsConfig:
    """The streams to read.

    Attributes:
        streams: at least one, each name once, in the order of the configuration.
    """

    streams: tuple[StreamSelector, ...]

    @property
    def region(self) -> str | None:
        """The region of the first ARN, None if all streams are given by name."""
        return next((stream.region for stream in self.streams if stream.region), None)

    @classmethod
    def from_properties(cls, properties: Properties) -> StreamsConfig:
        """Read the streams.

        Raises:
            MissingOptionError: ``properties`` were parsed as incomplete and name no stream.
        """
        streams = selected_streams(properties)
        if not streams:
            raise MissingOptionError(f"{publisher.STREAMS.full_key} is required")
        return cls(streams=streams)
