"""The instants at which reading begins and ends, and the rules that both have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from kinesis_publishers.config.options import ending, publisher
from kinesis_publishers.config.timestamps import parse_timestamp
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kinesis_publishers.config.option import Lookup, Option

__all__ = ["BEGIN", "END", "InstantOptions", "instant_of", "instant_problems"]


@frozen(kw_only=True)
class InstantOptions:
    """The options that say one instant.

    Attributes:
        position: the kind of position; it is an instant if it is AT_TIMESTAMP.
        timestamp: the text.
        pattern: the pattern of the text.
        verb: what reading does there.
    """

    position: Option[Any]
    timestamp: Option[str | None]
    pattern: Option[str]
    verb: str


BEGIN: Final = InstantOptions(
    position=publisher.INITIAL_POSITION,
    timestamp=publisher.INITIAL_TIMESTAMP,
    pattern=publisher.INITIAL_TIMESTAMP_FORMAT,
    verb="begins",
)
END: Final = InstantOptions(
    position=ending.ENDING_POSITION,
    timestamp=ending.ENDING_TIMESTAMP,
    pattern=ending.ENDING_TIMESTAMP_FORMAT,
    verb="ends",
)


def instant_of(lookup: Lookup, options: InstantOptions) -> datetime | None:
    """Return the instant, None unless the position is one.

    Raises:
        InvalidOptionError: the text is not a timestamp.
    """
    return _parse(lookup, options) if _is_instant(lookup, options) else None


def instant_problems(lookup: Lookup, options: InstantOptions) -> Iterator[ConfigError]:
    """Yield what is wrong with an instant, and with one that has no effect."""
    is_given = lookup.is_given(options.timestamp)
    if _is_instant(lookup, options) and not is_given:
        yield MissingOptionError(
            f"{lookup.written_key(options.position)} is AT_TIMESTAMP: set "
            f"{options.timestamp.full_key} to a date or epoch seconds"
        )
    # Beside a position that somebody chose, a timestamp may be a leftover: Flink ignores it too.
    # Without one, the default would skip what lies between the timestamp and now, or read it.
    if is_given and not lookup.is_given(options.position):
        yield InvalidOptionError(
            f"{lookup.written_key(options.timestamp)} is given, but nothing says that reading "
            f"{options.verb} there: set {options.position.full_key} to AT_TIMESTAMP"
        )
    if not lookup.is_refused(options.pattern):
        try:
            _parse(lookup, options)
        except ConfigError as error:
            yield error


def _is_instant(lookup: Lookup, options: InstantOptions) -> bool:
    return bool(lookup.get(options.position).value == "AT_TIMESTAMP")


def _parse(lookup: Lookup, options: InstantOptions) -> datetime | None:
    text = lookup.get(options.timestamp)
    if text is None:
        return None
    try:
        return parse_timestamp(text, pattern=lookup.get(options.pattern))
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{lookup.written_key(options.timestamp)}: {error}") from None
