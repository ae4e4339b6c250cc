"""The layers of the packages, as the contracts in ``setup.cfg`` state them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In a process of its own: the linter changes sys.path and the configuration of logging.
LINT = "import sys; from importlinter.cli import lint_imports as run; sys.exit(run(no_cache=True))"


def test_every_import_contract_is_kept():
    linting = subprocess.run(
        [sys.executable, "-c", LINT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert linting.returncode == 0, linting.stdout + linting.stderr
