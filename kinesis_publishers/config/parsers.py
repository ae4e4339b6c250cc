"""One small parser per kind of option.

A parser raises ``ValueError`` for what it does not accept. Its message never contains the value:
only :class:`~kinesis_publishers.config.option.Option` knows whether that is a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from attrs import field, frozen

Scalar: TypeAlias = str | int | float | bool
"""What a properties dict may hold."""

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)
_N = TypeVar("_N", int, float)


class Parser(Protocol[_T_co]):
    """Turns what the user wrote into a value."""

    @property
    def accepts(self) -> str:
        """What is accepted, as the end of "expected ..."."""

    def __call__(self, value: Scalar) -> _T_co: ...


DURATION_UNITS: Final = MappingProxyType(
    dict.fromkeys(("us", "microsecond", "microseconds"), 1e-6)
    | dict.fromkeys(("ms", "millis", "millisecond", "milliseconds"), 1e-3)
    | dict.fromkeys(("s", "sec", "second", "seconds"), 1.0)
    | dict.fromkeys(("m", "min", "minute", "minutes"), 60.0)
    | dict.fromkeys(("h", "hour", "hours"), 3600.0)
    | dict.fromkeys(("d", "day", "days"), 86400.0)
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


def parse_quantity(
    text: str, units: Mapping[str, float] = MappingProxyType({}), *, default_unit: str = ""
) -> float:
    """Return the finite number ``text`` in ``default_unit``, which is that of a bare number.

    Raises:
        ValueError: there is no number, also for ``nan`` and ``1_000``, or its unit is not among
            ``units``, the size of each by its lower-case name.
    """
    match = re.fullmatch(rf"({_NUMBER})\s*([A-Za-z]*)", text)
    number = float(match[1]) if match else math.nan
    if match is None or not math.isfinite(number):
        raise ValueError("not a number with a unit")
    unit = match[2].lower() or default_unit
    if unit == default_unit:
        return number
    if unit not in units:
        raise ValueError(f"unknown unit {match[2]!r}")
    # Rounded: otherwise 0.3 s would be 300.00000000000006 ms.
    return round(number * units[unit] / units[default_unit], 9)


@frozen(kw_only=True)
class _Number:
    noun: ClassVar[str] = "a number"
    units: ClassVar[Mapping[str, float]] = MappingProxyType({})
    minimum: float = 0
    maximum: float = math.inf
    below: float = math.inf
    unit: str | None = None

    @property
    def accepts(self) -> str:
        """What is accepted: the noun, in which ``{}`` is the unit, and the bounds."""
        words = {" of at least": self.minimum, " of at most": self.maximum, " below": self.below}
        given = {word: bound for word, bound in words.items() if bound < math.inf}
        bounds = " and".join(f"{word} {bound:.15g}" for word, bound in given.items())
        return f"{self.noun.format(self.unit)}{bounds}"

    def _read(self, value: Scalar) -> float:
        if isinstance(value, bool):
            raise ValueError("a boolean is not a number")
        if isinstance(value, str):
            return parse_quantity(value.strip(), self.units, default_unit=self.unit or "")
        if not math.isfinite(value):
            raise ValueError("not finite")
        return value

    def _check(self, number: _N) -> _N:
        if not self.minimum <= number <= self.maximum or number >= self.below:
            raise ValueError("too small or too large")
        return number


@frozen(kw_only=True)
class WholeNumber(_Number):
    noun = "a whole number"

    def __call__(self, value: Scalar) -> int:
        if isinstance(value, str):
            # int() alone would take 1_000 and digits of other scripts; float() loses precision.
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
                raise ValueError("not a whole number")
        elif isinstance(value, bool) or not math.isfinite(value) or value != int(value):
            raise ValueError("not a whole number")
        return self._check(int(value))


@frozen(kw_only=True)
class DecimalNumber(_Number):
    def __call__(self, value: Scalar) -> float:
        return self._check(float(self._read(value)))


@frozen(kw_only=True)
class Duration(_Number):
    """A duration in ``unit`` (``ms`` or ``s``), or with an explicit unit; ``off`` is -1."""

    noun = "a duration in {}"
    units = DURATION_UNITS
    unit: str = "ms"
    can_be_off: bool = False

    @property
    def accepts(self) -> str:
        example = "500ms" if self.unit == "ms" else "30s"
        off = "; -1 switches it off" if self.can_be_off else ""
        return f"{super().accepts}, or with a unit such as {example} or 5m{off}"

    def __call__(self, value: Scalar) -> float:
        number = float(self._read(value))
        return number if self.can_be_off and number == -1 else self._check(number)


@frozen(kw_only=True)
class Size(_Number):
    noun = "a whole number of bytes"
    units = SIZE_UNITS
    minimum: float = 1
    unit: str = "bytes"

    @property
    def accepts(self) -> str:
        return f"{super().accepts}, or with a unit such as 64MiB or 10MB"

    def __call__(self, value: Scalar) -> int:
        number = self._read(value)
        if number != int(number):
            raise ValueError("not a whole number of bytes")
        return self._check(int(number))


@frozen
class Flag:
    accepts: str = "true or false"

    def __call__(self, value: Scalar) -> bool:
        text = str(value).strip().lower()
        if text not in {"true", "false"}:
            raise ValueError("not a boolean")
        return text == "true"


@frozen(kw_only=True)
class Text:
    """A text, of a certain form if ``pattern`` is given."""

    accepts: str = "a string that is not empty"
    pattern: str | re.Pattern[str] | None = None

    def __call__(self, value: Scalar) -> str:
        if isinstance(value, bool):
            raise ValueError("a boolean is not a text")
        text = str(value).strip()
        if not text or (self.pattern and not re.fullmatch(self.pattern, text)):
            raise ValueError("does not have the expected form")
        return text


@frozen
class Parsed(Generic[_T]):
    """What a function takes, which raises ``ValueError`` for everything else."""

    accepts: str
    parse: Callable[[Scalar], _T]

    def __call__(self, value: Scalar) -> _T:
        return self.parse(value)


@frozen(kw_only=True)
class PluginName:
    """The name of a class; the case matters only if it is not built in.

    Attributes:
        built_in: the classes that have a name, as ``module:Class``. They are imported when they are
            used: some need packages that are extras, or that take long to load.
        group: the entry points in which packages announce others.
    """

    built_in: Mapping[str, str] = field(hash=False)
    group: str

    @property
    def accepts(self) -> str:
        names = ", ".join(self.built_in)
        return f"{names}, module:Class or the name of an installed entry point"

    def __call__(self, value: Scalar) -> str:
        name = Text(pattern=r"[\w.-]+|[\w.]+:[\w.]+")(value)
        return next((one for one in self.built_in if one.lower() == name.lower()), name)


@frozen(kw_only=True)
class Choice(Generic[_E]):
    """One of several members of an enum, by value in any case; elsewhere ``also`` is accepted."""

    members: Iterable[_E]
    also: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(str(member.value) for member in self.members)

    @property
    def accepts(self) -> str:
        return f"one of {', '.join(self.choices)}{self.also}"

    def __call__(self, value: Scalar) -> _E:
        # Also a number, as the 2 of HTTP/2.
        wanted = str(value).strip().lower()
        for member in self.members:
            if str(member.value).lower() == wanted:
                return member
        raise ValueError("not among the choices")


URL: Final = Text(
    accepts="an http or https URL without user name and password",
    pattern=r"(?i)https?://(\[[0-9a-f:.]+\]|[^\s/@?#:\[\]]+)(:[0-9]{1,5})?(/[^\s@]*)?",
)
