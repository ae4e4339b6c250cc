"""Numbers, times and texts as a person reads them. Pure functions."""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from kinesis_publishers.cli.shared.console import printable
from kinesis_publishers.model import Record, StartingPosition
from kinesis_publishers.model.shards import MAX_HASH_KEY

DATA_ENCODINGS: Final = ("base64", "text", "json")
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SPACES: Final = bytes.maketrans(b"\n\r\t", b"   ")
_SPANS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def format_rate(per_second: float) -> str:
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, as ``1 record`` or ``2,000 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_bytes(count: float) -> str:
    size, unit = float(count), 0
    # As it is shown: 1023.96 KiB is 1.0 MiB.
    while round(size, 1) >= 1024 and unit < len(_SIZES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_SIZES[unit]}"


def format_behind(seconds: float | None) -> str:
    """Return how far a reader is behind the tip, in at most two units; ``-`` if unknown."""
    if seconds is None:
        return "-"
    millis = round(seconds * 1000)
    if millis < 1000:
        return f"{millis} ms"
    if millis < 60_000:
        return f"{millis // 100 / 10:.1f} s"
    rest = millis // 1000
    counts: list[tuple[int, str]] = []
    for name, span in _SPANS:
        count, rest = divmod(rest, span)
        if count or counts:
            counts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in counts[:2] if count)


def hash_key_share(starting_hash_key: str, ending_hash_key: str) -> float:
    """Return the share of all hash keys from one to another, both included, from 0 to 1."""
    return (int(ending_hash_key) - int(starting_hash_key) + 1) / (MAX_HASH_KEY + 1)


def format_share(share: float) -> str:
    return f"{share * 100:.2f}".rstrip("0").rstrip(".") + " %"


def iso_utc(instant: datetime) -> str:
    """Return an aware time in UTC, to the microsecond, as ``2026-11-22T01:02:03.004000Z``."""
    text = instant.astimezone(UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def describe_position(position: StartingPosition) -> str:
    """Return the record or the instant from which reading continues."""
    if position.timestamp is not None:
        return iso_utc(position.timestamp)
    return str(position.sequence_number or position)


def json_line(record: Record, encoding: str) -> bytes:
    """Return ``record`` as a JSON object on a line, with the ``data_encoding`` of its payload.

    ``encoding`` is one of :data:`DATA_ENCODINGS`. A payload that is not JSON is shown
    as text, and one that is not UTF-8 as base64.
    """
    used, data = _encode(record.data, encoding)
    fields = {
        "stream_name": record.stream_name,
        "shard_id": record.shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "approximate_arrival_timestamp": iso_utc(record.approximate_arrival_timestamp),
        "encryption_type": record.encryption_type,
        "data_encoding": used,
        "data": data,
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def plain_line(record: Record, *, longest: int | None = None) -> str:
    """Return ``record`` as a line for people, with at most ``longest`` bytes of its payload."""
    place = f"{record.stream_name}/{record.shard_id}"
    arrival = iso_utc(record.approximate_arrival_timestamp)
    text = payload_text(record.data, longest=longest)
    key = printable(record.partition_key or "-")
    return "  ".join((arrival, printable(place), key, text))


def payload_text(data: bytes, *, longest: int | None = None) -> str:
    """Return a payload, or its beginning, as :func:`printable` does; JSON is put on a line."""
    shown = data[:longest]
    is_whole = len(shown) == len(data)
    # At the end of a part a character may be cut.
    text = getincrementaldecoder("utf-8")("surrogateescape").decode(shown, is_whole)
    if is_whole and not text.isprintable() and (line := _json_on_a_line(data)):
        text = line.decode()
    return printable(text)


def _json_on_a_line(data: bytes) -> bytes | None:
    """Return JSON verbatim, as parsing would round its numbers, but on one line."""
    with suppress(orjson.JSONDecodeError):
        orjson.loads(data)
        # They occur only between tokens.
        return data.translate(_SPACES)
    return None


def _encode(data: bytes, encoding: str) -> tuple[str, Any]:
    if encoding == "json" and (line := _json_on_a_line(data)):
        return "json", orjson.Fragment(line)
    if encoding != "base64":
        with suppress(UnicodeDecodeError):
            return "text", data.decode("utf-8")
    # Only records need it.
    import pybase64

    return "base64", pybase64.b64encode(data).decode("ascii")
