"""What one run of a publisher can end with."""

from __future__ import annotations

from enum import Enum

__all__ = ["RunResult"]


class RunResult(Enum):
    """The result of one ``RecordPublisher.run`` (FLIP-128)."""

    COMPLETE = "COMPLETE"
    """The shard has ended and everything in it was delivered: no more records, ever."""

    INCOMPLETE = "INCOMPLETE"
    """There may be more: call ``run`` again."""

    CANCELLED = "CANCELLED"
    """The publisher was told to stop."""
