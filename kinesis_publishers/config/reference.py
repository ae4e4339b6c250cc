"""Renders the declarations of options as plain texts."""

from __future__ import annotations

from enum import Enum
from typing import Any

from kinesis_publishers.config.option import Option


def accepted_text(option: Option[Any]) -> str:
    """Return what an option may be: its choices, or a description."""
    return ", ".join(option.choices) or option.parser.accepts


def value_text(value: object) -> str | None:
    """Return a parsed value as text, without its unit; ``None`` for an empty one."""
    if value is None or value == ():
        return None
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int | float):
        return f"{value:.15g}"
    return str(value)
