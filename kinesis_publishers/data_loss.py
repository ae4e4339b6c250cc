"""Decides whether records that should have been read are gone, and what follows from it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kinesis_publishers.errors import DataLossError, PositionTrimmedError
from kinesis_publishers.events import DataLossTolerated, EventSink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers.model import SequenceNumber, Shard, ShardKey, ShardProgress

__all__ = ["DataLossGuard", "is_beyond_retention"]

# The service's clock is compared with this machine's; and who begins at TRIM_HORIZON reads records
# that are just leaving the retention: the first page is beyond it when the second one comes.
_SLACK = timedelta(minutes=5)

_REMEDY = (
    "To go on with what is left, set kinesis.failondataloss = false; to begin anew, remove the "
    "checkpoint or choose another initial position."
)


def is_beyond_retention(progress: ShardProgress, now: datetime, retention_seconds: float) -> bool:
    """Say whether unread records may have been removed.

    Everything up to ``progress.as_of`` has been read. Records that came later are still there as
    long as that instant lies within the retention: a shard that is merely idle, however long, has
    lost nothing as long as somebody looked. Five minutes are allowed for clocks that differ.
    """
    if progress.is_ended or progress.as_of is None:
        return False
    return progress.as_of < now - timedelta(seconds=retention_seconds) - _SLACK


class DataLossGuard:
    """Finds data loss and raises or reports it, as ``kinesis.failondataloss`` says.

    Args:
        fail: raise (the default of the option), or report an event and go on.
        events: where tolerated loss is reported.
        retention_seconds: asks the service how long a stream (by ARN) keeps its records.
    """

    def __init__(
        self,
        *,
        fail: bool,
        events: EventSink,
        retention_seconds: Callable[[str], Awaitable[float]],
    ) -> None:
        self._fail = fail
        self._events = events
        self._ask_retention_seconds = retention_seconds
        self._retention_seconds: dict[str, float] = {}
        # Where shards stood when a loss was tolerated: it is reported once while they stand there.
        self._tolerated: dict[ShardKey, datetime] = {}

    def note_retention(self, stream_arn: str, seconds: float) -> None:
        """Learn how long a stream keeps its records, so that nobody has to ask while that holds."""
        self._retention_seconds[stream_arn] = seconds

    async def check_retention(self, shard: Shard, progress: ShardProgress, now: datetime) -> None:
        """Report a loss if ``progress`` is so old that unread records may be gone by ``now``.

        Raises:
            PositionTrimmedError: they may, and loss is not tolerated.
        """
        if progress.as_of is None or progress.is_ended:
            return
        if self._tolerated.get(shard.key) == progress.as_of:
            return
        if not await self.may_have_lost(shard, progress, now):
            return
        hours = self._retention_seconds[shard.stream_arn] / 3600
        self.report(
            shard.key,
            f"everything up to {progress.as_of.isoformat()} has been read ({progress.position}), "
            f"but the stream keeps records for {hours:g} hours only: records that came after that "
            "may have been removed unread.",
        )
        self._tolerated[shard.key] = progress.as_of

    async def may_have_lost(self, shard: Shard, progress: ShardProgress, now: datetime) -> bool:
        """Say whether records after ``progress`` may be gone; ask the service if in doubt."""
        arn = shard.stream_arn
        known = self._retention_seconds.get(arn)
        if known is not None and not is_beyond_retention(progress, now, known):
            return False
        # Somebody may have lengthened the retention since it was last asked for.
        current = self._retention_seconds[arn] = await self._ask_retention_seconds(arn)
        return is_beyond_retention(progress, now, current)

    async def report_trimmed(
        self, shard: Shard, progress: ShardProgress, now: datetime, *, cause: Exception
    ) -> None:
        """Report that the service does not have the place any more where reading goes on.

        It is no loss where nothing that came after it can have been removed.
        """
        if progress.as_of is not None and not await self.may_have_lost(shard, progress, now):
            return
        self.report(
            shard.key,
            f"the place where reading goes on, {progress.position}, is not available any more.",
            cause=cause,
        )

    def report_unread(self, shard: ShardKey, progress: ShardProgress, *, cause: Exception) -> None:
        """Report that a shard has left the retention before its end was read."""
        self.report(
            shard,
            f"the shard was not read to its end (only to {progress.position}) and has left the "
            "retention: the stream does not list it any more.",
            cause=cause,
        )

    def check_first(self, shard: ShardKey, asked: SequenceNumber, first: SequenceNumber) -> None:
        """Report a loss if ``first`` came where reading was to begin with the record ``asked``."""
        if first != asked:
            self.report(
                shard,
                f"record {asked} is gone; the next one that the stream still holds is {first}.",
            )

    def report(
        self,
        shard: ShardKey,
        message: str,
        *,
        kind: type[DataLossError] = PositionTrimmedError,
        cause: Exception | None = None,
    ) -> None:
        """Raise ``kind``, or report that reading goes on without the lost records.

        Args:
            shard: where the records are missing.
            message: what is missing, with positions.
            kind: the error to raise.
            cause: what showed the loss.
        """
        text = f"{shard}: {message}"
        if self._fail:
            raise kind(f"{text} {_REMEDY}") from cause
        self._events(DataLossTolerated(shard=shard, message=text))
