"""Where reading begins and ends: positions of a stream and of single shards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import orjson

from kinesis_publishers.config.option import Declared, Lookup, Option, Section
from kinesis_publishers.config.parsers import Choice, Parsed, Scalar, Text
from kinesis_publishers.config.timestamps import DEFAULT_FORMAT, check_pattern, parse_time
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

_OR_TIME: Final = ", or a time such as -1h or 2026-11-26T10:00:00Z"
_SHARD_PREFIX: Final = "shardId-"
_SHARD_ID: Final = rf"{_SHARD_PREFIX}[a-zA-Z0-9_.-]{{1,120}}"
_SEQUENCE_NUMBER: Final = r"0|[1-9][0-9]{0,128}"


_AT_TIMESTAMP: Final = PositionType.AT_TIMESTAMP
_ENDS: Final = (PositionType.LATEST, _AT_TIMESTAMP)
_STARTS: Final = (PositionType.LATEST, PositionType.TRIM_HORIZON, _AT_TIMESTAMP)


def _parse_positions(value: Scalar) -> ScopedPositions:
    """Parse JSON as other Spark connectors write it; one position below a stream may be for all."""
    document = orjson.loads(str(value))
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return tuple(sorted(_positions_in(document), key=lambda one: one[0]))


_POSITIONS: Final = Parsed(
    'JSON such as {"shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER", '
    '"iteratorPosition": "495..."}}, with milliseconds since 1970 for AT_TIMESTAMP; of several '
    'streams {"orders": {"shardId-...": {...}}, "clicks": "TRIM_HORIZON"}',
    _parse_positions,
)


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
    if kind is not _AT_TIMESTAMP:
        return StartingPosition(kind, SequenceNumber(marker))
    return StartingPosition.at_timestamp(datetime.fromtimestamp(int(marker) / 1000, UTC))


class Instant(Declared["datetime | timedelta | None"]):
    """The two options of the instant that ``position`` may be; the field is in UTC.

    It is ``None`` unless the position is AT_TIMESTAMP, and a ``timedelta`` if it is that long
    before reading begins.
    """

    def __init__(self, position: Option[Any], meaning: str, *, verb: str) -> None:
        key = f"{position.key}.timestamp"
        self.position, self._verb = position, verb
        self.text: Option[str | None] = Option(
            key=key,
            parser=Text(accepts=f"a date as {key}.format describes, or epoch seconds"),
            doc=f"{meaning}: a date in the format below, epoch seconds, ISO-8601, or how long "
            "before reading begins, such as -1h.",
        )
        self.format: Option[str] = Option(
            key=f"{key}.format",
            parser=Parsed(f"a SimpleDateFormat pattern such as {DEFAULT_FORMAT}", check_pattern),
            default=DEFAULT_FORMAT,
            doc="The SimpleDateFormat pattern of the timestamp; without a zone it is UTC.",
        )

    @property
    def options(self) -> tuple[Option[Any], ...]:
        return (self.text, self.format)

    def read(self, lookup: Lookup) -> datetime | timedelta | None:
        is_used = lookup.get(self.position) is _AT_TIMESTAMP
        return self._parse(lookup) if is_used else None

    def _parse(self, lookup: Lookup) -> datetime | timedelta | None:
        text = lookup.get(self.text)
        if text is None:
            return None
        try:
            return parse_time(text, pattern=lookup.get(self.format))
        except InvalidOptionError as error:
            raise InvalidOptionError(f"{lookup.written_key(self.text)}: {error}") from None

    def problems(self, lookup: Lookup) -> Iterator[ConfigError]:
        """Yield the problems of an instant, also of one without effect."""
        position, is_given = self.position, lookup.is_given(self.text)
        if lookup.get(position) is _AT_TIMESTAMP and not is_given:
            yield MissingOptionError(
                f"{lookup.written_key(position)} is AT_TIMESTAMP: set {self.text.full_key} to a "
                "date or epoch seconds"
            )
        # With a position that was chosen, a timestamp may be a leftover: Flink ignores it too.
        # Without one, the default would skip what lies between the timestamp and now, or read it.
        if is_given and not lookup.is_given(position):
            yield InvalidOptionError(
                f"{lookup.written_key(self.text)} is given, but nothing says that reading "
                f"{self._verb} there: set {position.full_key} to AT_TIMESTAMP"
            )
        if not lookup.is_refused(self.format):
            try:
                self._parse(lookup)
            except ConfigError as error:
                yield error


class InitialPositionConfig(Section, section="Source"):
    """Where to begin in a stream that has not been read before."""

    position: Option[PositionType] = Option(
        key="stream.initpos",
        parser=Choice(members=_STARTS, also=_OR_TIME),
        default=PositionType.LATEST,
        doc="Where to begin in a stream that has not been read before; also a time such as -1h or "
        "2026-11-26T10:00:00Z. With an end, the default is TRIM_HORIZON.",
    )
    timestamp: Instant = Instant(position, "The instant of AT_TIMESTAMP", verb="begins")
    shards: Option[ScopedPositions] = Option(
        key="stream.initpos.shards",
        parser=_POSITIONS,
        default=(),
        doc="JSON with positions of single shards, or of streams by name or ARN, that were not "
        "read before. The others begin at stream.initpos. A shard that is not listed is an "
        "error (failondataloss).",
    )

    @property
    def positions(self) -> Positions:
        """The positions of streams and shards; LATEST is not pinned yet."""
        return Positions(_position_of(self.position, self.timestamp), dict(self.shards))


class EndingPositionConfig(Section, section="Source"):
    """Where reading ends: before which position the last record stands."""

    position: Option[PositionType] = Option(
        key="stream.endpos",
        parser=Choice(members=_ENDS, also=_OR_TIME),
        default=PositionType.LATEST,
        doc="Where reading ends, if it does: spark.read always, a reader in Python if this is "
        "given. LATEST is the instant at which it begins; also a time such as -1h or "
        "2026-11-26T10:00:00Z. spark.readStream refuses an end.",
    )
    timestamp: Instant = Instant(position, "The instant of AT_TIMESTAMP, exclusive", verb="ends")
    shards: Option[ScopedPositions] = Option(
        key="stream.endpos.shards",
        parser=_POSITIONS,
        default=(),
        doc="JSON with positions of single shards, or of streams by name or ARN: the records "
        "before them are read. The others end at stream.endpos.",
    )

    @property
    def positions(self) -> Positions:
        return Positions(_position_of(self.position, self.timestamp), dict(self.shards))


def _position_of(kind: PositionType, timestamp: datetime | timedelta | None) -> StartingPosition:
    if isinstance(timestamp, timedelta):
        return StartingPosition.latest(timestamp)
    if timestamp is not None:
        return StartingPosition.at_timestamp(timestamp)
    return StartingPosition(kind)


PositionSection: TypeAlias = type[InitialPositionConfig] | type[EndingPositionConfig]
POSITION_SECTIONS: Final = (InitialPositionConfig, EndingPositionConfig)


def position_problems(lookup: Lookup) -> Iterator[ConfigError]:
    for section in POSITION_SECTIONS:
        yield from section.timestamp.problems(lookup)
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
        position = section.timestamp.position
        if (kind := lookup.get(position)) is not _AT_TIMESTAMP:
            reason = f"{lookup.written_key(position)} is {kind.value}"
            yield from ((option, reason) for option in section.timestamp.options)


SECTIONS_BY_POSITION: Final[Mapping[str, PositionSection]] = {
    section.position.key: section for section in POSITION_SECTIONS
}
"""The sections, by the key of the option that takes every notation of a position."""
PositionParts: TypeAlias = "list[tuple[Option[Any], Scalar]]"
# Glue writes a date without a word before it.
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*|-\s*[0-9.].*|[0-9]+(\.[0-9]*)?"


def at_timestamp(section: PositionSection, instant: Scalar) -> PositionParts:
    return [(section.position, _AT_TIMESTAMP.value), (section.timestamp.text, instant)]


def parts_of_position(section: PositionSection, value: Scalar) -> PositionParts:
    """Return the options for a name, a time, AT_TIMESTAMP with a time, or JSON."""
    text = str(value).strip()
    if text.startswith("{"):
        return _from_json(section, text)
    name, _, instant = text.partition(" ")
    # No end is the earliest one: that is refused, in the word that the user wrote.
    if name.upper() == "EARLIEST" and section is InitialPositionConfig:
        return [(section.position, PositionType.TRIM_HORIZON.value)]
    if name.upper() == "AT_TIMESTAMP" and instant.strip():
        return [(section.position, name), (section.timestamp.text, instant.strip())]
    if re.fullmatch(_TIME, text):
        return at_timestamp(section, text)
    return [(section.position, value)]


def _from_json(section: PositionSection, text: str) -> PositionParts:
    document: dict[str, Any] = {}
    with suppress(orjson.JSONDecodeError):
        document = orjson.loads(text)
    # With any other key the whole text is refused: nothing is ignored.
    if document.keys() - {"format"} != {"at_timestamp"}:
        return [(section.shards, text)]
    parts = at_timestamp(section, document.pop("at_timestamp"))
    return parts + [(section.timestamp.format, pattern) for pattern in document.values()]
