"""Runs a driver program as a process, which a test kills with all that belongs to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.spark.processes import Program

_DRIVER = Path(__file__).with_name("kill_driver.py")


class Driver(Program):
    """A driver program with its properties, its checkpoint and a folder for what it writes."""

    def __init__(
        self, properties: dict[str, str], checkpoint: Path, output: Path, *, program: Path = _DRIVER
    ) -> None:
        given = json.dumps(properties), str(checkpoint), str(output)
        super().__init__(sys.executable, str(program), *given)

    def wait(self, seconds: float) -> None:
        """Let it run; it must not end by itself."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"the driver ended by itself:\n{self.said}")


def read_files(output: Path) -> list[list[str]]:
    files = sorted(output.glob("*.json"), key=lambda path: int(path.stem))
    return [row for path in files for row in json.loads(path.read_text())]
