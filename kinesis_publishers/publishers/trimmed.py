"""Recognises a trimmed position by its answers; makes no call and reads no clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import define, field

from kinesis_publishers.errors import InvalidArgumentError, PositionTrimmedError
from kinesis_publishers.model import RecordPage, Shard, StartingPosition

_STUCK_ANSWERS = 10
_STUCK_LAG_MILLIS = 23 * 3600 * 1000
# A stuck lag jitters: it may fall a little between two answers.
_JITTER_MILLIS = 1000


@define(eq=False)
class LagWatch:
    """Counts consecutive empty answers whose lag is stuck at the retention.

    From a trimmed sequence number the service may return empty answers forever, with a lag that
    stays at the retention, at least 24 hours. If data is ahead of empty answers, their lag shrinks.
    """

    _shard: Shard
    # The answers since the first empty one; the lag has not shrunk.
    _stuck_answers: int = field(default=0, init=False)
    _first_lag_millis: int | None = field(default=None, init=False)

    def check(self, page: RecordPage, position: StartingPosition, *, has_ended: bool) -> None:
        """Raise ``PositionTrimmedError`` if answers from ``position`` show that it is trimmed."""
        # Only a sequence number can be trimmed.
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


# How far ahead an instant may be to be waited for, and the time between two attempts.
_CLOCK_SKEW = timedelta(seconds=60)
_CLOCK_SKEW_RETRY_SECONDS = 1.0


def delay_after_refusal(
    error: InvalidArgumentError, shard: Shard, position: StartingPosition, now: datetime
) -> float:
    """Return the seconds to wait before a refused position is tried again.

    The service refuses an instant in its future. Its clock is known only to the second, so a pinned
    position may lie slightly ahead of it.

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
