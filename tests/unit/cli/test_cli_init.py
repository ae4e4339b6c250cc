"""``init``: the projects that it writes work."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.cli.init import KINDS
from tests.unit.cli.cli_support import run_command

if TYPE_CHECKING:
    from pathlib import Path

_SPARK = [pytest.mark.spark, pytest.mark.long]
_ENVIRON = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=_SPARK if kind == "spark" else []) for kind in KINDS],
)
def test_the_tests_of_a_project_pass(kind: str, tmp_path: Path) -> None:
    result = run_command("init", str(tmp_path / "mine"), "--kind", kind)
    assert result.exit_code == 0
    written = {path.name for path in (tmp_path / "mine").iterdir()}
    assert {"README.md", *written} == written
    assert len(result.stdout.splitlines()) == len(written) >= 3
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "error::SyntaxWarning",
        ],
        cwd=tmp_path / "mine",
        env=os.environ | _ENVIRON,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout


def test_the_properties_of_a_project_are_valid(tmp_path: Path) -> None:
    for kind in ("plain", "spark"):
        run_command("init", str(tmp_path / kind), "--kind", kind)
        file = str(tmp_path / kind / "app.properties")
        assert run_command("config", "check", file).exit_code == 0


def test_what_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text("mine")
    result = run_command("init", str(tmp_path))
    assert result.exit_code == 2
    assert "has consumer.py already: nothing was written" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["consumer.py"]
    assert (tmp_path / "consumer.py").read_text() == "mine"
