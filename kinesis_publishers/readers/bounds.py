"""Between which positions a fetcher reads, as the properties say it."""

from __future__ import annotations

from collections.abc import Iterator

from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
    LeaseConfig,
    Properties,
)
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError
from kinesis_publishers.model import StartingPosition, is_after


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
    if problems := list(_problems(properties)):
        raise ConfigErrors(problems)
    if not properties.is_given(InitialPositionConfig.position):
        trim_horizon = InitialPosition.TRIM_HORIZON.value
        properties = properties.with_values({InitialPositionConfig.position: trim_horizon})
    start = InitialPositionConfig.from_properties(properties).start
    end = EndingPositionConfig.from_properties(properties).positions.default
    now = (clock or SystemClock()).now()
    if is_after(start.pinned(now), end.pinned(now)):
        start_key = properties.written_key(InitialPositionConfig.position)
        end_key = properties.written_key(EndingPositionConfig.position)
        message = f"{start_key} ({start}) is later than {end_key} ({end}): it must come before"
        raise ConfigErrors([InvalidOptionError(message)])
    return properties, end


def _problems(properties: Properties) -> Iterator[ConfigError]:
    end, shards, leases = (
        EndingPositionConfig.position,
        EndingPositionConfig.shards,
        LeaseConfig.is_enabled,
    )
    if properties.get(shards):
        yield InvalidOptionError(
            f"{properties.written_key(shards)} is for spark.read: here all shards end at one "
            f"instant, {end.full_key} (end=)"
        )
    if properties.get(leases):
        yield InvalidOptionError(
            f"{properties.written_key(end)} and {properties.written_key(leases)} contradict each "
            "other: no worker knows when the others have come to the end. Read with one worker, or "
            "leave the end out"
        )
