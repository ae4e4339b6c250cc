"""Numbers with a unit: durations (``500ms``, ``30s``, ``5m``) and sizes (``64MiB``, ``10MB``)."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DURATION_UNITS", "SIZE_UNITS", "parse_number", "parse_quantity"]

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

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUANTITY: Final = re.compile(rf"({_NUMBER.pattern})\s*([A-Za-z]*)")


def parse_number(text: str) -> float:
    """Return ``text`` as a finite number; raises ``ValueError``, also for ``nan`` and ``1_000``."""
    if not _NUMBER.fullmatch(text):
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
    match = _QUANTITY.fullmatch(text)
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
