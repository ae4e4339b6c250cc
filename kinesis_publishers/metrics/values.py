"""What events measure, for more than one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_publishers.events import EventReceived, RecordsFetched

__all__ = ["bytes_of", "lag_of", "minus_one", "one", "records_of", "seconds_of", "zero"]


def one(_: Any) -> float:
    """Count an event."""
    return 1


def minus_one(_: Any) -> float:
    """Take back what another event has counted."""
    return -1


def zero(_: Any) -> float:
    """Lower a mean: something was tried and has failed."""
    return 0


def lag_of(event: RecordsFetched | EventReceived) -> float | None:
    """Return how far an answer was behind the tip, in milliseconds."""
    return event.millis_behind_latest


def records_of(event: Any) -> float:
    """Return how many records an event is about."""
    return float(event.records)


def bytes_of(event: Any) -> float:
    """Return how large the payloads are that an event is about."""
    return float(event.payload_bytes)


def seconds_of(event: Any) -> float:
    """Return how long the thing took that an event is about."""
    return float(event.seconds)
