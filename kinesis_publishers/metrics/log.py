"""Diagnostic events in the log, one line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kinesis_publishers.abc import EventReporter
from kinesis_publishers.events import log_event

if TYPE_CHECKING:
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.config import Properties
    from kinesis_publishers.events import Event

__all__ = ["EventLog"]


class EventLog(EventReporter):
    """Selected by ``metrics.sinks = log``, the default: :func:`log_event` for every event."""

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls()

    def __call__(self, event: Event) -> None:
        log_event(event)
