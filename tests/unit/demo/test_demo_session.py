"""The end of the processes that Spark leaves behind."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

from kinesis_publishers_spark.demo.session import end_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
"""
_STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
signal.pause()
"""


@contextmanager
def grandchild(code: str) -> Iterator[psutil.Process]:
    """Run ``code`` below a process that does not collect it when it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        try:
            yield process
        finally:
            if process.is_running():
                process.kill()
            parent.kill()


@pytest.mark.parametrize("patience_seconds", [0.0, 3600.0])
def test_what_has_ended_is_not_waited_for_although_it_is_not_reaped(
    patience_seconds: float,
) -> None:
    with grandchild("print()") as process:
        end_processes([process], patience_seconds=patience_seconds)
        assert process.status() == psutil.STATUS_ZOMBIE


def test_what_does_not_end_in_time_is_killed() -> None:
    with grandchild(_STUBBORN) as process:
        process.terminate()
        end_processes([process], patience_seconds=0.2)
        assert process.status() == psutil.STATUS_ZOMBIE


def test_there_may_be_nothing_to_end() -> None:
    end_processes([], patience_seconds=3600.0)
