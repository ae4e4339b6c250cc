"""Looks at the stream consumers of a local server, and at the guards that look after them."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from attrs import define, field

from tests.integration.spark.processes import command_line, descendants

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

CONSUMER_CALLS = (
    "RegisterStreamConsumer",
    "DescribeStreamConsumer",
    "ListStreamConsumers",
    "DeregisterStreamConsumer",
)
_DEADLINE_SECONDS = 90.0
_NUMBERS = itertools.count(1)


def eventually(
    condition: Callable[[], bool], what: str, *, seconds: float = _DEADLINE_SECONDS
) -> None:
    """Wait until other processes have made ``condition`` true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        time.sleep(0.05)


def guards_below(pid: int) -> list[psutil.Process]:
    """Return the guard processes that work for the process ``pid``."""
    return [
        process
        for process in descendants(pid)
        if "-m kinesis_publishers.readers.guard" in command_line(process)
    ]


@define
class StreamConsumer:
    """A consumer on one stream.

    Attributes:
        name: of the consumer that a query registers; no two tests share one, so that none waits for
            the guard of another.
    """

    server: LocalKinesis
    stream: str
    name: str = field(factory=lambda: f"app-{next(_NUMBERS)}")

    @property
    def options(self) -> dict[str, str]:
        """The options of a query by enhanced fan-out."""
        return {
            "kinesis.stream.recordpublisher": "EFO",
            "kinesis.stream.efo.consumername": self.name,
        }

    @property
    def is_there(self) -> bool:
        return self.name in self.server.consumers(self.stream)

    def calls(self) -> dict[str, int]:
        """Return how often each operation on consumers was called."""
        return {operation: len(self.server.calls(operation)) for operation in CONSUMER_CALLS}

    def wait_until_gone(self) -> None:
        eventually(lambda: not self.is_there, f"the removal of {self.name} on {self.stream}")
