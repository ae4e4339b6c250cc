"""Renders the declarations of all options as a page of the documentation."""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from typing import Any

from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.options import all_declarations

__all__ = ["render_reference"]

_HEADER = "| Key | Accepted | Default | Meaning |\n|---|---|---|---|"


def render_reference() -> str:
    """Return Markdown: one section with one table for each section of the declarations."""
    names = list(dict.fromkeys(option.section for option in all_declarations()))
    options = sorted(all_declarations(), key=lambda option: names.index(option.section))
    sections = groupby(options, key=lambda option: option.section)
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
    if not option.implemented:
        notes += " Not read yet."
    accepted = ", ".join(f"`{choice}`" for choice in option.choices) or option.parser.accepts
    cells = (key, _escape(accepted), _render_default(option), _escape(notes))
    return f"| {' | '.join(cells)} |"


def _render_default(option: Option[Any]) -> str:
    if option.required:
        return "required"
    default = option.default
    if default is None or default == ():
        return "none"
    if isinstance(default, Enum):
        return f"`{default.value}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float):
        return f"`{default:.15g}`" + (f" {option.unit}" if option.unit else "")
    return f"`{default}`"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
