"""Between which positions a fetcher reads, as the properties say it."""

from __future__ import annotations

from collections.abc import Iterator

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPositionConfig,
    LeaseConfig,
    Properties,
)
from kinesis_publishers.errors import ConfigErrors, InvalidOptionError
from kinesis_publishers.model import PositionType, StartingPosition, is_after


def bounds_of(
    properties: Properties, clock: Clock | None
) -> tuple[Properties, StartingPosition | None]:
    """Return the properties with their start, and the end of reading, ``None`` without one.

    With an end, reading begins at TRIM_HORIZON unless the properties say where.

    Raises:
        ConfigErrors: reading cannot end there.
    """
    if not properties.given_keys(EndingPositionConfig.options()):
        return properties, None
    if not properties.is_given(InitialPositionConfig.position):
        trim_horizon = PositionType.TRIM_HORIZON.value
        properties = properties.with_values({InitialPositionConfig.position: trim_horizon})
    start = InitialPositionConfig.from_properties(properties).positions.default
    end = EndingPositionConfig.from_properties(properties).positions.default
    now = (clock or SystemClock()).now()
    problems = list(_problems(properties))
    if is_after(start.pinned(now), end.pinned(now)):
        start_key = properties.written_key(InitialPositionConfig.position)
        end_key = properties.written_key(EndingPositionConfig.position)
        problems.append(f"{start_key} ({start}) is later than {end_key} ({end})")
    if problems:
        raise ConfigErrors(list(map(InvalidOptionError, problems)))
    return properties, end


def _problems(properties: Properties) -> Iterator[str]:
    end, shards = EndingPositionConfig.position, EndingPositionConfig.shards
    if properties.get(shards):
        yield (
            f"{properties.written_key(shards)} is for spark.read: here all shards end at one "
            f"instant, {end.full_key} (end=)"
        )
    if properties.get(leases := LeaseConfig.is_enabled):
        yield (
            f"{properties.written_key(end)} and {properties.written_key(leases)} contradict each "
            "other: no worker knows how far the others are. Leave one of them out"
        )
