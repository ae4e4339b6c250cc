"""Reads the timestamp of AT_TIMESTAMP, with the patterns of Java's ``SimpleDateFormat``.

Supported letters: ``y M d D E H k K h a m s S z Z X`` and quoted text. A pattern without a zone is
UTC: the machine's own zone would give another position on another machine. Names of months and days
are English, and a field out of range is an error, where Java would roll it over.
"""

from __future__ import annotations

import re
import zoneinfo
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from types import MappingProxyType
from typing import Final

from attrs import frozen

from kinesis_publishers.config.parsers import DURATION_UNITS, Scalar, parse_quantity
from kinesis_publishers.errors import InvalidOptionError

DEFAULT_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"

_EXAMPLE: Final = datetime(2024, 5, 31, 13, 45, 30, 250_000, UTC)
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS: Final = ("mon", "tues", "wednes", "thurs", "fri", "satur", "sun")
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
# The names of RFC 822, which SimpleDateFormat knows too; all others come from the zone database.
_ZONE_HOURS: Final = MappingProxyType(
    {"Z": 0, "UT": 0, "UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5}
    | {"MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
)
_ISO_ZONE: Final = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?"
_ANY_ZONE: Final = rf"{_ISO_ZONE}|(?:GMT|UTC)[+-][0-9]{{2}}:?[0-9]{{2}}|[A-Za-z][A-Za-z0-9_+/-]*"
# By letter: the largest number of digits, or the words, and the format of an example.
_NUMBERS: Final = MappingProxyType(
    {"y": (4, "%Y"), "M": (2, "%m"), "d": (2, "%d"), "D": (3, "%j"), "H": (2, "%H")}
    | {"k": (2, "%H"), "K": (2, "%I"), "h": (2, "%I"), "m": (2, "%M"), "s": (2, "%S")}
    | {"S": (9, "250")}
)
_WORDS: Final = MappingProxyType(
    {"E": ("[a-z]+", "%a"), "a": ("am|pm", "%p"), "X": (_ISO_ZONE, "Z")}
    | {"z": (_ANY_ZONE, "UTC"), "Z": (_ANY_ZONE, "+0000")}
)


@frozen
class SimpleDateFormat:
    """A compiled pattern; ``example`` is a text that fits, for messages."""

    _expression: re.Pattern[str]
    example: str

    @classmethod
    def compile(cls, pattern: str) -> SimpleDateFormat:
        """Compile ``pattern``; raises ``ValueError`` with the unsupported part."""
        tokens = list(_TOKEN.finditer(pattern))
        if not tokens or sum(len(token[0]) for token in tokens) != len(pattern):
            raise ValueError("a quote is not terminated")
        parts: list[tuple[str, str]] = []
        seen: set[str] = set()
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            letter, text = token[2], token[0]
            if letter is None:
                literal = text if token[1] is None else (token[1].replace("''", "'") or "'")
                parts.append((re.escape(literal), literal))
                continue
            if letter in seen:
                raise ValueError(f"{letter!r} occurs twice")
            seen.add(letter)
            parts.append(_field(letter, len(text), following and following[2]))
        if "y" not in seen:
            raise ValueError("the year is missing")
        expressions, examples = map("".join, zip(*parts, strict=True))
        return cls(re.compile(expressions, re.IGNORECASE | re.ASCII), examples)

    def parse(self, text: str) -> datetime:
        """Return ``text`` as an aware UTC time; raises ``ValueError`` if it does not fit."""
        match = self._expression.fullmatch(text)
        if match is None:
            raise ValueError("does not fit the pattern")
        return _assemble(match.groupdict()).astimezone(UTC)


def check_pattern(value: Scalar) -> str:
    """Return a pattern as it is; raises ``ValueError`` as :meth:`SimpleDateFormat.compile` does."""
    SimpleDateFormat.compile(str(value))
    return str(value)


def parse_time(text: str, *, pattern: str = DEFAULT_FORMAT) -> datetime | timedelta:
    """Return what :func:`parse_timestamp` does, and for ``-1h`` or ``-90s`` how long ago it is."""
    if ago := re.fullmatch(r"-\s*([0-9.].*[A-Za-z])", text.strip()):
        with suppress(ValueError, OverflowError):
            return timedelta(seconds=parse_quantity(ago[1], DURATION_UNITS, default_unit="s"))
    return parse_timestamp(text, pattern=pattern)


def parse_timestamp(text: str, *, pattern: str = DEFAULT_FORMAT) -> datetime:
    """Return the instant that ``text`` means, as an aware UTC ``datetime``.

    The pattern is tried first, then epoch seconds (as Flink's connector does), then ISO-8601.

    Raises:
        InvalidOptionError: ``text`` is none of these, or an ISO-8601 time without a zone; the
            message shows an example of each.
    """
    compiled = SimpleDateFormat.compile(pattern)
    for parse in (compiled.parse, _parse_epoch_seconds, _parse_iso):
        try:
            return parse(text.strip())
        except (ValueError, OverflowError, OSError):
            continue
    hint = ""
    with suppress(ValueError):
        parsed = datetime.fromisoformat(text.strip())
        if parsed.tzinfo is None:
            full = f"{parsed.isoformat()}Z"
            hint = f" (it has no time zone: write {full!r} for UTC, or an offset)"
    if re.fullmatch(r"[0-9]{13}", text.strip()):
        hint = f" (that looks like milliseconds: give {int(text) / 1000:.3f})"
    raise InvalidOptionError(
        f"{text!r} is not a timestamp{hint}: expected the format {pattern}, as "
        f"{compiled.example!r}, epoch seconds, as '{_EXAMPLE.timestamp():.3f}', ISO-8601, as "
        f"'{_EXAMPLE.isoformat(timespec='milliseconds')}', or how long ago, as '-1h'"
    )


def _parse_epoch_seconds(text: str) -> datetime:
    seconds = parse_quantity(text)
    if seconds < 0:
        raise ValueError("before 1970")
    return datetime.fromtimestamp(seconds, UTC)


def _parse_iso(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    # A user who means local time would start hours too late, and miss records.
    if parsed.tzinfo is None:
        raise ValueError("no time zone")
    return parsed.astimezone(UTC)


def _field(letter: str, count: int, following: str | None) -> tuple[str, str]:
    name = letter
    if letter == "M" and count >= 3:
        name, expression, example = "Mon", "[a-z]+", "%B" if count > 3 else "%b"
    elif letter in _WORDS:
        expression, example = _WORDS[letter]
    elif letter in _NUMBERS:
        widest, example = _NUMBERS[letter]
        if letter == "y":
            digits, example = ("2", "%y") if count == 2 else ("4", "%Y")
        else:
            # Adjacent fields, as in yyyyMMdd, have a fixed width.
            digits = str(count) if following in _NUMBERS else f"1,{max(count, widest)}"
        expression = f"[0-9]{{{digits}}}"
    else:
        raise ValueError(f"{letter!r} is not supported")
    example = example[:count] if letter == "S" else _EXAMPLE.strftime(example)
    return f"(?P<{name}>{expression})", example


def _assemble(fields: dict[str, str | None]) -> datetime:
    def number(letter: str, otherwise: int) -> int:
        return int(fields.get(letter) or otherwise)

    day_name = (fields.get("E") or "mon").lower()
    if not any(f"{day}day".startswith(day_name) for day in _DAYS) or len(day_name) < 3:
        raise ValueError("not the name of a day")
    year = number("y", 0)
    if len(fields["y"] or "") == 2:
        # As POSIX reads them: 69-99 are 1969-1999.
        year += 1900 if year > 68 else 2000
    date = datetime(year, _month(fields), number("d", 1), tzinfo=_zone(fields))
    if fields.get("D"):
        date = date.replace(month=1, day=1) + timedelta(days=number("D", 1) - 1)
        if date.year != year:
            raise ValueError("not a day of that year")
    # S counts milliseconds in Java, "5" being 5 ms; more than three digits can only be a fraction.
    fraction = (fields.get("S") or "0").zfill(3).ljust(6, "0")
    return date.replace(
        hour=_hour(fields),
        minute=number("m", 0),
        second=number("s", 0),
        microsecond=int(fraction[:6]),
    )


def _month(fields: dict[str, str | None]) -> int:
    name = (fields.get("Mon") or "").lower()
    numbers = [number for number, month in enumerate(_MONTHS, 1) if name in {month, month[:3]}]
    if name and not numbers:
        raise ValueError("not the name of a month")
    return numbers[0] if name else int(fields.get("M") or 1)


def _hour(fields: dict[str, str | None]) -> int:
    for letter, first, count in (("H", 0, 24), ("k", 1, 24), ("K", 0, 12), ("h", 1, 12)):
        digits = fields.get(letter)
        if digits is not None:
            if not first <= int(digits) < first + count:
                raise ValueError("not an hour")
            afternoon = (fields.get("a") or "").lower() == "pm"
            return int(digits) % count + (12 if afternoon and count == 12 else 0)
    return 0


def _zone(fields: dict[str, str | None]) -> tzinfo:
    text = fields.get("X") or fields.get("Z") or fields.get("z") or "UTC"
    if text.upper() in _ZONE_HOURS:
        return timezone(timedelta(hours=_ZONE_HOURS[text.upper()]))
    offset = text.upper().removeprefix("GMT").removeprefix("UTC")
    if offset.startswith(("+", "-")):
        return datetime.fromisoformat(f"2000-01-01T00{offset}").tzinfo or UTC
    try:
        return zoneinfo.ZoneInfo(text)
    except zoneinfo.ZoneInfoNotFoundError:
        raise ValueError("not a time zone") from None
