"""Lets a tail read with the properties of an application, and not in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import click
from attrs import Factory, define

from kinesis_publishers.assembly import publisher_factory_class
from kinesis_publishers.cli.shared.connection import Connection
from kinesis_publishers.config import (
    CheckpointConfig,
    InitialPosition,
    InitialPositionConfig,
    MetricsConfig,
    PollingConfig,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
    SourceConfig,
)
from kinesis_publishers.config.option import Option
from kinesis_publishers.config.sections.checkpoints import CHECKPOINT_OPTIONS
from kinesis_publishers.config.sections.leases import AssignmentConfig, LeaseConfig
from kinesis_publishers.config.sections.source import selected_streams
from kinesis_publishers.registration.consumers import consumer_name_in

# One of the five calls a second that a shard answers: the others are the application's.
_INTERVAL_MILLIS: Final = 1000
_LOCAL_SINKS: Final = frozenset({"log", "summary"})


def observer_properties(
    connection: Connection, position: Mapping[str, str]
) -> tuple[Properties, list[str]]:
    """Return the properties that a tail reads with, and a sentence for each that it leaves out.

    A tail that read as the application would move its checkpoints, take over its subscriptions,
    remove its consumer, publish its metrics, and make most of the calls that its shards answer.

    Raises:
        ConfigErrors: lists everything that is wrong with the properties.
        UsageError: enhanced fan-out is asked for without a consumer of the tail's own.
    """
    draft = connection.properties(position, checked=False)
    changes = _Changes(draft=draft, chosen=connection.chosen | position.keys())
    _leave_checkpoints(changes)
    if set(MetricsConfig.from_properties(draft).sinks) - _LOCAL_SINKS:
        changes.leave_out([MetricsConfig.sinks], "those metrics are the application's.")
    _use_own_consumer(changes, connection)
    _poll_slowly(changes)
    return connection.properties({**position, **changes.values}), changes.reasons


def _leave_checkpoints(changes: _Changes) -> None:
    draft = changes.draft
    application = CheckpointConfig.application.full_key
    if not draft.is_given(CheckpointConfig.application):
        return
    # All of them: without an application the others have no effect.
    idle = (*CHECKPOINT_OPTIONS, *LeaseConfig.options(), AssignmentConfig.written_assigner)
    changes.values |= {option.full_key: None for option in idle}
    changes.reasons.append(f"{application} is left out: tail neither reads nor writes checkpoints.")
    # So is where the application began.
    begin: list[Option[Any]] = [InitialPositionConfig.shards]
    told = {InitialPositionConfig.position.full_key, InitialPositionConfig.timestamp_text.full_key}
    if not told & changes.chosen:
        begin += [InitialPositionConfig.position, InitialPositionConfig.timestamp_text]
    is_latest = draft.get(InitialPositionConfig.position) is InitialPosition.LATEST
    changes.leave_out(
        begin,
        "the application continues from its checkpoints; tail begins at LATEST, unless --from, "
        "--at, --since or -P say where.",
        unsaid=[InitialPositionConfig.position.full_key] if is_latest else [],
    )


def _poll_slowly(changes: _Changes) -> None:
    draft, interval = changes.draft, PollingConfig.interval_seconds
    name = changes.values.get(_PUBLISHER, draft.get(SourceConfig.record_publisher))
    # A custom publisher stays as it is: how it reads is not known.
    if name != SourceConfig.record_publisher.default or interval.full_key in changes.chosen:
        return
    if draft.get(interval) < _INTERVAL_MILLIS:
        changes.values[interval.full_key] = str(_INTERVAL_MILLIS)


@define(kw_only=True)
class _Changes:
    """Collects changes of properties, and the reasons, a sentence each."""

    # Those of the application and of the command line, not checked as a whole.
    draft: Properties
    # The full keys of the options that the command line names itself.
    chosen: AbstractSet[str]
    # What takes precedence over the draft, by full key; None leaves an option out.
    values: dict[str, str | None] = Factory(dict)
    reasons: list[str] = Factory(list)

    def leave_out(
        self, options: Iterable[Option[Any]], why: str, *, unsaid: Sequence[str] = ()
    ) -> None:
        """Leave out those of ``options`` that only the file names, and say it unless ``unsaid``."""
        keys = [
            option.full_key
            for option in options
            if self.draft.is_given(option) and option.full_key not in self.chosen
        ]
        self.values |= dict.fromkeys(keys)
        if keys and keys != unsaid:
            verb = "is" if len(keys) == 1 else "are"
            self.reasons.append(f"{', '.join(keys)} {verb} left out: {why}")


_PUBLISHER: Final = SourceConfig.record_publisher.full_key
_NAME: Final = RegistrationConfig.consumer_name.full_key
_OWN_CONSUMER: Final = "tail reads with its own stream consumer."
_ADVICE: Final = f"-P {_PUBLISHER}=EFO -P {_NAME}=NAME"


def _use_own_consumer(changes: _Changes, connection: Connection) -> None:
    """Let a tail read by enhanced fan-out only with its own consumer; otherwise let it poll.

    Raises:
        UsageError: enhanced fan-out is asked for, and no such consumer is named.
    """
    draft, chosen = changes.draft, changes.chosen
    if not publisher_factory_class(draft).subscribes:
        return
    theirs = _consumers_of_the_application(changes, connection)
    # Its own consumer must not stay registered, and billed, because the application's does.
    options: list[Option[Any]] = [RegistrationConfig.deregister, *_arn_options(draft)]
    if _has_own_arns(changes, theirs):
        changes.leave_out([*options, RegistrationConfig.consumer_name], _OWN_CONSUMER)
    elif _has_own_name(changes, theirs):
        changes.leave_out([*options, RegistrationConfig.strategy], _OWN_CONSUMER)
    elif _PUBLISHER in chosen:
        raise click.UsageError(
            "By enhanced fan-out tail needs its own stream consumer: it would take over "
            f"the subscriptions of the one in the file. Use {_ADVICE} with another name than the "
            "application's (with registration NONE the ARNs of other consumers, "
            "-P kinesis.stream.efo.consumerarn.STREAM=ARN)."
        )
    else:
        changes.values[_PUBLISHER] = SourceConfig.record_publisher.default
        changes.reasons.append(
            f"{_PUBLISHER}=EFO is left out: tail polls, because it would take over the "
            f"subscriptions of the application's consumer. To give it its own, use {_ADVICE}."
        )


def _arn_options(draft: Properties) -> list[Option[Any]]:
    names = draft.members(RegistrationConfig.consumer_arn)
    return [RegistrationConfig.consumer_arn.of(name) for name in names]


def _consumers_of_the_application(changes: _Changes, connection: Connection) -> set[str]:
    """Return the names of the consumers that the file has, without the command line's."""
    options = (RegistrationConfig.consumer_name, *_arn_options(changes.draft))
    without = connection.without({option.full_key for option in options})
    file = without.properties(checked=False)
    arns = file.members(RegistrationConfig.consumer_arn).values()
    names = {consumer_name_in(arn) for arn in arns if arn is not None}
    return names | {
        name for name in [file.get(RegistrationConfig.consumer_name)] if name is not None
    }


def _has_own_name(changes: _Changes, theirs: AbstractSet[str]) -> bool:
    """Return whether the tail may register a consumer of a name that is not taken."""
    draft, chosen = changes.draft, changes.chosen
    is_none = draft.get(RegistrationConfig.strategy) is RegistrationStrategy.NONE
    if is_none and RegistrationConfig.strategy.full_key in chosen:
        return False
    return _NAME in chosen and draft.get(RegistrationConfig.consumer_name) not in theirs


def _has_own_arns(changes: _Changes, theirs: AbstractSet[str]) -> bool:
    """Return whether the command line names a consumer of each stream that is read."""
    draft = changes.draft
    if draft.get(RegistrationConfig.strategy) is not RegistrationStrategy.NONE:
        return False
    own = {
        stream: consumer_name_in(arn)
        for stream, arn in draft.members(RegistrationConfig.consumer_arn).items()
        if arn is not None and RegistrationConfig.consumer_arn.of(stream).full_key in changes.chosen
    }
    streams = {stream.name for stream in selected_streams(draft)}
    return streams <= own.keys() and not theirs & {own[stream] for stream in streams}
