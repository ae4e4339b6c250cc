"""The reader's side: starts the guard process and keeps the pipe open at whose end it acts."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Self

from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import (
    DeregistrationPolicy,
    RegistrationConfig,
    RegistrationStrategy,
    SourceConfig,
)
from kinesis_publishers.consumer_guard.messages import READY, GuardRequest
from kinesis_publishers.errors import ConsumerGuardError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import Properties

__all__ = ["ConsumerGuard"]

_MODULE = "kinesis_publishers.consumer_guard"
# Starting an interpreter takes a second; a machine that is short of everything takes many.
_START_SECONDS = 60.0


class ConsumerGuard:
    """Sees to it that consumers are removed when this process is gone, however it ends.

    Constructing one starts nothing. It is used by one thread at a time.

    Args:
        properties: the configuration; with a region.
        clock: the source of time.
    """

    def __init__(self, properties: Properties, *, clock: Clock | None = None) -> None:
        self._properties = properties
        self._clock = clock or SystemClock()
        self._config = RegistrationConfig.from_properties(properties)
        self._process: subprocess.Popen[bytes] | None = None
        self._request: GuardRequest | None = None

    @classmethod
    def for_properties(cls, properties: Properties) -> Self | None:
        """Return a guard if ``properties`` can leave a consumer to be removed, else ``None``."""
        if SourceConfig.from_properties(properties).record_publisher != "EFO":
            return None
        config = RegistrationConfig.from_properties(properties)
        if (
            config.strategy is RegistrationStrategy.NONE
            or config.deregister is DeregistrationPolicy.NEVER
        ):
            return None
        return cls(properties)

    def hold(self, stream_arns: Iterable[str]) -> None:
        """Return when the guard process holds a lease on the consumer of each stream.

        Called before the consumers are used; again is cheap, and starts another guard process if
        somebody has ended the first.

        Raises:
            ConsumerGuardError: it cannot be started, or not within a minute or so.
        """
        request = GuardRequest.of(self._properties, stream_arns)
        if self._process is not None:
            if self._request == request and self._process.poll() is None:
                return
            self.close()
        self._request, self._process = request, self._start(request)

    def _start(self, request: GuardRequest) -> subprocess.Popen[bytes]:
        process = self._spawn()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # One that has ended already does not read, which shows in what it does not say.
            with suppress(BrokenPipeError):
                process.stdin.write(request.to_line())
                process.stdin.flush()
            self._wait_until_ready(process.stdout)
        except BaseException:
            process.kill()
            _let_go(process)
            raise
        # Nothing more is said: only the pipe to it stays, whose end is the signal.
        process.stdout.close()
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                # Its path is that of this process, nothing more.
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Not in the terminal's session, whose Ctrl-C and hang-up are for the reader, and
                # not in the process group that a supervisor kills.
                start_new_session=True,
                # What is imported here may have come with the job, and not by installation.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        except OSError as error:
            raise _error(f"{sys.executable!r} cannot be run ({error})") from error

    def _wait_until_ready(self, pipe: IO[bytes]) -> None:
        # The guard of an earlier query may just be removing the consumer, which is waited for.
        patience = _START_SECONDS + 2 * self._config.deregister_timeout_seconds
        deadline = self._clock.monotonic() + patience
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while said != READY:
                if not selector.select(deadline - self._clock.monotonic()):
                    raise _error(f"it was not ready within {patience:.0f} s")
                part = os.read(pipe.fileno(), len(READY))
                if not part:
                    raise _error("it ended at once; what it wrote to standard error says why")
                said += part

    def close(self) -> None:
        """Leave the consumers to the guard process, as the end of this process does."""
        process, self._process = self._process, None
        if process is not None:
            _let_go(process)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes to a guard process, and collect it when it ends, without waiting for it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            # What a guard process that has ended did not read cannot be written any more.
            with suppress(BrokenPipeError):
                pipe.close()
    threading.Thread(target=process.wait, name="consumer-guard-end", daemon=True).start()


def _error(reason: str) -> ConsumerGuardError:
    return ConsumerGuardError(
        "The process that removes stream consumers when the query has stopped cannot do its work: "
        f"{reason}. Mend that, or set kinesis.stream.efo.deregister = never and remove consumers "
        "yourself."
    )
