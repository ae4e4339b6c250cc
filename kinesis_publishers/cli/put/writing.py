"""Writes records in calls of many, repeats what was refused, and counts what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kinesis_publishers.errors import KinesisPublishersError, RecordsNotWrittenError, ServiceError
from kinesis_publishers.retry import RetryBudget, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_publishers.aws import Boto3RecordWriter, PutResult
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import UserRecord

__all__ = ["OnWritten", "PutSession", "put_policy"]

OnWritten: TypeAlias = "Callable[[int, UserRecord, PutResult], None]"
"""Is told the number, counted from 1, the record, and where it is."""

_BASE_SECONDS: Final = 0.1
_MAX_SECONDS: Final = 5.0
_ADVICE: Final = "Raise --retries if the service is expected to recover."


def put_policy(max_retries: int) -> RetryPolicy:
    """Return how a call, and what a call has refused, is repeated."""
    return RetryPolicy(
        max_retries=max_retries, base_seconds=_BASE_SECONDS, max_seconds=_MAX_SECONDS, exponent=2.0
    )


class PutSession:
    """Writes to one stream, one call at a time.

    What a call refuses is written before anything that comes after that call, so that two records
    of one partition key can change places only if one call had both.

    Args:
        writer: makes the calls.
        stream: a name or an ARN.
        policy: how often a call is repeated that writes nothing.
        clock: what delays are slept on.
        on_written: is told of each record as soon as it is written.

    Attributes:
        written: how many records were written.
    """

    def __init__(
        self,
        writer: Boto3RecordWriter,
        stream: str,
        policy: RetryPolicy,
        clock: Clock,
        on_written: OnWritten,
    ) -> None:
        self._writer = writer
        self._stream = stream
        self._policy = policy
        self._clock = clock
        self._on_written = on_written
        self._sent = 0
        self.written = 0

    async def write(self, batch: Sequence[UserRecord]) -> None:
        """Write all of ``batch``, as much as one call takes.

        Raises:
            RecordsNotWrittenError: some were not, and why.
        """
        left = list(enumerate(batch, start=self._sent + 1))
        self._sent += len(batch)
        budget = RetryBudget(self._policy, self._clock, advice=_ADVICE)
        while left:
            refused, reason = await self._attempt(left)
            if len(refused) < len(left):
                # A shard that throttles takes a part each time: who gets on has all retries again.
                budget.reset()
            left = refused
            if reason is not None:
                await self._clock.sleep(self._delay_after(reason, left, budget))

    def _delay_after(
        self, reason: ServiceError, left: Sequence[tuple[int, UserRecord]], budget: RetryBudget
    ) -> float:
        try:
            return budget.delay_after(reason)
        except KinesisPublishersError as error:
            raise RecordsNotWrittenError(
                f"{len(left):,} of the {self._sent:,} records that were sent to {self._stream} "
                f"were not written, or not for certain; the first is number {left[0][0]:,}. What "
                f"comes after number {self._sent:,} was not sent. {error}"
            ) from error

    async def _attempt(
        self, numbered: list[tuple[int, UserRecord]]
    ) -> tuple[list[tuple[int, UserRecord]], ServiceError | None]:
        """Make one call; return what it has not written, and why."""
        try:
            results = await self._writer.put_records(self._stream, [entry for _, entry in numbered])
        except ServiceError as error:
            return numbered, error
        refused, reasons = [], []
        for (number, entry), result in zip(numbered, results, strict=True):
            if isinstance(result, ServiceError):
                refused.append((number, entry))
                reasons.append(result)
            else:
                self.written += 1
                self._on_written(number, entry, result)
        # One that repeating does not mend counts more than any number of throttles.
        reasons.sort(key=lambda reason: reason.retryable)
        return refused, next(iter(reasons), None)
