"""Where to begin, in the words of other connectors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from kinesis_publishers.config.choices import InitialPosition
from kinesis_publishers.config.options import publisher

if TYPE_CHECKING:
    from kinesis_publishers.config.option import Option
    from kinesis_publishers.config.parsers import Scalar

__all__ = ["starting_position"]

# Glue writes a date without a word before it.
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*")


def starting_position(value: Scalar) -> list[tuple[Option[Any], Scalar]]:
    """Return what ``startingPosition`` says: a name, a date, AT_TIMESTAMP with one, or JSON."""
    position, timestamp = publisher.INITIAL_POSITION, publisher.INITIAL_TIMESTAMP
    text = str(value).strip()
    if text.startswith("{"):
        return _from_json(text)
    name, _, instant = text.partition(" ")
    if name.upper() == "EARLIEST":
        return [(position, InitialPosition.TRIM_HORIZON.value)]
    if name.upper() == "AT_TIMESTAMP" and instant.strip():
        return [(position, name), (timestamp, instant.strip())]
    if _DATE.fullmatch(text):
        return [(position, InitialPosition.AT_TIMESTAMP.value), (timestamp, text)]
    return [(position, value)]


def _from_json(text: str) -> list[tuple[Option[Any], Scalar]]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = None
    # With anything else beside it, what is refused is the whole text: nothing is ignored.
    if not isinstance(document, dict) or document.keys() - {"format"} != {"at_timestamp"}:
        return [(publisher.INITIAL_SHARD_POSITIONS, text)]
    parts: list[tuple[Option[Any], Scalar]] = [
        (publisher.INITIAL_POSITION, InitialPosition.AT_TIMESTAMP.value),
        (publisher.INITIAL_TIMESTAMP, document["at_timestamp"]),
    ]
    if "format" in document:
        parts.append((publisher.INITIAL_TIMESTAMP_FORMAT, document["format"]))
    return parts
