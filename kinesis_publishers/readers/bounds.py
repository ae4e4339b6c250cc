"""Between which positions a fetcher reads, as the properties say it."""

from __future__ import annotations

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
    LeaseConfig,
    Properties,
)
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.model import StartingPosition


def bounds_of(
    properties: Properties, clock: Clock | None
) -> tuple[Properties, StartingPosition | None]:
    """Return the properties with their start, and the end of reading, ``None`` without one.

    With an end, reading begins at TRIM_HORIZON unless the properties say where.

    Raises:
        InvalidOptionError: reading cannot end there.
    """
    if not properties.given_keys(EndingPositionConfig.options()):
        return properties, None
    config = EndingPositionConfig
    if properties.get(config.shards):
        raise InvalidOptionError(
            f"{properties.written_key(config.shards)} is for spark.read: here all shards end at "
            f"one instant, {config.position.full_key} (end=)"
        )
    if properties.get(LeaseConfig.is_enabled):
        raise InvalidOptionError(
            f"{properties.written_key(config.position)} and "
            f"{LeaseConfig.is_enabled.full_key} contradict each other: no worker knows when the "
            "others have come to the end. Read with one worker, or leave the end out"
        )
    if not properties.is_given(InitialPositionConfig.position):
        properties = properties.with_values(
            {InitialPositionConfig.position: InitialPosition.TRIM_HORIZON.value}
        )
    start = InitialPositionConfig.from_properties(properties).start
    end = config.from_properties(properties).positions.default
    now = (clock or SystemClock()).now()
    first, last = start.pinned(now).timestamp, end.pinned(now).timestamp
    if first is not None and last is not None and first > last:
        raise InvalidOptionError(
            f"{properties.written_key(InitialPositionConfig.position)} ({start}) is later than "
            f"{properties.written_key(config.position)} ({end}): reading must begin before its end"
        )
    return properties, end
