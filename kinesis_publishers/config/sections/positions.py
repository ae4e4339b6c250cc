"""Where reading begins and where a batch read ends: positions of a stream and of single shards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from kinesis_publishers.config.option import Derived, Lookup, Namespace, Option, Section
from kinesis_publishers.config.parsers import Scalar, Text
from kinesis_publishers.config.timestamps import DEFAULT_FORMAT, TimestampPattern, parse_timestamp
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError
from kinesis_publishers.model import (
    Positions,
    PositionType,
    Scope,
    SequenceNumber,
    StartingPosition,
)
from kinesis_publishers.model.sources import STREAM_NAME, source_of

ScopedPositions: TypeAlias = "tuple[tuple[Scope, StartingPosition | None], ...]"

_SHARD_PREFIX: Final = "shardId-"
_SHARD_ID: Final = rf"{_SHARD_PREFIX}[a-zA-Z0-9_.-]{{1,120}}"
_SEQUENCE_NUMBER: Final = r"0|[1-9][0-9]{0,128}"
# Of the year 9999, with which calendars end.
_LAST_MILLISECOND: Final = 253_402_300_799_999


class InitialPosition(Enum):
    """Where to begin in a stream that was never read before."""

    LATEST = "LATEST"
    TRIM_HORIZON = "TRIM_HORIZON"
    AT_TIMESTAMP = "AT_TIMESTAMP"


class EndingPosition(Enum):
    """Where a batch read ends."""

    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"


class _PositionsParser:
    """Parses ``{"shardId-...": {"iteratorType": ..., "iteratorPosition": ...}}``.

    It is the JSON text that other Spark connectors for Kinesis write. The positions of one of
    several streams stand below its name or ARN, where one position may stand for all its shards.
    """

    accepts = (
        'JSON such as {"shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER", '
        '"iteratorPosition": "495..."}}, with milliseconds since 1970 for AT_TIMESTAMP; of several '
        'streams {"orders": {"shardId-...": {...}}, "clicks": "TRIM_HORIZON"}'
    )

    def __call__(self, value: Scalar) -> ScopedPositions:
        import orjson

        document = orjson.loads(str(value))
        if not isinstance(document, dict):
            raise ValueError("not an object")
        return tuple(sorted(_positions_in(document), key=lambda one: one[0]))


def _positions_in(document: Mapping[str, Any]) -> Iterator[tuple[Scope, StartingPosition | None]]:
    for name, value in document.items():
        if name.startswith(_SHARD_PREFIX):
            yield _shard_position("", name, value)
        elif isinstance(value, dict) and "iteratorType" not in value:
            # An offset that was copied from another connector has "metadata" next to the shards.
            if name != "metadata" or any(one.startswith(_SHARD_PREFIX) for one in value):
                _check_stream(name)
                yield from (_shard_position(name, one, value[one]) for one in value)
        else:
            _check_stream(name)
            position = _parse_position({"iteratorType": value} if isinstance(value, str) else value)
            if position is None or position.sequence_number is not None:
                raise ValueError("not a position of all shards")
            yield Scope(name), position


def _check_stream(name: str) -> None:
    if not (source_of(name) or re.fullmatch(STREAM_NAME, name)):
        raise ValueError("not a stream")


def _shard_position(
    stream: str, shard_id: str, position: object
) -> tuple[Scope, StartingPosition | None]:
    if not re.fullmatch(_SHARD_ID, shard_id):
        raise ValueError("not a shard")
    return Scope(stream, shard_id), _parse_position(position)


def _parse_position(position: object) -> StartingPosition | None:
    """Return what one position says, ``None`` for the end of the shard."""
    if not isinstance(position, dict):
        raise ValueError("not a position")
    name = str(position.get("iteratorType")).upper()
    if name == "SHARD_END":
        return None
    kind = PositionType(name)
    if kind in {PositionType.TRIM_HORIZON, PositionType.LATEST}:
        return StartingPosition(kind)
    marker = str(position.get("iteratorPosition", ""))
    if not re.fullmatch(_SEQUENCE_NUMBER, marker):
        raise ValueError("not a sequence number")
    if kind is not PositionType.AT_TIMESTAMP:
        return StartingPosition(kind, SequenceNumber(marker))
    if int(marker) > _LAST_MILLISECOND:
        raise ValueError("beyond all calendars")
    return StartingPosition.at_timestamp(datetime.fromtimestamp(int(marker) / 1000, UTC))


def _timestamp_text(key: str, meaning: str) -> Option[str | None]:
    accepts = f"a date as {key}.timestamp.format describes, or epoch seconds"
    doc = f"{meaning}: a date in the format below, epoch seconds, or ISO-8601."
    return Option(key=f"{key}.timestamp", parser=Text(accepts=accepts), doc=doc)


def _timestamp_format(key: str) -> Option[str]:
    doc = "The SimpleDateFormat pattern of the timestamp; without a zone it is UTC."
    key = f"{key}.timestamp.format"
    return Option(key=key, parser=TimestampPattern(), default=DEFAULT_FORMAT, doc=doc)


class InitialPositionConfig(Section, section="Source"):
    """Where to begin in a stream that has not been read before.

    ``timestamp`` is the instant of AT_TIMESTAMP in UTC, and ``None`` for the other kinds.
    ``shards`` are the positions of single streams and shards, which take precedence.
    """

    verb: ClassVar[str] = "begins"
    position: Option[InitialPosition] = Option(
        key="stream.initpos",
        default=InitialPosition.LATEST,
        doc="Where to begin in a stream that has not been read before.",
    )
    timestamp_text: ClassVar[Option[str | None]] = _timestamp_text(
        "stream.initpos", "The instant of AT_TIMESTAMP"
    )
    timestamp_format: ClassVar[Option[str]] = _timestamp_format("stream.initpos")
    timestamp: Derived[datetime | None] = Derived(
        lambda lookup: _instant(lookup, InitialPositionConfig)
    )
    shards: Option[ScopedPositions] = Option(
        key="stream.initpos.shards",
        parser=_PositionsParser(),
        default=(),
        namespace=Namespace.OURS,
        doc="JSON with positions of single shards, or of streams by name or ARN, that were not "
        "read before. The others begin at stream.initpos. A shard that is not listed is an "
        "error (failondataloss).",
    )

    @property
    def start(self) -> StartingPosition:
        """The position of a stream; LATEST is not pinned yet."""
        return _position_of(self.position, self.timestamp)

    @property
    def positions(self) -> Positions:
        """The positions of all streams and shards."""
        return Positions(self.start, dict(self.shards))


class EndingPositionConfig(Section, section="Batch", namespace=Namespace.OURS):
    """Where a batch read ends: before which position the last record stands.

    The fields are those of :class:`InitialPositionConfig`.
    """

    verb: ClassVar[str] = "ends"
    position: Option[EndingPosition] = Option(
        key="stream.endpos",
        default=EndingPosition.LATEST,
        doc="Where a batch read (spark.read) ends. LATEST is the instant at which the DataFrame "
        "is loaded. All other readers refuse these options.",
    )
    timestamp_text: ClassVar[Option[str | None]] = _timestamp_text(
        "stream.endpos", "The instant of AT_TIMESTAMP, exclusive"
    )
    timestamp_format: ClassVar[Option[str]] = _timestamp_format("stream.endpos")
    timestamp: Derived[datetime | None] = Derived(
        lambda lookup: _instant(lookup, EndingPositionConfig)
    )
    shards: Option[ScopedPositions] = Option(
        key="stream.endpos.shards",
        parser=_PositionsParser(),
        default=(),
        doc="JSON with positions of single shards, or of streams by name or ARN: the records "
        "before them are read. The others end at stream.endpos.",
    )

    @property
    def positions(self) -> Positions:
        """The positions of all streams and shards."""
        return Positions(_position_of(self.position, self.timestamp), dict(self.shards))


def _position_of(
    kind: InitialPosition | EndingPosition, timestamp: datetime | None
) -> StartingPosition:
    if timestamp is not None:
        return StartingPosition.at_timestamp(timestamp)
    return StartingPosition(PositionType(kind.value))


PositionSection: TypeAlias = type[InitialPositionConfig] | type[EndingPositionConfig]
POSITION_SECTIONS: Final = (InitialPositionConfig, EndingPositionConfig)


def position_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield what is wrong with the positions."""
    for section in POSITION_SECTIONS:
        yield from _instant_problems(lookup, section)
    option = EndingPositionConfig.shards
    for scope, end in lookup.get(option):
        if end is not None and end.type is PositionType.TRIM_HORIZON:
            column = "shardId" if scope.shard_id else "streamName"
            yield InvalidOptionError(
                f"{lookup.written_key(option)}: {scope} ends at TRIM_HORIZON, where it begins: "
                f"nothing of it would be read. Leave it out with a filter on {column}, or name "
                "another position"
            )


def unused_instants(lookup: Lookup) -> Iterator[tuple[Option[Any], str]]:
    """Yield the options of instants that have no effect, each with the reason."""
    for section in POSITION_SECTIONS:
        if (kind := _kind(lookup, section)) is not PositionType.AT_TIMESTAMP:
            reason = f"{lookup.written_key(section.position)} is {kind.value}"
            yield section.timestamp_text, reason
            yield section.timestamp_format, reason


def _instant_problems(lookup: Lookup, section: PositionSection) -> Iterator[ConfigError]:
    """Yield the problems of an instant, also of one without effect."""
    is_given = lookup.is_given(section.timestamp_text)
    if _kind(lookup, section) is PositionType.AT_TIMESTAMP and not is_given:
        yield MissingOptionError(
            f"{lookup.written_key(section.position)} is AT_TIMESTAMP: set "
            f"{section.timestamp_text.full_key} to a date or epoch seconds"
        )
    # With a position that was chosen, a timestamp may be a leftover: Flink ignores it too.
    # Without one, the default would skip what lies between the timestamp and now, or read it.
    if is_given and not lookup.is_given(section.position):
        yield InvalidOptionError(
            f"{lookup.written_key(section.timestamp_text)} is given, but nothing says that reading "
            f"{section.verb} there: set {section.position.full_key} to AT_TIMESTAMP"
        )
    if not lookup.is_refused(section.timestamp_format):
        try:
            _parse(lookup, section)
        except ConfigError as error:
            yield error


def _kind(lookup: Lookup, section: PositionSection) -> PositionType:
    option: Option[Any] = section.position
    return PositionType(lookup.get(option).value)


def _parse(lookup: Lookup, section: PositionSection) -> datetime | None:
    text = lookup.get(section.timestamp_text)
    if text is None:
        return None
    try:
        return parse_timestamp(text, pattern=lookup.get(section.timestamp_format))
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{lookup.written_key(section.timestamp_text)}: {error}") from None


def _instant(lookup: Lookup, section: PositionSection) -> datetime | None:
    is_instant = _kind(lookup, section) is PositionType.AT_TIMESTAMP
    return _parse(lookup, section) if is_instant else None


PositionParts: TypeAlias = "list[tuple[Option[Any], Scalar]]"
# Glue writes a date without a word before it.
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*"


def at_timestamp(section: PositionSection, instant: Scalar) -> PositionParts:
    """Return the options for a position at ``instant``."""
    return [
        (section.position, InitialPosition.AT_TIMESTAMP.value),
        (section.timestamp_text, instant),
    ]


def parts_of_position(section: PositionSection, value: Scalar) -> PositionParts:
    """Return the options that one text for a position stands for.

    It is a name, a date, AT_TIMESTAMP with a date, or JSON.
    """
    text = str(value).strip()
    if text.startswith("{"):
        return _from_json(section, text)
    name, _, instant = text.partition(" ")
    # No end is the earliest one: that is refused, in the word that the user wrote.
    if name.upper() == "EARLIEST" and section is InitialPositionConfig:
        return [(section.position, InitialPosition.TRIM_HORIZON.value)]
    if name.upper() == "AT_TIMESTAMP" and instant.strip():
        return [(section.position, name), (section.timestamp_text, instant.strip())]
    if re.fullmatch(_DATE, text):
        return at_timestamp(section, text)
    return [(section.position, value)]


def _from_json(section: PositionSection, text: str) -> PositionParts:
    import orjson

    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = None
    # With any other key the whole text is refused: nothing is ignored.
    if not isinstance(document, dict) or document.keys() - {"format"} != {"at_timestamp"}:
        return [(section.shards, text)]
    parts = at_timestamp(section, document["at_timestamp"])
    if "format" in document:
        parts.append((section.timestamp_format, document["format"]))
    return parts
