"""The texts in the code read as written, not translated: docstrings, options, log lines, errors.

Comments count, too. A pattern stands here because rewriting showed it to be typical, and because it
is rarely right. Each has its reason; add one only if it finds more than it hinders.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import sources
from tests.docs.doc_pages import AVOIDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.architecture.sources import Source

_PACKAGES = ("kinesis_publishers", "kinesis_publishers_spark")
# What a text must not have, and what it should have.
_FLAGGED = {
    f"(?i:{AVOIDED.pattern})": "a plainer word",
    r"\bseldom\b": "'rarely'",
    r"\b(?:so many|so much)\b(?! \w+ that)": "the number or the amount, by its name",
    r"\btold of\b": "who reports it: 'the listener receives ...'",
    r"\bone after the other\b": "'in order', or 'one after another'",
    r"\bif need be\b": "'if necessary'",
    r"\bbecomes of\b": "'what happens to ...', or 'how ... is treated'",
    r"\bwhat (?:is|was) left\b": "the thing that remains: 'the remaining records'",
    r"\b(?:go|goes) on\b": "'continue', or 'resume'",
    r"(?:^|[.:;] )(?:That|Those) (?:of|that|which|who|in)\b": "the noun, not a pronoun for it",
    r"^(?:Learn|Note) (?:of|how|that|which|what|when|at)\b": "the effect: 'Update ...'",
    r"^Say (?:whether|how|that|what)\b": "'Return whether ...', or 'Log ...'",
    r"\b(?:is|are) to (?:take|have|go|get|read|wait)\b": "'must', 'should', or a plain verb",
}


def texts_of(source: Source) -> Iterator[str]:
    """Yield every string and every block of comments of a file, without its line breaks."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())
    for block in re.findall(r"(?:^ *#.*\n)+", source.text, re.MULTILINE):
        yield " ".join(re.sub(r"^ *#:?", "", block, flags=re.MULTILINE).split())


@pytest.mark.parametrize("package", _PACKAGES)
def test_the_texts_of_a_package_read_as_written(package: str) -> None:
    found = {
        f"{source.path}: {match[0]!r} in {text[:90]!r}: better {better}"
        for name, source in sources().items()
        if f"{name}.".startswith(f"{package}.")
        for text in texts_of(source)
        for pattern, better in _FLAGGED.items()
        for match in re.finditer(pattern, text)
    }
    assert sorted(found) == []


@pytest.mark.parametrize(
    "text",
    [
        "What becomes of records that nobody reads.",
        "Learn how far a shard is read.",
        "It waits for a page. Those that come meanwhile are dropped.",
        "How long a micro-batch is to take: a failure repeats so much.",
    ],
)
def test_a_translated_text_is_found(text: str) -> None:
    assert [pattern for pattern in _FLAGGED if re.search(pattern, text)]


@pytest.mark.parametrize(
    "text",
    [
        "Return whether the pool is full.",
        "That shard waits, and notes what it read.",
        "There are so many shards that one listing takes a minute.",
    ],
)
def test_a_plain_text_passes(text: str) -> None:
    assert [pattern for pattern in _FLAGGED if re.search(pattern, text)] == []
