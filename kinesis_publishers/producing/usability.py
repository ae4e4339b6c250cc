"""Where and until when an object of an event loop may be used."""

from __future__ import annotations

import asyncio

from kinesis_publishers.errors import ClosedError
from kinesis_publishers.event_loop import OwnProcess


class Usability:
    """Refuses calls before the opening, after the end, in other loops and in forked processes.

    Attributes:
        ended: why it cannot be used; empty while it can.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.ended = "was not opened: use it as `async with`"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = OwnProcess()

    def begin(self) -> asyncio.AbstractEventLoop:
        """Allow calls in the running event loop, which is returned."""
        self._loop, self.ended = asyncio.get_running_loop(), ""
        return self._loop

    @property
    def is_open(self) -> bool:
        """Whether it may be used in this process."""
        return not (self.ended or self.is_left)

    @property
    def is_left(self) -> bool:
        """Whether this process was forked off the one that may use it."""
        return self._process.is_left

    def check(self) -> None:
        """Raise ``ClosedError`` unless it may be used in this process."""
        if not self.is_open:
            self._process.check(self._what)
            raise ClosedError(f"{self._what} {self.ended}")

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return its event loop; raise ``ClosedError`` if it cannot be used in the running one."""
        self.check()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise ClosedError(
                f"{self._what} belongs to another event loop: open one in each, or a "
                "BlockingProducer for threads"
            )
        return loop
