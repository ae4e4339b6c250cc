"""Every test has leases of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the leases of this test are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path
