"""Defines the dead letters of a record, and where they may go."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from itertools import product
from typing import Final

import orjson

from kinesis_publishers.assembly import with_region
from kinesis_publishers.config import AwsConfig, Properties, StreamsConfig
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.model import Record

_LOGGER = logging.getLogger(__name__)

#: With base64 and the other fields a part fits into a stream that takes 1 MiB, the least of all.
PART_BYTES: Final = 720 * 1024
#: The same for a message of SQS or SNS, of 256 KiB.
MESSAGE_BYTES: Final = 180 * 1024
_LETTER: Final = b'{"letter":'
_TYPES: Final = {"letter": int, "id": str, "data": str, "part": int, "parts": int, "error": str}
_ID: Final = re.compile(r"[\w.-]+/[\w.-]+/[0-9]+/[0-9]*", re.ASCII)
# A reader of letters may put them aside, too, and so may the reader of those.
_MOST_TIMES: Final = 3


def letters_of(record: Record, error: Exception, part_bytes: int | None = None) -> Iterator[bytes]:
    """Yield JSON objects, each on a line, for the parts of a record; one without ``part_bytes``.

    With it, a letter that claims to have been put aside three times yields none: its stream seems
    to be read by the program that puts letters there. It stays in its stream, and an error in the
    log names its place. To raise here would let producers, who can forge such letters, stop
    readers.
    """
    import pybase64  # Most programs write no dead letters.

    data = record.data
    fields: dict[str, object] = {"id": record.id, **dict(zip(Record._fields, record, strict=False))}
    del fields["arrival_epoch_seconds"]
    count = _times_put_aside(data) + 1
    if part_bytes and count > _MOST_TIMES:
        _LOGGER.error(
            "The record %s, by what it says, has been put aside %d times, and is left where it is: "
            "the stream of the dead letters is read by what puts them there, or a producer has "
            "written it so. Read it from there before its retention ends",
            *(record.id, _MOST_TIMES),
        )
        return
    starts = range(0, len(data) or 1, part_bytes or len(data) or 1)
    for part, start in enumerate(starts, 1):
        fields |= {
            "data": pybase64.b64encode_as_string(data[start : start + starts.step]),
            "part": part,
            "parts": len(starts),
            "approximate_arrival_timestamp": record.approximate_arrival_timestamp,
            "error": _text_of(error),
        }
        yield orjson.dumps({"letter": count, **fields}, option=orjson.OPT_APPEND_NEWLINE)


def _times_put_aside(data: bytes) -> int:
    """Return the count in a letter of :func:`letters_of`, and 0 for anything else."""
    try:
        letter = orjson.loads(data) if data.startswith(_LETTER) else {}
    except ValueError:
        return 0
    # Not isinstance: True is an int.
    if any(type(letter.get(name)) is not kind for name, kind in _TYPES.items()):
        return 0
    is_ours = _ID.fullmatch(letter["id"]) and 1 <= letter["part"] <= letter["parts"]
    # Our letters have no higher count.
    return letter["letter"] if is_ours and 1 <= letter["letter"] <= _MOST_TIMES else 0


def _text_of(error: Exception) -> str:
    # It may quote all of the payload, or a value that is too deep for that.
    try:
        text = f"{error!r:.1000}"
    except Exception:  # noqa: BLE001 - the record is put aside nevertheless
        text = type(error).__name__
    return text.encode(errors="backslashreplace").decode()


def open_private(path: str, flags: int) -> int:
    """Open a file without following a link; only this user can read a new one."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def check_stream(letters: Properties, source: Properties) -> None:
    """Raise an InvalidOptionError if letters go to a stream that is read, by its properties."""
    both = [StreamsConfig.from_properties(one).streams for one in (letters, source)]
    for mine, other in product(*both):
        if mine.name != other.name:
            continue
        is_same = mine.arn == other.arn
        if not (mine.arn and other.arn):
            ours = AwsConfig.from_properties(with_region(letters))
            theirs = AwsConfig.from_properties(with_region(source))
            is_same = (
                (mine.region or ours.region) == (other.region or theirs.region)
                and ours.endpoint_url == theirs.endpoint_url
                # The credentials of another account differ.
                and ours.credentials == theirs.credentials
            )
        if is_same:
            raise InvalidOptionError(
                f"DeadLetter.to_stream: {mine.name} is the stream that is read, and its letters "
                "would be read, fail and be put there again: give them a stream of their own. If "
                "it is of another account, give both streams by their ARNs"
            )
