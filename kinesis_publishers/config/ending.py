"""The typed view of where a batch read ends, and the rules for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import EndingPosition
from kinesis_publishers.config.options import ending
from kinesis_publishers.config.shard_positions import ShardIteratorKind, ShardPosition
from kinesis_publishers.config.timestamps import parse_timestamp
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError

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
        position = properties.get(ending.ENDING_POSITION)
        is_instant = position is EndingPosition.AT_TIMESTAMP
        return cls(
            position=position,
            timestamp=_timestamp(properties) if is_instant else None,
            shards=properties.get(ending.ENDING_SHARD_POSITIONS),
        )


def ending_keys(properties: Properties) -> tuple[str, ...]:
    """Return the keys, as written, that say where a read ends."""
    return tuple(
        properties.written_key(option) for option in ending.OPTIONS if properties.is_given(option)
    )


def ending_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield what is wrong with the ending position."""
    needs_timestamp = lookup.get(ending.ENDING_POSITION) is EndingPosition.AT_TIMESTAMP
    if needs_timestamp and not lookup.is_given(ending.ENDING_TIMESTAMP):
        yield MissingOptionError(
            f"{lookup.written_key(ending.ENDING_POSITION)} is AT_TIMESTAMP: set "
            f"{ending.ENDING_TIMESTAMP.full_key} to a date or epoch seconds"
        )
    for one in lookup.get(ending.ENDING_SHARD_POSITIONS):
        if one.kind is ShardIteratorKind.TRIM_HORIZON:
            yield InvalidOptionError(
                f"{lookup.written_key(ending.ENDING_SHARD_POSITIONS)}: {one.shard_id} ends at "
                "TRIM_HORIZON, where it begins: nothing of it would be read. Leave the shard out "
                "with a filter on shardId, or name another position"
            )
    if lookup.is_refused(ending.ENDING_TIMESTAMP_FORMAT):
        return
    try:
        _timestamp(lookup)
    except ConfigError as error:
        yield error


def _timestamp(lookup: Lookup) -> datetime | None:
    text = lookup.get(ending.ENDING_TIMESTAMP)
    if text is None:
        return None
    try:
        return parse_timestamp(text, pattern=lookup.get(ending.ENDING_TIMESTAMP_FORMAT))
    except InvalidOptionError as error:
        written_key = lookup.written_key(ending.ENDING_TIMESTAMP)
        raise InvalidOptionError(f"{written_key}: {error}") from None
