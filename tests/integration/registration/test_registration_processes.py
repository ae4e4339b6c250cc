"""Many processes that register the same consumer at the same moment, and leave again."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from kinesis_publishers.testing.local_kinesis import Behaviour, Limits, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 6
_SCRIPT = Path(__file__).with_name("registering_processes.py")


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

    def leave(self) -> None:
        """Let all of them leave, and wait until they have ended."""
        self._leader.communicate()


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


def test_processes_at_once_make_one_consumer_and_remove_it_once(
    server: LocalKinesis, tmp_path: Path
) -> None:
    with registered(server, [tmp_path] * COUNT) as crowd:
        assert len(crowd.arns) == COUNT
        assert len(set(crowd.arns.values())) == 1
        assert server.consumers("orders") == {"billing": "ACTIVE"}
        # None is refused either: each waits for the one that registers it.
        assert [call.code for call in server.calls("RegisterStreamConsumer")] == [""]
        crowd.leave()
    assert [call.code for call in server.calls("DeregisterStreamConsumer")] == [""]
    assert server.consumers("orders") in ({}, {"billing": "DELETING"})
