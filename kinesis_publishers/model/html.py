"""Shows records in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from reprlib import Repr
from typing import Final

_LONGEST: Final = 80
_REPR: Final = Repr()
_REPR.maxstring = _REPR.maxother = _LONGEST


def html_table(caption: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return a small table of ``rows``, which have the same names of columns.

    Anybody who may write to a stream chooses keys and payloads: they are shortened and escaped.
    """
    names = rows[0] if rows else ()
    lines = [_line("th", names), *(_line("td", map(_shown, row.values())) for row in rows)]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _line(tag: str, texts: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        # A payload may have 10 MiB. A character that is cut in two is shown as its bytes.
        value = value[: 4 * _LONGEST].decode(errors="backslashreplace")
    if not isinstance(value, str):
        return _REPR.repr(value)
    # With what is not printable, such as a change of the direction of text, as an escape.
    text = repr(value[: _LONGEST + 1])[1:-1]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
