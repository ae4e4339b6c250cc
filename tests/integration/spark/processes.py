"""Looks at processes through /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

_GONE_WITHIN_SECONDS = 10.0


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below ``pid``."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    pending = [pid]
    while pending:
        children = parents.get(pending.pop(), [])
        found.extend(children)
        pending.extend(children)
    return found


def is_running(pid: int) -> bool:
    """Say whether ``pid`` is alive; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_line(pid: int) -> str:
    """Return what ``pid`` runs, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def wait_until_gone(pids: list[int]) -> None:
    """Wait until none of ``pids`` runs any more; fail after ten seconds."""
    deadline = time.monotonic() + _GONE_WITHIN_SECONDS
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, [(pid, command_line(pid)) for pid in left]
        os.sched_yield()
