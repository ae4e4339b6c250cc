"""The properties of a tail that does not disturb the application it looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from kinesis_publishers.assembly import publisher_factory_class
from kinesis_publishers.cli.shared.connection import Connection, by_full_key
from kinesis_publishers.config import (
    CheckpointConfig,
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
    MetricsConfig,
    PollingConfig,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
    SourceConfig,
    WatermarkConfig,
)
from kinesis_publishers.config.option import Option
from kinesis_publishers.config.parsers import Scalar
from kinesis_publishers.config.sections.checkpoints import (
    CHECKPOINT_OPTIONS,
    AssignmentConfig,
    LeaseConfig,
)
from kinesis_publishers.config.sections.reading import ARRIVAL
from kinesis_publishers.config.sections.source import built_in_publisher
from kinesis_publishers.model.sources import POLLING, PUBLISHERS, consumer_name_of

# One of the five calls a second that a shard answers: the others are the application's.
_INTERVAL_MILLIS: Final = 1000
_LOCAL_SINKS: Final = frozenset({"log", "summary"})
_APPLICATION: Final = CheckpointConfig.application.full_key
# Without an application they have no effect.
_CHECKPOINTS: Final = [
    option.full_key
    for option in (*CHECKPOINT_OPTIONS, *LeaseConfig.options(), AssignmentConfig.written_assigner)
]
_ASSIGNER: Final = WatermarkConfig.assigner.full_key
_POSITION: Final = InitialPositionConfig.position.full_key
_BEGIN: Final = {_POSITION, InitialPositionConfig.timestamp.text.full_key}
_END: Final = EndingPositionConfig.position.full_key
_SHARDS: Final = InitialPositionConfig.shards.full_key
_PUBLISHER: Final = SourceConfig.record_publisher.full_key
_NAME: Final = RegistrationConfig.consumer_name.full_key
_STRATEGY: Final = RegistrationConfig.strategy.full_key
_DEREGISTER: Final = RegistrationConfig.deregister.full_key
_ARNS: Final = RegistrationConfig.consumer_arn.of("").full_key
_ADVICE: Final = f"-P {_PUBLISHER}=EFO -P {_NAME}=NAME"


def observer_properties(
    connection: Connection, position: Mapping[str, str | None]
) -> tuple[Properties, list[str]]:
    """Return the properties of a tail, and a sentence about each one that it leaves out.

    With the application's own properties, a tail would move its checkpoints, take over its
    subscriptions, remove its consumer, publish its metrics and use up its calls to the shards.
    The command line takes precedence, except for checkpoints.
    """
    file, line = by_full_key(connection.config), by_full_key(connection.pairs)
    given = file | line
    reasons: list[str] = []
    more: dict[str, str | None] = dict.fromkeys(one.full_key for one in WatermarkConfig.options())
    if _ASSIGNER in given:
        # The application's own class may not be installed here. Its options remain, unread.
        more[_ASSIGNER] = ARRIVAL
    more |= position
    if _APPLICATION in given:
        start = InitialPosition.TRIM_HORIZON if _END in position else InitialPosition.LATEST
        begin = {} if _BEGIN & line.keys() else {_POSITION: start.value}
        more |= {**dict.fromkeys(_CHECKPOINTS), _SHARDS: line.get(_SHARDS), **begin, **position}
        reasons.append(
            f"{_APPLICATION} is left out: tail neither reads nor writes checkpoints, and begins at "
            f"{start.value}, unless --start or -P say where."
        )
    known = PUBLISHERS.get(given.get(_PUBLISHER, POLLING.name).strip().upper())
    # EFO cannot be parsed yet: the consumer may be missing, or be one of another stream.
    if (known or publisher_factory_class(connection.properties(more))).subscribes:
        more |= _fan_out(file, line, reasons)
    properties = connection.properties(more)
    # Two displays would overwrite each other.
    changes: dict[Option[Any], Scalar | None] = {MetricsConfig.progress: None}
    sinks, interval = MetricsConfig.sinks, PollingConfig.interval_seconds
    names = properties.get(sinks)
    if sinks.full_key not in line and not _LOCAL_SINKS.issuperset(names):
        changes[sinks] = None
        reasons.append(f"{sinks.full_key} is left out: those metrics are the application's.")
    # A custom publisher stays as it is: how it reads is not known.
    publisher = built_in_publisher(properties)
    if publisher and publisher.polls and interval.full_key not in line:
        changes[interval] = max(properties.get(interval), _INTERVAL_MILLIS)
    return properties.with_values(changes), reasons


def _fan_out(
    file: Mapping[str, str], line: Mapping[str, str], reasons: list[str]
) -> dict[str, str | None]:
    """Return the properties for the tail's own stream consumer, or for polling; add the reason."""
    theirs, ours = _consumers(file), _consumers(line)
    if ours and not ours & theirs:
        # Its own must not stay registered, and billed, because the application's does.
        names = [key for key in file if key in (_NAME, _DEREGISTER) or key.startswith(_ARNS)]
        if left := [key for key in names if key not in line]:
            verb = "is" if len(left) == 1 else "are"
            reasons.append(
                f"{', '.join(left)} {verb} left out: tail reads with its own stream consumer."
            )
        strategy = None if _NAME in line else RegistrationStrategy.NONE.value
        return {**dict.fromkeys(left), _STRATEGY: line.get(_STRATEGY, strategy)}
    if _PUBLISHER in line:
        raise click.UsageError(
            "By enhanced fan-out tail needs its own stream consumer: it would take over "
            f"the subscriptions of the one in the file. Use {_ADVICE} with another name than the "
            f"application's, or the ARNs of other consumers (-P {_ARNS}STREAM=ARN)."
        )
    reasons.append(
        f"{_PUBLISHER}=EFO is left out: tail polls, because it would take over the "
        f"subscriptions of the application's consumer. To give it its own, use {_ADVICE}."
    )
    return {_PUBLISHER: POLLING.name}


def _consumers(properties: Mapping[str, str]) -> set[str]:
    """Return the names of the stream consumers that properties have, as names or in ARNs."""
    return {
        consumer_name_of(value) or value.strip()
        for key, value in properties.items()
        if key == _NAME or key.startswith(_ARNS)
    }
