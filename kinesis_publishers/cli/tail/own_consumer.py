"""Keeps a tail away from the stream consumer of the application whose properties it reads with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kinesis_publishers.config import RegistrationConfig, RegistrationStrategy, SourceConfig
from kinesis_publishers.config.sections.source import selected_streams
from kinesis_publishers.registration.consumer_arns import consumer_name_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from kinesis_publishers.cli.connection import Connection
    from kinesis_publishers.cli.tail.changes import Changes
    from kinesis_publishers.config import Properties
    from kinesis_publishers.config.option import Option

__all__ = ["use_own_consumer"]

_PUBLISHER: Final = SourceConfig.record_publisher.full_key
_NAME: Final = RegistrationConfig.consumer_name.full_key
_ADVICE: Final = f"-P {_PUBLISHER}=EFO -P {_NAME}=NAME"


def use_own_consumer(changes: Changes, connection: Connection) -> None:
    """Let a tail read by enhanced fan-out with a consumer of its own only, and else poll.

    Raises:
        UsageError: enhanced fan-out is asked for, and no such consumer is named.
    """
    draft, chosen = changes.draft, changes.chosen
    if draft.get(SourceConfig.record_publisher) != "EFO":
        return
    theirs = _consumers_of_the_application(changes, connection)
    # Its own must not stay registered, and billed, because that of the application does.
    options: list[Option[Any]] = [RegistrationConfig.deregister, *_arn_options(draft)]
    if _has_own_arns(changes, theirs):
        _leave_out(changes, [*options, RegistrationConfig.consumer_name])
    elif _has_own_name(changes, theirs):
        _leave_out(changes, [*options, RegistrationConfig.strategy])
    elif _PUBLISHER in chosen:
        raise click.UsageError(
            "By enhanced fan-out tail needs a stream consumer of its own: it would take over "
            f"the subscriptions of the one in the file. Use {_ADVICE} with another name than the "
            "application's (with registration NONE the ARNs of other consumers, "
            "-P kinesis.stream.efo.consumerarn.STREAM=ARN)."
        )
    else:
        changes.values[_PUBLISHER] = "POLLING"
        changes.reasons.append(
            f"{_PUBLISHER}=EFO is left out: tail polls, because it would take over the "
            f"subscriptions of the application's consumer. For one of its own use {_ADVICE}."
        )


def _leave_out(changes: Changes, options: Sequence[Option[Any]]) -> None:
    keys = changes.leave_out(options)
    changes.say_left_out(keys, "tail reads with a stream consumer of its own.")


def _arn_options(draft: Properties) -> list[Option[Any]]:
    names = draft.members(RegistrationConfig.consumer_arn)
    return [RegistrationConfig.consumer_arn.of(name) for name in names]


def _consumers_of_the_application(changes: Changes, connection: Connection) -> set[str]:
    """Return the names of the consumers that the file has, whatever the command line says."""
    options = (RegistrationConfig.consumer_name, *_arn_options(changes.draft))
    file = connection.without({option.full_key for option in options}).unchecked_properties()
    arns = file.members(RegistrationConfig.consumer_arn).values()
    names = {consumer_name_in(arn) for arn in arns if arn is not None}
    return names | {
        name for name in [file.get(RegistrationConfig.consumer_name)] if name is not None
    }


def _has_own_name(changes: Changes, theirs: AbstractSet[str]) -> bool:
    """Return whether the tail may register a consumer of a name that is not taken."""
    draft, chosen = changes.draft, changes.chosen
    is_none = draft.get(RegistrationConfig.strategy) is RegistrationStrategy.NONE
    if is_none and RegistrationConfig.strategy.full_key in chosen:
        return False
    return _NAME in chosen and draft.get(RegistrationConfig.consumer_name) not in theirs


def _has_own_arns(changes: Changes, theirs: AbstractSet[str]) -> bool:
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
