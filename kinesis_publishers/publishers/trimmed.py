"""Recognises a position whose records are gone by answers that lead nowhere: no call, no clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from attrs import define

from kinesis_publishers.errors import PositionTrimmedError

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model import RecordPage, Shard, StartingPosition

__all__ = ["CLOCK_SKEW_RETRY_SECONDS", "LagWatch", "may_be_ahead_of_service", "trimmed_error"]

_STUCK_ANSWERS = 10
_STUCK_LAG_MILLIS = 23 * 3600 * 1000
# A lag that is stuck still jitters: it may go down a little between two answers.
_JITTER_MILLIS = 1000


@define(eq=False)
class LagWatch:
    """Counts empty answers in a row whose lag is stuck at the retention.

    From a trimmed sequence number the service may answer nothing for ever, its lag stuck at the
    retention, which is 24 hours at least. Answers may be empty with data ahead as well, but then
    the lag shrinks.

    Attributes:
        stuck_answers: how many answers have followed the first empty one without its lag shrinking.
    """

    stuck_answers: int = 0
    _first_lag_millis: int | None = None
    _last_lag_millis: int | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether the answers show that reading leads nowhere."""
        return self.stuck_answers >= _STUCK_ANSWERS

    def describe(self) -> str:
        """Say in words what the answers show."""
        return (
            f"{self.stuck_answers} answers were empty with the lag stuck at "
            f"{self._last_lag_millis} ms"
        )

    def observe(self, page: RecordPage, *, has_ended: bool) -> None:
        """Take an answer into account; ``has_ended`` says that it is the last one of the shard."""
        lag, first = page.millis_behind_latest, self._first_lag_millis
        self._last_lag_millis = lag
        leads_on = bool(page.payloads) or has_ended
        if leads_on or lag is None or lag <= _STUCK_LAG_MILLIS:
            self.stuck_answers, self._first_lag_millis = 0, None
        elif first is None or first - lag > _JITTER_MILLIS:
            self.stuck_answers, self._first_lag_millis = 0, lag
        else:
            self.stuck_answers += 1


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
