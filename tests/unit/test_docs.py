"""The generated pages of the documentation are those that the code gives."""

from __future__ import annotations

import runpy
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_configuration_page_is_up_to_date() -> None:
    render = runpy.run_path(str(_DOCS / "generate.py"))["render_configuration"]
    # Otherwise: tox -e docs
    assert (_DOCS / "configuration.md").read_text(encoding="utf-8") == render()
