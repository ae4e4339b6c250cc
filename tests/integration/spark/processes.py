"""Looks at processes below a process, and waits for their end."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

_GONE_WITHIN_SECONDS = 60.0


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
