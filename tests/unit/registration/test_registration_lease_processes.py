"""Leases between processes, some of which are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_SCRIPT = Path(__file__).with_name("lease_process.py")


class Start(Protocol):
    """Starts ``lease_process.py``."""

    def __call__(self, mode: str, seed: str = "0") -> subprocess.Popen[str]: ...


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return what the processes write to."""
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def start(log: Path) -> Iterator[Start]:
    """Return what starts a process; all of them are gone at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(mode: str, seed: str = "0") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), mode, str(log), seed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def held(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def actions(log: Path) -> list[str]:
    return [line.partition(" ")[0] for line in log.read_text().splitlines()]


def test_a_process_that_was_forked_off_does_not_keep_the_lease(start: Start, log: Path) -> None:
    creator = held(start("fork"))
    creator.send_signal(signal.SIGKILL)
    creator.wait()
    held(start("hold")).communicate()
    assert actions(log) == ["create", "remove"]


def test_in_any_order_each_consumer_is_removed_once_and_never_while_it_is_used(
    start: Start, log: Path, runtime_directory: Path, chance: Random
) -> None:
    seed = chance.randrange(10**6)
    for process in [start("compete", f"{seed}-{number}") for number in range(3)]:
        process.communicate()
    held(start("hold")).communicate()
    assert list(runtime_directory.glob("*/*")) == []
    lines = log.read_text().splitlines()
    assert lines
    assert len(lines) == len(set(lines))
    for created, removed in zip(lines[::2], lines[1::2], strict=True):
        assert created.startswith("create ")
        assert removed == created.replace("create", "remove")
