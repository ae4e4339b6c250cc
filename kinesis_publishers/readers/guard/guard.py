"""The reader's side: starts the guard process, which acts when the pipe to it ends."""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Self

from attrs import define, field

from kinesis_publishers.assembly import publisher_factory_class
from kinesis_publishers.config import (
    DeregistrationPolicy,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
)
from kinesis_publishers.errors import ConsumerGuardError

_LOGGER = logging.getLogger(__name__)

_MODULE = "kinesis_publishers.readers.guard"
# Starting an interpreter takes a second; a machine that is short of everything takes many.
_START_SECONDS = 60.0
# A query that restarts at once, as after an error, takes its own lease within this time: it finds
# its consumer registered, and its subscriptions do not wait for a new one.
_LINGER_SECONDS = 5.0
# A machine without memory may end guard processes again and again.
_RESTART_PERIOD_SECONDS = 60.0


@define(eq=False)
class ConsumerGuard:
    """Removes stream consumers once this process has ended, however it ends.

    Constructing one starts nothing. A guard process that ends too early is replaced, at most once
    per ``restart_period_seconds``. The consumers stay for ``linger_seconds`` after the end of this
    process, for a successor.
    """

    _properties: Properties
    _linger_seconds: float = field(default=_LINGER_SECONDS, kw_only=True)
    _restart_period_seconds: float = field(default=_RESTART_PERIOD_SECONDS, kw_only=True)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _request: bytes | None = field(default=None, init=False)
    # A watching thread replaces the process while others hold or close it.
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _is_released: threading.Event = field(factory=threading.Event, init=False)

    @classmethod
    def for_properties(cls, properties: Properties) -> Self | None:
        """Return a guard if reading can leave a consumer behind, else ``None``."""
        if not publisher_factory_class(properties).needs_registration:
            return None
        config = RegistrationConfig.from_properties(properties)
        if (
            config.strategy is RegistrationStrategy.NONE
            or config.deregister is DeregistrationPolicy.NEVER
        ):
            return None
        # Checked here: the guard process would say it in a traceback.
        config.required_name()
        return cls(properties)

    def hold(self, stream_arns: Iterable[str]) -> None:
        """Return when the guard process holds a lease on the consumer of each stream.

        Call it before the consumers are used. Repeating it is cheap.

        Raises:
            ConsumerGuardError: it cannot be started, or not within a minute or so.
        """
        values = self._properties.to_dict(), sorted(stream_arns), self._linger_seconds
        # It holds credentials, and so goes through a pipe.
        request = json.dumps(values).encode() + b"\n"
        with self._lock:
            process = self._process
            if process is not None and process.poll() is None and self._request == request:
                return
            self._let_go()
            self._request, self._process = request, self._start(request)
            self._is_released = threading.Event()
            threading.Thread(
                target=self._watch,
                args=(self._process, request, self._is_released),
                name="consumer-guard-watch",
                daemon=True,
            ).start()

    def _watch(
        self, process: subprocess.Popen[bytes], request: bytes, is_released: threading.Event
    ) -> None:
        """Collect the guard process when it ends, and replace it until it is released."""
        while True:
            status = process.wait()
            with self._lock:
                if is_released.is_set():
                    return
                _LOGGER.warning(
                    "The guard, a process that removes stream consumers once this one has ended, "
                    "ended too early (exit status %d): starting another.",
                    status,
                )
                _close_pipes(process)
                self._process = None
                try:
                    process = self._process = self._start(request)
                except ConsumerGuardError as error:
                    _LOGGER.error("%s", error)
                    return
            is_released.wait(self._restart_period_seconds)

    def _start(self, request: bytes) -> subprocess.Popen[bytes]:
        process = self._spawn()
        _RUNNING.add(process)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # One that has ended already does not read, which shows in what it does not say.
            with suppress(BrokenPipeError):
                process.stdin.write(request)
            self._wait_until_ready(process.stdout)
        except BaseException:
            process.kill()
            _close_pipes(process)
            process.wait()
            raise
        # Nothing more is said: only the pipe to it stays, whose end is the signal.
        process.stdout.close()
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        if getattr(sys, "frozen", False):
            # It would start the whole program again, and that one a guard of its own.
            raise _error(f"{sys.executable!r} is a frozen program and no Python interpreter")
        try:
            return subprocess.Popen(
                # Its path is that of this process, nothing more.
                [sys.executable, "-P", "-m", _MODULE],
                # A buffer has a lock, which a forked process would inherit as it is.
                bufsize=0,
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
        config = RegistrationConfig.from_properties(self._properties)
        patience = _START_SECONDS + 2 * config.deregister_timeout_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(patience):
                raise _error(f"it was not ready within {patience:.0f} s")
        # It is written at once, and so comes whole.
        if os.read(pipe.fileno(), len(READY)) != READY:
            raise _error("it ended at once; what it wrote to standard error says why")

    def close(self) -> None:
        """Leave the consumers to the guard process, as the end of this process does."""
        with self._lock:
            self._let_go()

    def dismiss(self) -> None:
        """End the guard process: this process removes what it has registered itself."""
        with self._lock:
            if self._process is not None:
                # The kernel drops its leases with it.
                self._process.kill()
                self._process.wait()
            self._let_go()

    def _let_go(self) -> None:
        process, self._process = self._process, None
        self._is_released.set()
        if process is not None:
            _close_pipes(process)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _close_inherited() -> None:
    # A forked process has the same pipe, which must end with its parent.
    for process in list(_RUNNING):
        _close_pipes(process)


_RUNNING: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_close_inherited)


def _error(reason: str) -> ConsumerGuardError:
    return ConsumerGuardError(
        "The guard, a process that removes stream consumers once this one has ended, does not "
        f"work: {reason}. Correct that, or set kinesis.stream.efo.deregister = never and remove "
        "the consumers yourself."
    )


#: The guard sends this once it holds its leases.
READY = b"ready\n"
