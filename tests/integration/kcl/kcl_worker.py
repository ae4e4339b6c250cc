"""Processes of the Kinesis Client Library, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from threading import Condition
    from typing import Self

__all__ = ["KclEvent", "KclWorker"]

# Starts quickly and takes little of the machine.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx192m")
_LOG = "-Dorg.slf4j.simpleLogger."


@frozen(kw_only=True)
class KclEvent:
    """What the KCL told the record processor of a shard, or a record that it gave to it.

    Attributes:
        event: ``record``, or the name of the processor's method.
        sequence: the number of a record, or where ``initialized`` begins.
        gracefully: of ``stopped``, which no shard has.
    """

    event: str
    shard: str = ""
    sequence: str = ""
    sub: int = 0
    key: str = ""
    data: bytes = field(default=b"", converter=b64decode)
    gracefully: bool = False
    error: str = ""

    @property
    def position(self) -> tuple[str, int]:
        return self.sequence, self.sub


class KclWorker:
    """A worker of the KCL in a process of its own; it notifies ``changed`` of what it prints.

    Attributes:
        events: what it has printed, in order.
    """

    def __init__(
        self, libraries: Path, log: Path, changed: Condition, settings: dict[str, object]
    ) -> None:
        self.events: list[KclEvent] = []
        logging = (f"{_LOG}logFile={log}", f"{_LOG}showDateTime=true")
        arguments = [f"{name}={value}" for name, value in settings.items()]
        self._changed = changed
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
    def running(
        cls, libraries: Path, log: Path, changed: Condition, **settings: object
    ) -> Iterator[Self]:
        """Run one while the context lasts, and kill it if it has not been stopped."""
        worker = cls(libraries, log, changed, settings)
        try:
            yield worker
        finally:
            worker.kill()

    @property
    def records(self) -> list[KclEvent]:
        return self.of("record")

    def of(self, event: str) -> list[KclEvent]:
        return [one for one in self.events if one.event == event]

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
                self.events.append(KclEvent(**json.loads(line)))
                self._changed.notify_all()
