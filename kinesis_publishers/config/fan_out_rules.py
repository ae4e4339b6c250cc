"""What the options of enhanced fan-out ask of each other and of the streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kinesis_publishers.config.choices import HttpVersion, RegistrationStrategy
from kinesis_publishers.config.options import aws, fanout, publisher, registration
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_publishers.config.option import Lookup
    from kinesis_publishers.config.stream_selectors import StreamSelector

__all__ = ["consumer_arn", "fan_out_problems"]

_CONSUMER_ARN: Final = re.compile(
    r"(?P<stream_arn>.+:stream/(?P<stream>.+))/consumer/(?P<name>.+):"
)


def consumer_arn(lookup: Lookup, stream: str) -> str | None:
    """Return the ARN that is given for the consumer on ``stream``, None if there is none.

    Spark lower-cases keys, so a key that differs only in case counts if none fits exactly.
    """
    arns = lookup.members(registration.CONSUMER_ARN)
    if stream in arns:
        return arns[stream]
    lowered = {name.lower(): arn for name, arn in arns.items()}
    return lowered.get(stream.lower())


def fan_out_problems(lookup: Lookup, streams: Sequence[StreamSelector]) -> Iterator[ConfigError]:
    """Yield what is wrong, if shards are read with SubscribeToShard.

    Args:
        lookup: the configuration.
        streams: the streams to read, as far as they are known.
    """
    if lookup.get(publisher.RECORD_PUBLISHER) != "EFO":
        return
    yield from _protocol_problems(lookup)
    for stream in streams:
        yield from _contradictions(lookup, stream)
    if lookup.is_refused(registration.REGISTRATION):
        return
    if lookup.get(registration.REGISTRATION) is RegistrationStrategy.NONE:
        yield from _missing_consumer_arns(lookup, streams)
    elif not lookup.is_given(registration.CONSUMER_NAME):
        strategy = lookup.get(registration.REGISTRATION).value
        yield MissingOptionError(
            f"{registration.CONSUMER_NAME.full_key} is required for EFO with {strategy} "
            "registration: the name under which this application registers on each stream"
        )


def _protocol_problems(lookup: Lookup) -> Iterator[ConfigError]:
    endpoint = lookup.get(aws.ENDPOINT) or ""
    is_plain = endpoint.lower().startswith("http://")
    if is_plain and lookup.get(fanout.HTTP_VERSION) is HttpVersion.HTTP_2:
        yield InvalidOptionError(
            f"{lookup.written_key(fanout.HTTP_VERSION)} is 2, which needs TLS, and "
            f"{lookup.written_key(aws.ENDPOINT)} begins with http://: use an https:// endpoint, or "
            "auto or 1.1"
        )


def _contradictions(lookup: Lookup, stream: StreamSelector) -> Iterator[ConfigError]:
    key = registration.CONSUMER_ARN.of(stream.name).full_key
    arn = consumer_arn(lookup, stream.name)
    parts = _CONSUMER_ARN.match(arn) if arn is not None else None
    if parts is None:
        return
    if parts["stream"] != stream.name:
        yield InvalidOptionError(
            f"{key}: {arn!r} is a consumer of another stream, expected one of {stream.name!r}"
        )
    elif stream.arn not in (None, parts["stream_arn"]):
        yield InvalidOptionError(
            f"{key}: {arn!r} is a consumer of a stream in another region or account, expected one "
            f"of {stream.arn!r}"
        )
    name = lookup.get(registration.CONSUMER_NAME)
    if name not in (None, parts["name"]):
        yield InvalidOptionError(
            f"{key}: {arn!r} is the consumer {parts['name']!r}, but "
            f"{lookup.written_key(registration.CONSUMER_NAME)} is {name!r}: make them agree, or "
            "remove one"
        )


def _missing_consumer_arns(
    lookup: Lookup, streams: Sequence[StreamSelector]
) -> Iterator[ConfigError]:
    options = [registration.CONSUMER_ARN.of(stream.name) for stream in streams]
    missing = [
        option.full_key
        for option, stream in zip(options, streams, strict=True)
        if consumer_arn(lookup, stream.name) is None and not lookup.is_given(option)
    ]
    if missing:
        yield MissingOptionError(
            f"{registration.REGISTRATION.full_key} is NONE: set {', '.join(missing)} to "
            f"{registration.CONSUMER_ARN.member.parser.accepts}"
        )
