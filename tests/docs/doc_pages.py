"""The pages of the documentation: their blocks of code, and how a test runs each.

The blocks of Python of a page run in their order, in one namespace. Comments in HTML, which the
rendered page does not show, mark the exceptions:

``<!-- test: ... -->``
    Python that runs at this place: a precondition of the page, or a check of a statement.
``<!-- each block runs alone -->``
    Every block of the page has a namespace of its own.
``<!-- ends when it prints: ... -->``
    The next block does not end by itself; it runs as a program until it prints such a line.
``<!-- ends where it waits: ... -->``
    The next block waits for a query of Spark at its end; the test stops the query instead.
``<!-- not run: reason -->``
    The next block is an illustration. It is compiled and not run.
``<!-- run by FILE -->``
    A test of its own runs the Python of the page.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AVOIDED",
    "PAGES",
    "ROOT",
    "Block",
    "How",
    "blocks_of",
    "name_of",
    "prose_of",
    "uses_spark",
]

ROOT = Path(__file__).parents[2]
# Phrases with a plainer form, as "in addition to" for "beside": on pages, and in the code.
AVOIDED = re.compile(
    r"\b(?:somebody|whoever|whatever|nobody|goes? before|taken apart|now and then|(?:is|are) to be"
    r"|for who|who asks|of (?:ours|theirs)|beside|what (?:is there|there is)|any more|anew)\b",
    re.IGNORECASE,
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_ALONE = "<!-- each block runs alone -->"
_PART = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^(?P=fence)[ ]*$"
    r"|^<!-- (?P<word>test|ends when it prints|ends where it waits|not run):(?P<text>.*?)-->$",
    re.DOTALL | re.MULTILINE,
)


class How(Enum):
    """What is done with a block of Python."""

    RUN = auto()
    RUN_UNTIL_PRINTED = auto()
    RUN_UNTIL_AWAITED = auto()
    COMPILE = auto()


_HOW = {
    "ends when it prints": How.RUN_UNTIL_PRINTED,
    "ends where it waits": How.RUN_UNTIL_AWAITED,
    "not run": How.COMPILE,
}


@frozen(kw_only=True)
class Block:
    """A fenced block, or the hidden Python between two of them.

    Attributes:
        language: the first word behind the fence; ``python`` for hidden Python.
        code: its content.
        line: the number of the line before its first one, from 1.
        how: what is done with it, if it is Python.
        text: the line that it prints in the end, or the reason why it is not run.
    """

    language: str
    code: str
    line: int
    how: How = How.RUN
    text: str = ""


@cache
def blocks_of(page: Path) -> tuple[Block, ...]:
    """Return the blocks of a page, hidden ones included, in their order."""
    return tuple(_blocks_in(page.read_text(encoding="utf-8")))


def _blocks_in(text: str) -> Iterator[Block]:
    how, said = How.RUN, ""
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if part["word"] == "test":
            yield Block(language="python", code=part["text"].strip(), line=line)
        elif part["word"]:
            how = _HOW[part["word"]]
            said = part["text"].strip()
        else:
            yield Block(language=part["language"], code=part["code"], line=line, how=how, text=said)
            how, said = How.RUN, ""


def runner_of(page: Path) -> Path | None:
    """Return the test that runs the Python of a page, if it is not the test of all pages."""
    found = re.search(r"^<!-- run by (\S+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return ROOT / found[1] if found else None


def runs_alone(page: Path) -> bool:
    """Return whether every block of a page has a namespace of its own."""
    return _ALONE in page.read_text(encoding="utf-8")


def uses_spark(page: Path) -> bool:
    """Return whether the Python of a page needs a Spark session."""
    return any(re.search(r"\bspark\b", block.code) for block in blocks_of(page) if is_python(block))


def is_python(block: Block) -> bool:
    return block.language == "python"


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks and hidden Python."""
    return _PART.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    """Return how a page is called in the names of tests."""
    return str(page.relative_to(ROOT))
