"""What a value may be: one small parser per kind of option.

A parser says in ``accepts`` what it takes and raises ``ValueError`` for everything else. Its
message never repeats the value: that is left to :class:`~kinesis_publishers.config.option.Option`,
which knows whether the value is a secret.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Choice",
    "DURATION_UNITS",
    "DecimalNumber",
    "Duration",
    "Flag",
    "Parser",
    "PluginName",
    "SIZE_UNITS",
    "Scalar",
    "Size",
    "Text",
    "URL",
    "WholeNumber",
    "parse_number",
    "parse_quantity",
]

Scalar: TypeAlias = str | int | float | bool
"""What a properties dict may hold."""

_T_co = TypeVar("_T_co", covariant=True)
_E = TypeVar("_E", bound=Enum)


class Parser(Protocol[_T_co]):
    """Turns what the user wrote into a value."""

    @property
    def accepts(self) -> str:
        """What is accepted, as the end of "expected ..."."""

    @property
    def unit(self) -> str | None:
        """The unit of the value, if it has one."""

    def __call__(self, value: Scalar) -> _T_co:
        """Return the value, or raise ``ValueError`` without repeating it."""


def _number(value: Scalar) -> float:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    if isinstance(value, str):
        return parse_number(value.strip())
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _describe_bounds(minimum: float | None, maximum: float | None, below: float | None) -> str:
    bounds = ((" of at least", minimum), (" of at most", maximum), (" below", below))
    return " and".join(f"{words} {bound:.15g}" for words, bound in bounds if bound is not None)


def _check_bounds(
    number: float, minimum: float | None, maximum: float | None, below: float | None
) -> None:
    if minimum is not None and number < minimum:
        raise ValueError("too small")
    if (maximum is not None and number > maximum) or (below is not None and number >= below):
        raise ValueError("too large")


@frozen(kw_only=True)
class WholeNumber:
    """A count."""

    minimum: int | None = 0
    maximum: int | None = None
    unit: None = None

    @property
    def accepts(self) -> str:
        return f"a whole number{_describe_bounds(self.minimum, self.maximum, None)}"

    def __call__(self, value: Scalar) -> int:
        if isinstance(value, str):
            # int() alone would take 1_000 and digits of other scripts; float() loses precision.
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
                raise ValueError("not a whole number")
            number = int(value)
        elif isinstance(value, bool) or not math.isfinite(value) or value != int(value):
            raise ValueError("not a whole number")
        else:
            number = int(value)
        _check_bounds(number, self.minimum, self.maximum, None)
        return number


@frozen(kw_only=True)
class DecimalNumber:
    """A factor."""

    minimum: float | None = 0.0
    unit: None = None

    @property
    def accepts(self) -> str:
        return f"a number{_describe_bounds(self.minimum, None, None)}"

    def __call__(self, value: Scalar) -> float:
        number = float(_number(value))
        _check_bounds(number, self.minimum, None, None)
        return number


@frozen(kw_only=True)
class Duration:
    """A duration in ``unit`` (``ms`` or ``s``), also with a unit of its own; ``off`` is -1."""

    unit: str = "ms"
    minimum: float = 0.0
    below: float | None = None
    can_be_off: bool = False

    @property
    def accepts(self) -> str:
        bounds = _describe_bounds(self.minimum, None, self.below)
        example = "500ms" if self.unit == "ms" else "30s"
        off = "; -1 switches it off" if self.can_be_off else ""
        return f"a duration in {self.unit}{bounds}, or with a unit such as {example} or 5m{off}"

    def __call__(self, value: Scalar) -> float:
        if isinstance(value, str):
            number = parse_quantity(value.strip(), DURATION_UNITS, default_unit=self.unit)
        else:
            number = float(_number(value))
        if self.can_be_off and number == -1:
            return number
        _check_bounds(number, self.minimum, None, self.below)
        return number


@frozen(kw_only=True)
class Size:
    """A number of bytes."""

    minimum: int = 1
    unit: str = "bytes"

    @property
    def accepts(self) -> str:
        bounds = _describe_bounds(self.minimum, None, None)
        return f"a whole number of bytes{bounds}, or with a unit such as 64MiB or 10MB"

    def __call__(self, value: Scalar) -> int:
        if isinstance(value, str):
            number = parse_quantity(value.strip(), SIZE_UNITS, default_unit=self.unit)
        else:
            number = _number(value)
        if number != int(number):
            raise ValueError("not a whole number of bytes")
        _check_bounds(number, self.minimum, None, None)
        return int(number)


@frozen
class Flag:
    """A boolean."""

    unit: None = None
    accepts: str = "true or false"

    def __call__(self, value: Scalar) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return value.strip().lower() == "true"
        raise ValueError("not a boolean")


@frozen(kw_only=True)
class Text:
    """A text, of a certain form if ``pattern`` is given."""

    accepts: str = "a text that is not empty"
    pattern: str | re.Pattern[str] | None = None
    unit: None = None

    def __call__(self, value: Scalar) -> str:
        if isinstance(value, bool):
            raise ValueError("a boolean is not a text")
        text = str(value).strip()
        if not text or (self.pattern and not re.fullmatch(self.pattern, text)):
            raise ValueError("not of the expected form")
        return text


@frozen(kw_only=True)
class PluginName:
    """The name of a class: a built-in one without regard to case, or any other as it is written."""

    built_in: tuple[str, ...]
    accepts: str
    unit: None = None

    def __call__(self, value: Scalar) -> str:
        name = Text(pattern=r"[\w.-]+|[\w.]+:[\w.]+")(value)
        return next((one for one in self.built_in if one.lower() == name.lower()), name)


@frozen(kw_only=True)
class Choice(Generic[_E]):
    """One member of an enum, by its value, without regard to case."""

    members: type[_E]
    unit: None = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The accepted values, as they are documented."""
        return tuple(str(member.value) for member in self.members)

    @property
    def accepts(self) -> str:
        return f"one of {', '.join(self.choices)}"

    def __call__(self, value: Scalar) -> _E:
        # Also a number, as the 2 of HTTP/2.
        wanted = str(value).strip().lower()
        for member in self.members:
            if str(member.value).lower() == wanted:
                return member
        raise ValueError("not among the choices")


URL: Final = Text(
    accepts="an http or https URL without user name and password",
    pattern=r"(?i)https?://[^\s/@?#]+(/[^\s@]*)?",
)


DURATION_UNITS: Final = MappingProxyType(
    {
        name: seconds
        for seconds, names in (
            (1e-6, ("us", "microsecond", "microseconds")),
            (1e-3, ("ms", "millis", "millisecond", "milliseconds")),
            (1.0, ("s", "sec", "second", "seconds")),
            (60.0, ("m", "min", "minute", "minutes")),
            (3600.0, ("h", "hour", "hours")),
            (86400.0, ("d", "day", "days")),
        )
        for name in names
    }
)
"""Seconds in each unit of time."""

# MB is 10^6 and MiB is 2^20, as in AWS's documentation of the limits of a shard; the ambiguous "m"
# and "k" are not accepted.
SIZE_UNITS: Final = MappingProxyType(
    {"b": 1, "byte": 1, "bytes": 1}
    | {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
    | {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}
)
"""Bytes in each unit of size."""

_NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


def parse_number(text: str) -> float:
    """Return ``text`` as a finite number; raises ``ValueError``, also for ``nan`` and ``1_000``."""
    if not re.fullmatch(_NUMBER, text):
        raise ValueError("not a number")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large")
    return number


def parse_quantity(text: str, units: Mapping[str, float], *, default_unit: str) -> float:
    """Return ``text`` in ``default_unit``.

    Args:
        text: a number, with or without a unit after it.
        units: the size of each unit, by lower-case name.
        default_unit: the unit of a bare number, and of the result.

    Raises:
        ValueError: there is no number, or the unit is not among ``units``.
    """
    match = re.fullmatch(rf"({_NUMBER})\s*([A-Za-z]*)", text)
    if match is None:
        raise ValueError("not a number with a unit")
    number = parse_number(match[1])
    unit = match[2].lower() or default_unit
    if unit not in units:
        raise ValueError(f"unknown unit {match[2]!r}")
    if unit == default_unit:
        return number
    # Rounded, or 0.3 s would be 300.00000000000006 ms.
    return round(number * units[unit] / units[default_unit], 9)
