"""Runs programs, looks at processes below a process, and waits for their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_GONE_WITHIN_SECONDS = 60.0


def run_python(*arguments: str, cwd: Path | None = None, **environ: str) -> str:
    """Run Python to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-20_000:]
    return done.stdout


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes below ``pid``."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command_line(process: psutil.Process) -> str:
    """Return what ``process`` runs, empty if it is gone."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def source_processes() -> list[psutil.Process]:
    """Return the processes that read, one per query, without the daemons that fork task workers."""
    return [
        process
        for process in descendants(os.getpid())
        if "python_streaming_source_runner" in command_line(process)
    ]


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(processes: Iterable[psutil.Process]) -> None:
    """Wait until none of ``processes`` runs any more; a zombie does not."""
    deadline = time.monotonic() + _GONE_WITHIN_SECONDS
    left = list(processes)
    while left:
        assert time.monotonic() < deadline, [command_line(one) for one in left]
        _, present = psutil.wait_procs(left, timeout=0.1)
        left = [one for one in present if not has_ended(one)]


class Program:
    """A program in a process group of its own, as a user's job would run, and what it says."""

    def __init__(self, *command: str, **settings: Any) -> None:
        self.process = subprocess.Popen(
            command,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            **settings,
        )
        self.lines: list[str] = []
        self._drain = threading.Thread(target=self._read_lines, daemon=True)
        self._drain.start()

    def _read_lines(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.lines.extend(stream)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        """The last of what it has written to standard error."""
        return "".join(self.lines[-200:])

    def kill(self) -> None:
        """SIGKILL everything at once: the program, the JVM and the Python workers.

        Only the guard of stream consumers, which is in a session of its own, ends by itself.
        """
        with suppress(ProcessLookupError):
            # It ends nothing that it has begun while its family is looked up.
            os.killpg(self.pid, signal.SIGSTOP)
        family = descendants(self.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        wait_until_gone(family)
        self._drain.join()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
