"""Recognises a position whose records are gone by answers that lead nowhere: no call, no clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import define, field

from kinesis_publishers.errors import InvalidArgumentError, PositionTrimmedError
from kinesis_publishers.model import RecordPage, Shard, StartingPosition

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
    """

    _shard: Shard
    # How many answers have followed the first empty one without its lag shrinking.
    _stuck_answers: int = field(default=0, init=False)
    _first_lag_millis: int | None = field(default=None, init=False)

    def check(self, page: RecordPage, position: StartingPosition, *, has_ended: bool) -> None:
        """Take the answer of a read from ``position`` into account.

        Args:
            has_ended: whether it is the last answer of the shard.

        Raises:
            PositionTrimmedError: the answers show that reading leads nowhere.
        """
        # Without a sequence number there is nothing that could have been trimmed.
        if position.sequence_number is None:
            return
        lag, first = page.millis_behind_latest, self._first_lag_millis
        leads_on = bool(page.payloads) or has_ended
        if leads_on or lag is None or lag <= _STUCK_LAG_MILLIS:
            self._stuck_answers, self._first_lag_millis = 0, None
        elif first is None or first - lag > _JITTER_MILLIS:
            self._stuck_answers, self._first_lag_millis = 0, lag
        else:
            self._stuck_answers += 1
        if self._stuck_answers >= _STUCK_ANSWERS:
            evidence = f"{self._stuck_answers} answers were empty with the lag stuck at {lag} ms"
            raise _trimmed(self._shard, position, evidence)


# How far ahead an instant may be that is waited for, and how long until it is tried again.
_CLOCK_SKEW = timedelta(seconds=60)
_CLOCK_SKEW_RETRY_SECONDS = 1.0


def delay_after_refusal(
    error: InvalidArgumentError, shard: Shard, position: StartingPosition, now: datetime
) -> float:
    """Return the seconds until a position that the service has refused is tried again.

    Its clock is known to a second only: a position may merely seem to lie in its future. An instant
    that is ahead of it is refused until its own clock has come there.

    Raises:
        PositionTrimmedError: the service does not know the sequence number.
        InvalidArgumentError: ``error``, for any other instant.
    """
    if position.sequence_number is not None:
        evidence = f"the service does not know the sequence number ({error})"
        raise _trimmed(shard, position, evidence) from error
    if position.timestamp is None or abs(now - position.timestamp) >= _CLOCK_SKEW:
        raise error
    return _CLOCK_SKEW_RETRY_SECONDS


def _trimmed(shard: Shard, position: StartingPosition, evidence: str) -> PositionTrimmedError:
    return PositionTrimmedError(
        f"{shard}: the position {position} is older than what the stream still holds: {evidence}."
    )
