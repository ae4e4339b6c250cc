"""What a position means that the service refuses: records that are gone, or clocks that differ."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kinesis_publishers.errors import PositionTrimmedError

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model import Shard, StartingPosition

__all__ = ["CLOCK_SKEW_RETRY_SECONDS", "may_be_ahead_of_service", "trimmed_error"]

# How far ahead an instant may be that is waited for.
_CLOCK_SKEW = timedelta(seconds=60)
#: How long to wait before a position that may be in the service's future is tried again.
CLOCK_SKEW_RETRY_SECONDS = 1.0


def may_be_ahead_of_service(position: StartingPosition, now: datetime) -> bool:
    """Say whether a refused position may only seem to lie in the future of the service.

    Its clock is known to a second only. An instant that is ahead of it is refused until its own
    clock has come there.
    """
    return position.timestamp is not None and abs(now - position.timestamp) < _CLOCK_SKEW


def trimmed_error(shard: Shard, position: StartingPosition, evidence: str) -> PositionTrimmedError:
    """Return the error that says that records after ``position`` have left the retention."""
    return PositionTrimmedError(
        f"{shard}: the position {position} is older than what the stream still holds: {evidence}."
    )
