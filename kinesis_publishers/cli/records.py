"""A record as one line of output: the only place that says which fields are shown, and how."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson
import pybase64

from kinesis_publishers.cli.formats import iso_utc, printable

if TYPE_CHECKING:
    from kinesis_publishers.model import Record

__all__ = ["DataEncoding", "json_line", "plain_line", "record_fields"]


class DataEncoding(Enum):
    """How the payload stands in JSON."""

    BASE64 = "base64"
    TEXT = "text"
    JSON = "json"


def record_fields(record: Record, encoding: DataEncoding) -> dict[str, Any]:
    """Return the fields of ``record`` as they stand in JSON.

    Args:
        record: what was read.
        encoding: how the payload is to be shown. One that is not JSON is shown as text, and one
            that is not UTF-8 as base64; ``data_encoding`` says which it is.
    """
    used, data = _encode(record.data, encoding)
    return {
        "stream_name": record.stream_name,
        "shard_id": record.shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "approximate_arrival_timestamp": iso_utc(record.approximate_arrival_timestamp),
        "encryption_type": record.encryption_type,
        "data_encoding": used.value,
        "data": data,
    }


def json_line(record: Record, encoding: DataEncoding) -> bytes:
    """Return ``record`` as a JSON object on a line of its own."""
    return orjson.dumps(record_fields(record, encoding), option=orjson.OPT_APPEND_NEWLINE)


def plain_line(record: Record, *, longest: int | None = None) -> str:
    """Return ``record`` as a line for people: arrival, place, partition key and payload.

    Bytes that are not UTF-8 and characters that a terminal would obey are escaped.

    Args:
        record: what was read.
        longest: how many bytes of a payload are shown at most; ``None`` shows all of them.
    """
    place = f"{record.stream_name}/{record.shard_id}"
    arrival = iso_utc(record.approximate_arrival_timestamp)
    text = record.data[:longest].decode("utf-8", "surrogateescape")
    return "  ".join((arrival, place, printable(record.partition_key), printable(text)))


def _encode(data: bytes, encoding: DataEncoding) -> tuple[DataEncoding, Any]:
    if encoding is DataEncoding.JSON and _is_json(data):
        # To the letter: parsing would round its numbers. Line breaks stand between tokens only.
        line = data.replace(b"\n", b" ").replace(b"\r", b" ")
        return DataEncoding.JSON, orjson.Fragment(line)
    if encoding is not DataEncoding.BASE64:
        try:
            return DataEncoding.TEXT, data.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return DataEncoding.BASE64, pybase64.b64encode(data).decode("ascii")


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True
