"""Runs the driver program as a process, which a test kills with all that belongs to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.integration.spark.processes import descendants, wait_until_gone

_DRIVER = Path(__file__).with_name("kill_driver.py")


class Driver:
    """The driver program in a process group of its own, as a user's job would run."""

    def __init__(
        self, properties: dict[str, str], checkpoint: Path, output: Path, *, program: Path = _DRIVER
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(properties), str(checkpoint), str(output)],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.errors = b""
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self.errors = (self.errors + line)[-20_000:]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return self.errors.decode(errors="replace")

    def wait(self, seconds: float) -> None:
        """Let it run; it must not end by itself."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"the driver ended by itself:\n{self.said}")

    def kill(self) -> None:
        """SIGKILL everything at once: the driver, the JVM and the Python workers.

        Only the guard of stream consumers, which is in a session of its own, ends by itself.
        """
        with suppress(ProcessLookupError):
            # It ends nothing that it has begun while its family is looked up.
            os.killpg(self._process.pid, signal.SIGSTOP)
        family = descendants(self._process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        wait_until_gone(family)
        self._drain.join()


def read_files(output: Path) -> list[list[str]]:
    files = sorted(output.glob("*.json"), key=lambda path: int(path.stem))
    return [row for path in files for row in json.loads(path.read_text())]
