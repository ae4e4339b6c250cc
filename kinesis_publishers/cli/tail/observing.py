"""Lets a tail read with the properties of an application, and not in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.cli.tail.changes import Changes
from kinesis_publishers.cli.tail.own_consumer import use_own_consumer
from kinesis_publishers.config import (
    CheckpointConfig,
    InitialPosition,
    InitialPositionConfig,
    MetricsConfig,
    PollingConfig,
    Properties,
    SourceConfig,
)
from kinesis_publishers.config.sections.checkpoints import CHECKPOINT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.cli.connection import Connection
    from kinesis_publishers.config.option import Option

__all__ = ["observer_properties"]

# One of the five calls a second that a shard answers: the others are the application's.
_INTERVAL_MILLIS: Final = 1000
_LOCAL_SINKS: Final = frozenset({"log", "summary"})


def observer_properties(
    connection: Connection, position: Mapping[str, str]
) -> tuple[Properties, list[str]]:
    """Return what a tail reads with, and what it leaves out and why, a sentence each.

    A tail that read as the application would move its checkpoints, take over its subscriptions,
    remove its consumer, publish its metrics, and make most of the calls that its shards answer.

    Args:
        connection: the properties of the application, and those of the command line.
        position: where to begin, as options of the command line's own say.

    Raises:
        ConfigErrors: lists everything that is wrong with the properties.
        UsageError: enhanced fan-out is asked for without a consumer of the tail's own.
    """
    draft = connection.unchecked_properties(position)
    changes = Changes(draft=draft, chosen=connection.chosen | position.keys())
    _leave_checkpoints(changes)
    _leave_metrics(changes)
    use_own_consumer(changes, connection)
    _poll_slowly(changes)
    return connection.properties({**position, **changes.values}), changes.reasons


def _leave_checkpoints(changes: Changes) -> None:
    draft = changes.draft
    application = CheckpointConfig.application.full_key
    if not draft.is_given(CheckpointConfig.application):
        return
    # All of them: without an application the others would be in vain.
    changes.values |= {option.full_key: None for option in CHECKPOINT_OPTIONS}
    changes.say_left_out([application], "tail neither reads nor writes checkpoints.")
    _leave_position(changes)


def _leave_position(changes: Changes) -> None:
    """Leave out where the application began, long ago: it goes on at its checkpoints."""
    begin: list[Option[Any]] = [InitialPositionConfig.shards]
    told = {InitialPositionConfig.position.full_key, InitialPositionConfig.timestamp_text.full_key}
    if not told & changes.chosen:
        begin += [InitialPositionConfig.position, InitialPositionConfig.timestamp_text]
    keys = changes.leave_out(begin)
    if keys != [InitialPositionConfig.position.full_key] or not _is_latest(changes.draft):
        changes.say_left_out(
            keys,
            "the application goes on at its checkpoints; tail begins at LATEST, unless --from, "
            "--at, --since or -P say where.",
        )


def _is_latest(properties: Properties) -> bool:
    return properties.get(InitialPositionConfig.position) is InitialPosition.LATEST


def _leave_metrics(changes: Changes) -> None:
    if set(MetricsConfig.from_properties(changes.draft).sinks) - _LOCAL_SINKS:
        keys = changes.leave_out([MetricsConfig.sinks])
        changes.say_left_out(keys, "those metrics are the application's.")


def _poll_slowly(changes: Changes) -> None:
    draft, interval = changes.draft, PollingConfig.interval_seconds
    name = changes.values.get(
        SourceConfig.record_publisher.full_key, draft.get(SourceConfig.record_publisher)
    )
    # A publisher of somebody else's is left as it is: how it reads is not known.
    if name != "POLLING" or interval.full_key in changes.chosen:
        return
    if draft.get(interval) < _INTERVAL_MILLIS:
        changes.values[interval.full_key] = str(_INTERVAL_MILLIS)
