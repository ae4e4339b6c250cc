"""Processes of the Kinesis Client Library."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from tests.integration.leases.kcl.worker_events import WorkerEvent, WorkerEvents
from tests.jvm import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from threading import Condition
    from typing import Self

__all__ = ["KclWorker"]

_JVM = (*SHORT_LIVED, "-Xmx192m")
_LOG = "-Dorg.slf4j.simpleLogger."


class KclWorker(WorkerEvents):
    """A worker of the KCL in a process of its own; ``KclWorker.java`` says what it prints."""

    def __init__(
        self, libraries: Path, log: Path, changed: Condition, settings: dict[str, object]
    ) -> None:
        super().__init__(changed)
        logging = (f"{_LOG}logFile={log}", f"{_LOG}showDateTime=true")
        arguments = [f"{name}={value}" for name, value in settings.items()]
        self._process = subprocess.Popen(
            ["java", *_JVM, *logging, "-cp", f"{libraries}/*", "KclWorker", *arguments],
            env=os.environ | {"AWS_EC2_METADATA_DISABLED": "true"},
            stdin=subprocess.PIPE,  # It shuts down when this process has ended.
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    @contextmanager
    def running(
        cls, libraries: Path, log: Path, changed: Condition, **settings: object
    ) -> Iterator[Self]:
        """Run one while the context lasts, and kill it if it has not been stopped."""
        worker = cls(libraries, log, changed, settings)
        try:
            yield worker
        finally:
            worker.kill()

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
            told = json.loads(line)
            self.note(WorkerEvent(**{**told, "data": b64decode(told.get("data", ""))}))
