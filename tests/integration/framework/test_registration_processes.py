"""Many processes that register the same consumer at the same moment, and leave again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from attrs import frozen

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPT = Path(__file__).with_name("registering_processes.py")


@pytest.fixture(params=[6, pytest.param(20, marks=pytest.mark.soak)])
def count(request: pytest.FixtureRequest) -> int:
    """How many processes there are."""
    number: int = request.param
    return number


@pytest.fixture
def server() -> Iterator[LocalKinesis]:
    behaviour = Behaviour(consumer_creating_seconds=1.0, consumer_deleting_seconds=0.5)
    with LocalKinesis.in_thread(Limits.aws(control_plane=True), behaviour=behaviour) as server:
        server.create_stream("orders", 1)
        yield server


@frozen(kw_only=True)
class Crowd:
    """Processes that have the consumer.

    Attributes:
        arns: what each got, by its process id.
    """

    arns: dict[int, str]
    _leader: subprocess.Popen[str]

    def kill(self, count: int) -> None:
        """Kill some of them, and wait until they are dead."""
        killed = [psutil.Process(process_id) for process_id in list(self.arns)[:count]]
        for process in killed:
            process.kill()
        deadline = time.monotonic() + 30
        while not all(has_ended(process) for process in killed):
            assert time.monotonic() < deadline, "a killed process lives on"

    def leave(self) -> None:
        """Let all of them leave, and wait until they have ended."""
        self._leader.communicate()


def has_ended(process: psutil.Process) -> bool:
    """Return whether nothing of a killed process runs; its parent has not collected it."""
    # Its first thread is a zombie before the others have ended, with which its locks go.
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return process.status() == psutil.STATUS_ZOMBIE and len(list(threads)) == 1


@contextmanager
def registered(server: LocalKinesis, runtimes: list[Path]) -> Iterator[Crowd]:
    """Run a process in each runtime directory, as soon as all of them have the consumer."""
    properties = server.properties("orders") | {
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.consumername": "billing",
    }
    arguments = [json.dumps(properties), json.dumps([str(one) for one in runtimes])]
    leader = subprocess.Popen(
        [sys.executable, str(_SCRIPT), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert leader.stdout is not None
        lines = [leader.stdout.readline().split() for _ in runtimes]
        yield Crowd(arns={int(line[0]): line[1] for line in lines}, leader=leader)
    finally:
        leader.communicate()


def outcomes(server: LocalKinesis, operation: str, *, also_refused: bool) -> list[str]:
    """Return the error code of each call, which is empty if it has succeeded."""
    codes = [call.code or "" for call in server.calls(operation)]
    return [code for code in codes if also_refused or not code]


@pytest.mark.parametrize("is_one_machine", [True, False], ids=["on one machine", "on as many"])
def test_processes_at_once_make_one_consumer_and_remove_it_once(
    server: LocalKinesis, tmp_path: Path, count: int, *, is_one_machine: bool
) -> None:
    runtimes = [tmp_path if is_one_machine else tmp_path / str(number) for number in range(count)]
    for runtime in runtimes:
        runtime.mkdir(exist_ok=True)
    with registered(server, runtimes) as crowd:
        assert len(crowd.arns) == count
        assert len(set(crowd.arns.values())) == 1
        assert server.consumers("orders") == {"billing": "ACTIVE"}
        # Other machines do not know who registers it: their calls are refused.
        assert outcomes(server, "RegisterStreamConsumer", also_refused=is_one_machine) == [""]
        crowd.leave()
    assert outcomes(server, "DeregisterStreamConsumer", also_refused=is_one_machine) == [""]
    assert server.consumers("orders") in ({}, {"billing": "DELETING"})


def test_the_last_one_removes_the_consumer_although_others_were_killed(
    server: LocalKinesis, tmp_path: Path, count: int
) -> None:
    with registered(server, [tmp_path] * count) as crowd:
        crowd.kill(count - 1)
        assert server.consumers("orders") == {"billing": "ACTIVE"}
        crowd.leave()
    assert len(server.calls("DeregisterStreamConsumer")) == 1
