"""Renders the declarations of options: as a page of the documentation, and as plain texts."""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from typing import Any

from kinesis_publishers.config.catalogue import all_declarations
from kinesis_publishers.config.option import Namespace, Option

_HEADER = "| Key | Accepted | Default | Meaning |\n|---|---|---|---|"


def render_reference() -> str:
    """Return Markdown: one section with one table for each section of the declarations."""
    sections = groupby(all_declarations(), key=lambda option: option.section)
    return "\n\n".join(
        f"## {section}\n\n{_HEADER}\n" + "\n".join(map(_render_row, members))
        for section, members in sections
    )


def _render_row(option: Option[Any]) -> str:
    key = f"`{option.full_key}`"
    if option.namespace is Namespace.SHARED:
        key += f" (also `flink.{option.key}`)"
    notes = option.doc
    if option.secret:
        notes += " Secret: masked in every message."
    if option.unread:
        notes += f" Not read: {option.unread}."
    accepted = ", ".join(f"`{choice}`" for choice in option.choices) or accepted_text(option)
    cells = (key, _escape(accepted), _render_default(option), _escape(notes))
    return f"| {' | '.join(cells)} |"


def _render_default(option: Option[Any]) -> str:
    if option.required:
        return "required"
    text = value_text(option.default)
    if text is None:
        return "none"
    is_quantity = option.unit and isinstance(option.default, int | float)
    return f"`{text}` {option.unit}" if is_quantity else f"`{text}`"


def accepted_text(option: Option[Any]) -> str:
    """Return what an option may be: its choices, or a description."""
    return ", ".join(option.choices) or option.parser.accepts


def value_text(value: object) -> str | None:
    """Return a parsed value as text, without its unit; ``None`` where there is nothing."""
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


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
