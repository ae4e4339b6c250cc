"""Processes of the Kinesis Client Library, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Self

__all__ = ["KclWorker"]

# Starts quickly, and takes little of the machine: nothing here runs long enough to be compiled twice.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx192m")
_LOG = "-Dorg.slf4j.simpleLogger."


class KclWorker:
    """A worker of the KCL in a process of its own.

    Attributes:
        events: what it has printed, in order; ``KclWorker.java`` says what.
    """

    def __init__(self, libraries: Path, log: Path, settings: dict[str, object]) -> None:
        self.events: list[dict[str, Any]] = []
        self._changed = Condition()
        logging = (f"{_LOG}logFile={log}", f"{_LOG}showDateTime=true")
        arguments = [f"{name}={value}" for name, value in settings.items()]
        self._log = log
        self._process = subprocess.Popen(
            ["java", *_JVM, *logging, "-cp", f"{libraries}/*", "KclWorker", *arguments],
            env=os.environ | {"AWS_EC2_METADATA_DISABLED": "true"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    @contextmanager
    def running(cls, libraries: Path, log: Path, **settings: object) -> Iterator[Self]:
        """Run one while the context lasts, and kill it if it has not been stopped."""
        worker = cls(libraries, log, settings)
        try:
            yield worker
        finally:
            worker.kill()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "record"]

    def wait_until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        """Return when what was printed meets the condition."""
        with self._changed:
            if not self._changed.wait_for(condition, seconds):
                raise AssertionError(f"It printed {self.events}\n{self._log.read_text()[-5000:]}")

    def stop(self) -> None:
        """Shut down gracefully, as SIGTERM does, and wait for the end."""
        self._process.terminate()
        self._reader.join(60)
        self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
