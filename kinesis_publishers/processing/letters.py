"""What a record becomes that is put aside, and where it may be put."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from kinesis_publishers.assembly import with_region
from kinesis_publishers.checkpoints.links import problem_of_link
from kinesis_publishers.config import AwsConfig, Properties, StreamsConfig
from kinesis_publishers.config.sections.source import StreamSelector
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.model import Record

#: With base64 and the other fields a part fits into a stream that takes 1 MiB, the least of all.
PART_BYTES: Final = 720 * 1024
# The error of a decoder may quote all of the payload.
_LONGEST_ERROR: Final = 1000
_LETTER: Final = re.compile(rb'\{"letter":([1-9][0-9]{0,3}),')


def text_of(error: Exception) -> str:
    """Return an error in words, in UTF-8 and of bounded length."""
    try:
        text = repr(error)
    except Exception:  # noqa: BLE001 - the program's own error must not keep its record from being put aside
        text = type(error).__name__
    return text[:_LONGEST_ERROR].encode(errors="backslashreplace").decode()


def times_put_aside(data: bytes) -> int:
    """Return how often a payload has been put aside: it may be a letter, or a letter of one."""
    found = _LETTER.match(data)
    return int(found[1]) if found else 0


def letters_of(record: Record, error: Exception, part_bytes: int | None = None) -> Iterator[bytes]:
    """Yield JSON objects, each on a line, for the parts of a record: one without ``part_bytes``."""
    import pybase64  # Most programs put nothing aside.

    data, count = record.data, times_put_aside(record.data) + 1
    step = part_bytes or len(data)
    parts = [data[at : at + step] for at in range(0, len(data), step or 1)] or [b""]
    fields = record._asdict()
    del fields["arrival_epoch_seconds"]
    for number, part in enumerate(parts, 1):
        yield orjson.dumps(
            {
                "letter": count,
                **fields,
                "data": pybase64.b64encode_as_string(part),
                "part": number,
                "parts": len(parts),
                "approximate_arrival_timestamp": record.approximate_arrival_timestamp,
                "error": text_of(error),
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


def check_file(path: Path) -> None:
    """Check that letters can be written to a file.

    Raises:
        InvalidOptionError: they cannot.
    """
    folder = path.parent
    if not (problem := problem_of_link(path)):
        if not folder.is_dir():
            problem = f"the folder {folder} is not there: make it"
        elif path.exists() and not path.is_file():
            problem = f"{path} is not a file"
        elif not os.access(path if path.exists() else folder, os.R_OK | os.W_OK):
            problem = f"{path} cannot be written: change the rights of the file or of its folder"
    if problem:
        raise InvalidOptionError(f"DeadLetter.to_file: {problem}, or give another path")


def check_stream(letters: Properties, source: Properties) -> None:
    """Check that letters do not go to a stream that is read.

    Raises:
        InvalidOptionError: they do, as far as the properties show.
    """
    if not {one.name for one in _streams(letters)} & {one.name for one in _streams(source)}:
        return
    letters, source = with_region(letters), with_region(source)
    for one in _streams(letters):
        for other in _streams(source):
            if _are_the_same(one, letters, other, source):
                raise InvalidOptionError(
                    f"DeadLetter.to_stream: {one.name} is the stream that is read, and its letters "
                    "would be read, fail and be put there again: give them a stream of their own. "
                    "If it is of another account, give both streams by their ARNs"
                )


def _streams(properties: Properties) -> tuple[StreamSelector, ...]:
    return StreamsConfig.from_properties(properties).streams


def _are_the_same(
    one: StreamSelector, properties: Properties, other: StreamSelector, others: Properties
) -> bool:
    if one.arn and other.arn:
        return one.arn == other.arn
    aws, other_aws = AwsConfig.from_properties(properties), AwsConfig.from_properties(others)
    return (
        one.name == other.name
        and (one.region or aws.region) == (other.region or other_aws.region)
        and aws.endpoint_url == other_aws.endpoint_url
        # Those of another account differ.
        and aws.credentials == other_aws.credentials
    )
