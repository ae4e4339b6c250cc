"""Recognises a position whose records are gone by answers that lead nowhere: no call, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from kinesis_publishers.model import RecordPage

__all__ = ["LagWatch"]

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
