"""The documentation fits the code and itself: generated pages, and links."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_PAGES = [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *sorted(_DOCS.rglob("*.md"))]
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def text_of(page: Path) -> str:
    """Return a page without its code."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """Return where a link into a page may lead."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_configuration_page_is_up_to_date() -> None:
    render = runpy.run_path(str(_DOCS / "generate.py"))["render_configuration"]
    # Otherwise: tox -e docs
    assert (_DOCS / "configuration.md").read_text(encoding="utf-8") == render()


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(page))
    broken = []
    for target in targets:
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []
