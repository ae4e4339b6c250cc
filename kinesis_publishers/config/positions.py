"""The typed view of where reading begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import InitialPosition
from kinesis_publishers.config.options import publisher
from kinesis_publishers.config.rules import initial_timestamp

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
        position = properties.get(publisher.INITIAL_POSITION)
        is_instant = position is InitialPosition.AT_TIMESTAMP
        return cls(
            position=position,
            timestamp=initial_timestamp(properties) if is_instant else None,
            shards=properties.get(publisher.INITIAL_SHARD_POSITIONS),
        )
