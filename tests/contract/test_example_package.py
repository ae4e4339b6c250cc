"""The example of a user's package is installed, and its own tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kinesis_publishers

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "examples" / "custom_publisher"
_FRAMEWORK = str(Path(kinesis_publishers.__file__).parents[1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the package installed; building leaves nothing in the repository."""
    source = tmp_path_factory.mktemp("source") / "custom_publisher"
    shutil.copytree(_PACKAGE, source)
    target = tmp_path_factory.mktemp("installed")
    # Its one dependency is the framework, as it stands here.
    options = ("--no-deps", "--quiet", "--target", str(target))
    run(sys.executable, "-m", "pip", "install", *options, str(source))
    return target


def run(*command: str, path: tuple[str, ...] = (), cwd: Path | None = None) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, env=environ, cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_its_tests_and_our_contract_pass(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(_PACKAGE / "tests", tmp_path / "tests")
    shutil.copy(_PACKAGE / "pyproject.toml", tmp_path)
    path = (str(installed), _FRAMEWORK)
    shown = run(sys.executable, "-m", "pytest", "-q", "-rs", path=path, cwd=tmp_path)
    assert " passed" in shown
    assert "ReplaySubject.can_hold_open is False" in shown
