"""Rules between options. Each yields what is wrong, so that everything can be reported at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.config.choices import InitialPosition, RegistrationStrategy
from kinesis_publishers.config.credential_rules import credential_problems
from kinesis_publishers.config.options import ALL_OPTIONS, aws, fanout, publisher, registration
from kinesis_publishers.config.stream_selectors import StreamSelector, parse_streams
from kinesis_publishers.config.timestamps import parse_timestamp
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kinesis_publishers.config.option import Lookup

__all__ = ["find_problems", "initial_timestamp", "selected_streams", "consumer_arn"]


def find_problems(lookup: Lookup, *, complete: bool) -> list[ConfigError]:
    """Return every violation.

    Args:
        lookup: the configuration.
        complete: whether required options must be there.
    """
    return [
        *(_missing_options(lookup) if complete else ()),
        *_stream_problems(lookup),
        *_position_problems(lookup),
        *_fan_out_problems(lookup),
        *_recoverable_problems(lookup),
        *credential_problems(lookup),
    ]


def selected_streams(lookup: Lookup) -> tuple[StreamSelector, ...]:
    """Return the streams to read, empty if none are given; raises ``ConfigError``."""
    text = lookup.get(publisher.STREAMS)
    return parse_streams(text, written_key=lookup.written_key(publisher.STREAMS)) if text else ()


def initial_timestamp(lookup: Lookup) -> datetime | None:
    """Return the instant of the initial position, None if none is given; raises ``ConfigError``."""
    text = lookup.get(publisher.INITIAL_TIMESTAMP)
    if text is None:
        return None
    try:
        return parse_timestamp(text, pattern=lookup.get(publisher.INITIAL_TIMESTAMP_FORMAT))
    except InvalidOptionError as error:
        written_key = lookup.written_key(publisher.INITIAL_TIMESTAMP)
        raise InvalidOptionError(f"{written_key}: {error}") from None


def consumer_arn(lookup: Lookup, stream: str) -> str | None:
    """Return the ARN that is given for the consumer on ``stream``, None if there is none.

    Spark lower-cases keys, so a key that differs only in case counts if none fits exactly.
    """
    arns = lookup.members(registration.CONSUMER_ARN)
    if stream in arns:
        return arns[stream]
    lowered = {name.lower(): arn for name, arn in arns.items()}
    return lowered.get(stream.lower())


def _missing_options(lookup: Lookup) -> Iterator[ConfigError]:
    for option in ALL_OPTIONS:
        if option.required and not lookup.is_given(option):
            expected = option.parser.accepts
            yield MissingOptionError(f"{option.full_key} is required: set it to {expected}")


def _stream_problems(lookup: Lookup) -> Iterator[ConfigError]:
    try:
        streams = selected_streams(lookup)
    except ConfigError as error:
        yield error
        return
    regions = sorted({stream.region for stream in streams if stream.region})
    if len(regions) > 1 and not lookup.is_given(aws.REGION):
        yield InvalidOptionError(
            f"{lookup.written_key(publisher.STREAMS)}: the ARNs are in different regions "
            f"({', '.join(regions)}): read the streams of each region on their own"
        )


def _position_problems(lookup: Lookup) -> Iterator[ConfigError]:
    needs_timestamp = lookup.get(publisher.INITIAL_POSITION) is InitialPosition.AT_TIMESTAMP
    if needs_timestamp and not lookup.is_given(publisher.INITIAL_TIMESTAMP):
        yield MissingOptionError(
            f"{lookup.written_key(publisher.INITIAL_POSITION)} is AT_TIMESTAMP: set "
            f"{publisher.INITIAL_TIMESTAMP.full_key} to a date or epoch seconds"
        )
    if lookup.is_refused(publisher.INITIAL_TIMESTAMP_FORMAT):
        return
    try:
        initial_timestamp(lookup)
    except ConfigError as error:
        yield error


def _fan_out_problems(lookup: Lookup) -> Iterator[ConfigError]:
    is_fan_out = lookup.get(publisher.RECORD_PUBLISHER) == "EFO"
    if not is_fan_out or lookup.is_refused(registration.REGISTRATION):
        return
    if lookup.get(registration.REGISTRATION) is RegistrationStrategy.NONE:
        yield from _consumer_arn_problems(lookup)
    elif not lookup.is_given(registration.CONSUMER_NAME):
        strategy = lookup.get(registration.REGISTRATION).value
        yield MissingOptionError(
            f"{registration.CONSUMER_NAME.full_key} is required for EFO with {strategy} "
            "registration: the name under which this application registers on each stream"
        )


def _consumer_arn_problems(lookup: Lookup) -> Iterator[ConfigError]:
    try:
        names = [stream.name for stream in selected_streams(lookup)]
    except ConfigError:
        return  # reported where the streams themselves are checked
    missing = []
    for name in names:
        option = registration.CONSUMER_ARN.of(name)
        arn = consumer_arn(lookup, name)
        if arn is not None and f":stream/{name}/consumer/" not in arn:
            yield InvalidOptionError(
                f"{option.full_key}: {arn!r} is a consumer of another stream, expected one of "
                f"{name!r}"
            )
        elif arn is None and not lookup.is_given(option):
            missing.append(option.full_key)
    if missing:
        yield MissingOptionError(
            f"{registration.REGISTRATION.full_key} is NONE: set {', '.join(missing)} to "
            f"{registration.CONSUMER_ARN.member.parser.accepts}"
        )


def _recoverable_problems(lookup: Lookup) -> Iterator[ConfigError]:
    indices = sorted(int(name.strip("[]")) for name in lookup.members(fanout.RECOVERABLE_ERRORS))
    for expected, found in enumerate(indices):
        if expected != found:
            present = fanout.RECOVERABLE_ERRORS.of(f"[{found}]").full_key
            absent = fanout.RECOVERABLE_ERRORS.of(f"[{expected}]").full_key
            yield InvalidOptionError(
                f"{present} is set but {absent} is not: count from 0 without gaps"
            )
            return
