"""The command in a process of its own, with processors of the KCL's clients."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

__all__ = ["DaemonProcess"]


class DaemonProcess:
    """Runs ``kinesis-publishers multilang``; keeps what it and its processors say."""

    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        self._said = ""
        self._changed = Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kinesis_publishers.cli.main", "multilang", str(file)],
            env=os.environ | environment,
            stderr=subprocess.PIPE,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    @contextmanager
    def running(
        cls, file: Path, properties: Mapping[str, str], environment: Mapping[str, str] = os.environ
    ) -> Iterator[Self]:
        """Run one while the context lasts, and kill it if it has not been stopped."""
        file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
        daemon = cls(file, environment)
        try:
            yield daemon
        finally:
            daemon._process.kill()
            daemon._process.wait()
            daemon._reader.join()
            assert daemon._process.stderr is not None
            daemon._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        while block := os.read(self._process.stderr.fileno(), 65_536):
            with self._changed:
                self._said += block.decode()
                self._changed.notify_all()

    @property
    def said(self) -> str:
        """All that it and its processors have said."""
        with self._changed:
            return self._said

    def wait_until(self, condition: Callable[[str], bool]) -> str:
        """Return what was said, once it meets the condition; that is looked at twice a second."""
        for _ in range(120):
            with self._changed:
                if self._changed.wait_for(lambda: condition(self._said), 0.5):
                    break
        assert condition(self._said), self._said
        return self._said

    def wait_for(self, text: str, times: int = 1) -> str:
        """Return all that was said, once ``text`` was said so many times."""
        return self.wait_until(lambda said: said.count(text) >= times)

    def stop(self) -> int:
        """Stop it by SIGTERM; return its exit code."""
        self._process.terminate()
        code = self._process.wait(60)
        self._reader.join()
        return code
