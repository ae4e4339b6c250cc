"""Where reading begins and where a batch read ends: positions of a stream and of single shards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from kinesis_publishers.config.option import Derived, Lookup, Namespace, Option, Section
from kinesis_publishers.config.parsers import Choice, Scalar, Text
from kinesis_publishers.config.timestamps import DEFAULT_FORMAT, TimestampPattern, parse_timestamp
from kinesis_publishers.errors import ConfigError, InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from kinesis_publishers.model import ShardProgress, StartingPosition

ShardPositions: TypeAlias = "tuple[tuple[str, ShardProgress], ...]"

_AT_TIMESTAMP: Final = "AT_TIMESTAMP"
_TRIM_HORIZON: Final = "TRIM_HORIZON"
_SHARD_END: Final = "SHARD_END"
_SHARD_ID: Final = r"[a-zA-Z0-9_.-]{1,128}"
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


class _ShardPositionsParser:
    """Parses ``{"shardId-...": {"iteratorType": ..., "iteratorPosition": ...}}``.

    It is the JSON text that other Spark connectors for Kinesis write.
    """

    accepts = (
        'JSON such as {"shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER", '
        '"iteratorPosition": "495..."}}, with milliseconds since 1970 for AT_TIMESTAMP'
    )

    def __call__(self, value: Scalar) -> ShardPositions:
        import orjson

        document = orjson.loads(str(value))
        if not isinstance(document, dict):
            raise ValueError("not an object")
        # An offset that was copied from another connector has "metadata" next to the shards.
        return tuple(
            (shard_id, _parse_position(shard_id, position))
            for shard_id, position in sorted(document.items())
            if shard_id != "metadata"
        )


def _parse_position(shard_id: str, position: object) -> ShardProgress:
    if not isinstance(position, dict) or not re.fullmatch(_SHARD_ID, shard_id):
        raise ValueError("not a position")
    # Imported here, for most configurations name no shard and need no model.
    from kinesis_publishers.model import (
        PositionType,
        SequenceNumber,
        ShardProgress,
        StartingPosition,
    )

    name = str(position.get("iteratorType")).upper()
    if name == _SHARD_END:
        return ShardProgress(position=StartingPosition.trim_horizon(), is_ended=True)
    kind = PositionType(name)
    if kind in {PositionType.TRIM_HORIZON, PositionType.LATEST}:
        return ShardProgress(position=StartingPosition(kind))
    marker = str(position.get("iteratorPosition", ""))
    if not re.fullmatch(_SEQUENCE_NUMBER, marker):
        raise ValueError("not a sequence number")
    if kind is not PositionType.AT_TIMESTAMP:
        return ShardProgress(position=StartingPosition(kind, SequenceNumber(marker)))
    if int(marker) > _LAST_MILLISECOND:
        raise ValueError("beyond all calendars")
    instant = datetime.fromtimestamp(int(marker) / 1000, UTC)
    return ShardProgress(position=StartingPosition.at_timestamp(instant))


class InitialPositionConfig(Section, section="Source"):
    """Where to begin in a stream that was not read before.

    ``timestamp`` is the instant of AT_TIMESTAMP in UTC, and ``None`` for the other kinds.
    ``shards`` are the positions of single shards, by shard id, which take precedence.
    """

    verb: ClassVar[str] = "begins"
    position: Option[InitialPosition] = Option(
        key="stream.initpos",
        parser=Choice(members=InitialPosition),
        default=InitialPosition.LATEST,
        doc="Where to begin in a stream that was not read before.",
    )
    timestamp_text: ClassVar[Option[str | None]] = Option(
        key="stream.initpos.timestamp",
        parser=Text(
            accepts="a date as stream.initpos.timestamp.format describes, or epoch seconds"
        ),
        doc="The instant of AT_TIMESTAMP: a date in the format below, epoch seconds, or ISO-8601.",
    )
    timestamp_format: ClassVar[Option[str]] = Option(
        key="stream.initpos.timestamp.format",
        parser=TimestampPattern(),
        default=DEFAULT_FORMAT,
        doc="The SimpleDateFormat pattern of the timestamp; without a zone it is UTC.",
    )
    timestamp: Derived[datetime | None] = Derived(
        lambda lookup: _instant(lookup, InitialPositionConfig)
    )
    shards: Option[ShardPositions] = Option(
        key="stream.initpos.shards",
        parser=_ShardPositionsParser(),
        default=(),
        namespace=Namespace.OURS,
        doc="JSON with a position per shard, for a stream that was not read before; the others "
        "begin at stream.initpos. A shard that is not listed is an error (failondataloss).",
    )

    @property
    def start(self) -> StartingPosition:
        """The position of a stream; LATEST is not pinned yet."""
        from kinesis_publishers.model import PositionType, StartingPosition

        if self.timestamp is not None:
            return StartingPosition.at_timestamp(self.timestamp)
        return StartingPosition(PositionType(self.position.value))


class EndingPositionConfig(Section, section="Batch", namespace=Namespace.OURS):
    """Where a batch read ends: before which position the last record stands.

    The fields are those of :class:`InitialPositionConfig`.
    """

    verb: ClassVar[str] = "ends"
    position: Option[EndingPosition] = Option(
        key="stream.endpos",
        parser=Choice(members=EndingPosition),
        default=EndingPosition.LATEST,
        doc="Where a batch read ends. LATEST is the instant at which the DataFrame is loaded. "
        "Only spark.read has an end: all other readers refuse these options.",
    )
    timestamp_text: ClassVar[Option[str | None]] = Option(
        key="stream.endpos.timestamp",
        parser=Text(accepts="a date as stream.endpos.timestamp.format describes, or epoch seconds"),
        doc="The instant of AT_TIMESTAMP, itself not included: a date in the format below, epoch "
        "seconds, or ISO-8601.",
    )
    timestamp_format: ClassVar[Option[str]] = Option(
        key="stream.endpos.timestamp.format",
        parser=TimestampPattern(),
        default=DEFAULT_FORMAT,
        doc="The SimpleDateFormat pattern of the timestamp; without a zone it is UTC.",
    )
    timestamp: Derived[datetime | None] = Derived(
        lambda lookup: _instant(lookup, EndingPositionConfig)
    )
    shards: Option[ShardPositions] = Option(
        key="stream.endpos.shards",
        parser=_ShardPositionsParser(),
        default=(),
        doc="JSON with a position per shard: the records before it are read. The other shards end "
        "at stream.endpos.",
    )


Positions: TypeAlias = type[InitialPositionConfig] | type[EndingPositionConfig]
_POSITIONS: Final[tuple[Positions, ...]] = (InitialPositionConfig, EndingPositionConfig)


def position_problems(lookup: Lookup) -> Iterator[ConfigError]:
    """Yield what is wrong with the positions."""
    for section in _POSITIONS:
        yield from _instant_problems(lookup, section)
    option = EndingPositionConfig.shards
    for shard_id, end in lookup.get(option):
        if end.position.type.value == _TRIM_HORIZON and not end.is_ended:
            yield InvalidOptionError(
                f"{lookup.written_key(option)}: {shard_id} ends at TRIM_HORIZON, where it begins: "
                "nothing of it would be read. Leave the shard out with a filter on shardId, or "
                "name another position"
            )


def unused_instants(lookup: Lookup) -> Iterator[tuple[Option[str] | Option[str | None], str]]:
    """Yield the options of instants that have no effect, each with the reason."""
    for section in _POSITIONS:
        if not _is_instant(lookup, section):
            position = _kind(lookup, section)
            reason = f"{lookup.written_key(section.position)} is {position}"
            yield section.timestamp_text, reason
            yield section.timestamp_format, reason


def _instant(lookup: Lookup, section: Positions) -> datetime | None:
    return _parse(lookup, section) if _is_instant(lookup, section) else None


def _instant_problems(lookup: Lookup, section: Positions) -> Iterator[ConfigError]:
    """Yield what is wrong with an instant, and with one that has no effect."""
    is_given = lookup.is_given(section.timestamp_text)
    if _is_instant(lookup, section) and not is_given:
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


def _is_instant(lookup: Lookup, section: Positions) -> bool:
    return _kind(lookup, section) == _AT_TIMESTAMP


def _kind(lookup: Lookup, section: Positions) -> str:
    option: Option[Any] = section.position
    return str(lookup.get(option).value)


def _parse(lookup: Lookup, section: Positions) -> datetime | None:
    text = lookup.get(section.timestamp_text)
    if text is None:
        return None
    try:
        return parse_timestamp(text, pattern=lookup.get(section.timestamp_format))
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{lookup.written_key(section.timestamp_text)}: {error}") from None


PositionParts: TypeAlias = "list[tuple[Option[Any], Scalar]]"
# Glue writes a date without a word before it.
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*"


def at_timestamp(section: Positions, instant: Scalar) -> PositionParts:
    """Return the options for a position at ``instant``."""
    return [
        (section.position, InitialPosition.AT_TIMESTAMP.value),
        (section.timestamp_text, instant),
    ]


def parts_of_position(section: Positions, value: Scalar) -> PositionParts:
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


def _from_json(section: Positions, text: str) -> PositionParts:
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
