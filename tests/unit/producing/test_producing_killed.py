"""What a killed process has put on disk is written by the next one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import BlockingProducer
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.events import SpoolFound
from kinesis_publishers.testing.local_kinesis import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers import Event
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_SCRIPT = Path(__file__).with_name("spilling_process.py")
_STREAM = "orders"


class Killed:
    """A process that puts records while the service is away."""

    def __init__(self, server: LocalKinesis, folder: Path, kind: str) -> None:
        self.server = server
        server.create_stream(_STREAM, 1)
        self.away = Fault("PutRecords", "reset", times=None)
        server.add_fault(self.away)
        self.options = {
            **server.properties(_STREAM),
            "kinesis.producer.spill.path": str(folder),
            "kinesis.producer.buffer.maxrecords": "1",
            "kinesis.producer.ordering": "key",
            "kinesis.producer.backoff.max": "50ms",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), json.dumps(self.options), "100000", kind],
            stdout=subprocess.PIPE,
            text=True,
        )

    def stored(self, count: int) -> int:
        """Wait until at least so many records are stored, and return how many are."""
        assert self.process.stdout is not None
        return next(number for line in self.process.stdout if (number := int(line) + 1) >= count)

    def kill(self) -> int:
        """Kill the process, and return how many further records it has stored."""
        self.process.kill()
        assert self.process.stdout is not None
        return sum(1 for _ in self.process.stdout)

    def restart(self) -> list[Event]:
        """Let another producer put what is there, and return its events."""
        events: list[Event] = []
        with BlockingProducer.from_properties(self.options, events=events.append):
            pass
        return events

    def data(self) -> list[bytes]:
        return [one.data for found in self.server.records(_STREAM).values() for one in found]


@pytest.fixture(params=["async", "blocking"])
def killed(
    local_kinesis: LocalKinesis, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Killed]:
    one = Killed(local_kinesis, tmp_path, request.param)
    yield one
    one.process.kill()
    one.process.communicate()


def test_each_record_on_disk_is_written_once_and_in_order(killed: Killed) -> None:
    stored = killed.stored(50)
    with pytest.raises(InvalidOptionError, match="another producer uses"):
        killed.restart()
    # One more may be stored of which the process has said nothing yet.
    stored += killed.kill()
    killed.server.clear_faults()
    events = killed.restart()
    data = killed.data()
    assert data[:stored] == [b"%d" % number for number in range(stored)]
    assert len(data) <= stored + 1
    assert [one.records for one in events if isinstance(one, SpoolFound)] == [len(data)]
    killed.restart()
    assert killed.data() == data


def test_what_is_written_twice_is_no_more_than_what_is_said_to_be(killed: Killed) -> None:
    stored = killed.stored(20)
    # Every second answer is lost: some records are written, and the process does not know.
    killed.server.clear_faults()
    killed.server.add_fault(Fault("PutRecords", "truncate", times=None, every=2))
    stored = killed.stored(stored + 20)
    stored += killed.kill()
    killed.server.clear_faults()
    before = Counter(killed.data())
    events = killed.restart()
    again = Counter(killed.data()) - before
    assert {b"%d" % number for number in range(stored)} <= set(before + again)
    found = sum(one.unknown for one in events if isinstance(one, SpoolFound))
    assert len(set(before) & set(again)) <= found
