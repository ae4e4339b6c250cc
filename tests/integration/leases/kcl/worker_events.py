"""What workers of both makes tell a test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attrs import Factory, define, field, frozen

if TYPE_CHECKING:
    from threading import Condition

__all__ = ["WorkerEvent", "WorkerEvents"]


@frozen(kw_only=True)
class WorkerEvent:
    """What a record processor was told of a shard, or a record that was given to it.

    Attributes:
        event: ``record``, or the name of the KCL's method.
        sequence: the number of a record, or where ``initialized`` begins.
        at: when it was seen here, by the monotonic clock.
    """

    event: str
    shard: str = ""
    sequence: str = ""
    sub: int = 0
    key: str = ""
    data: bytes = b""
    gracefully: bool = False
    error: str = ""
    at: float = field(init=False, default=Factory(time.monotonic))

    @property
    def position(self) -> tuple[str, int]:
        return self.sequence, self.sub


@define
class WorkerEvents:
    """All that one worker tells, in order; ``changed`` is that of all workers of a test."""

    _changed: Condition
    events: list[WorkerEvent] = field(factory=list, init=False)

    def note(self, event: WorkerEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, event: str) -> list[WorkerEvent]:
        return [one for one in self.events if one.event == event]

    @property
    def records(self) -> list[WorkerEvent]:
        return self.of("record")
