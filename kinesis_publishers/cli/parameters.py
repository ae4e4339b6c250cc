"""Types of parameters that click does not have."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from kinesis_publishers.config.parsers import DURATION_UNITS, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checked", "DurationType"]


# Generic since click 8.4 only.
class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A length of time with a unit; a number alone is in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return ``value`` as a ``timedelta``; fails for what is none, or negative."""
        if isinstance(value, timedelta):
            return value
        try:
            duration = timedelta(seconds=parse_quantity(value, DURATION_UNITS, default_unit="s"))
        except (ValueError, OverflowError):
            duration = timedelta(-1)
        if duration < timedelta(0):
            self.fail(f"{value!r} is not a duration, as 90s, 10m or 2h.", param, ctx)
        return duration


class Checked(click.ParamType):  # type: ignore[type-arg]
    """A text that a function accepts.

    Args:
        name: what it is, for the help.
        check: returns the text, or raises ``ValueError``.
        accepts: what is expected, for the message.
    """

    def __init__(self, name: str, check: Callable[[str], str], accepts: str) -> None:
        self.name = name
        self._check = check
        self._accepts = accepts

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return ``value``; fails if it is not accepted."""
        try:
            return self._check(value)
        except ValueError:
            self.fail(f"got {value!r}, expected {self._accepts}.", param, ctx)
