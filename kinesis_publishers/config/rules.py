"""Rules between options. Each yields what is wrong, so that everything can be reported at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.config.checkpoints import checkpoint_problems
from kinesis_publishers.config.contradictions import contradictions
from kinesis_publishers.config.credential_rules import credential_problems
from kinesis_publishers.config.custom_options import unread_custom_problems
from kinesis_publishers.config.ending import ending_problems
from kinesis_publishers.config.fan_out_rules import fan_out_problems
from kinesis_publishers.config.instants import BEGIN, instant_problems
from kinesis_publishers.config.options import ALL_OPTIONS, aws, fanout, publisher
from kinesis_publishers.config.stream_selectors import StreamSelector, parse_streams
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers.config.option import Lookup

__all__ = ["find_problems", "selected_streams"]


def find_problems(lookup: Lookup, *, complete: bool) -> list[ConfigError]:
    """Return every violation.

    Args:
        lookup: the configuration.
        complete: whether required options must be there.
    """
    return [
        *(_missing_options(lookup) if complete else ()),
        *_stream_problems(lookup),
        *instant_problems(lookup, BEGIN),
        *ending_problems(lookup),
        *fan_out_problems(lookup, _known_streams(lookup)),
        *contradictions(lookup, _known_streams(lookup)),
        *checkpoint_problems(lookup),
        *_recoverable_problems(lookup),
        *credential_problems(lookup),
        *unread_custom_problems(lookup),
    ]


def selected_streams(lookup: Lookup) -> tuple[StreamSelector, ...]:
    """Return the streams to read, empty if none are given; raises ``ConfigError``."""
    text = lookup.get(publisher.STREAMS)
    return parse_streams(text, written_key=lookup.written_key(publisher.STREAMS)) if text else ()


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


def _known_streams(lookup: Lookup) -> tuple[StreamSelector, ...]:
    try:
        return selected_streams(lookup)
    except ConfigError:
        return ()  # reported where the streams themselves are checked


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
