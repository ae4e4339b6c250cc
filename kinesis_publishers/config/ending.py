"""The typed view of where a batch read ends, and the rules for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import EndingPosition
from kinesis_publishers.config.instants import END, instant_of, instant_problems
from kinesis_publishers.config.options import ending
from kinesis_publishers.config.shard_positions import ShardIteratorKind, ShardPosition
from kinesis_publishers.errors import ConfigError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kinesis_publishers.config.option import Lookup
    from kinesis_publishers.config.properties import Properties

__all__ = ["EndingPositionConfig", "ending_keys", "ending_problems"]


@frozen(kw_only=True)
class EndingPositionConfig:
    """Where a batch read ends: before which position the last record stands.

    Attributes:
        position: the kind of position.
        timestamp: the instant of AT_TIMESTAMP in UTC, None for LATEST.
        shards: positions of single shards, which go before ``position``.
    """

    position: EndingPosition = EndingPosition.LATEST
    timestamp: datetime | None = None
    shards: tuple[ShardPosition, ...] = ()

    @classmethod
    def from_properties(cls, properties: Properties) -> EndingPositionConfig:
        """Read the ending position."""
        return cls(
            position=properties.get(ending.ENDING_POSITION),
            timestamp=instant_of(properties, END),
            shards=properties.get(ending.ENDING_SHARD_POSITIONS),
        )


def ending_keys(properties: Properties) -> tuple[str, ...]:
    """Return the keys, as written, that say where a read ends; each once."""
    keys = (properties.written_key(one) for one in ending.OPTIONS if properties.is_given(one))
    # One that another connector has may stand for two of ours.
    return tuple(dict.fromkeys(keys))


def ending_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield what is wrong with the ending position."""
    yield from instant_problems(lookup, END)
    for one in lookup.get(ending.ENDING_SHARD_POSITIONS):
        if one.kind is ShardIteratorKind.TRIM_HORIZON:
            yield InvalidOptionError(
                f"{lookup.written_key(ending.ENDING_SHARD_POSITIONS)}: {one.shard_id} ends at "
                "TRIM_HORIZON, where it begins: nothing of it would be read. Leave the shard out "
                "with a filter on shardId, or name another position"
            )
