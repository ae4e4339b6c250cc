"""The typed view of where reading begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import InitialPosition
from kinesis_publishers.config.instants import BEGIN, instant_of
from kinesis_publishers.config.options import publisher

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.config.shard_positions import ShardPosition

__all__ = ["InitialPosition", "InitialPositionConfig"]


@frozen(kw_only=True)
class InitialPositionConfig:
    """Where to begin in a stream that was not read before.

    Attributes:
        position: the kind of position.
        timestamp: the instant of AT_TIMESTAMP in UTC, None for the other kinds.
        shards: positions of single shards, which go before ``position``.
    """

    position: InitialPosition = InitialPosition.LATEST
    timestamp: datetime | None = None
    shards: tuple[ShardPosition, ...] = ()

    @classmethod
    def from_properties(cls, properties: Properties) -> InitialPositionConfig:
        """Read the initial position."""
        return cls(
            position=properties.get(publisher.INITIAL_POSITION),
            timestamp=instant_of(properties, BEGIN),
            shards=properties.get(publisher.INITIAL_SHARD_POSITIONS),
        )
