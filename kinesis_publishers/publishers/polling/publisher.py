"""Reads a shard with GetRecords."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from kinesis_publishers.abc.record_publisher import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.errors import (
    InvalidArgumentError,
    IteratorExpiredError,
    PositionTrimmedError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.events import IteratorReplaced, RecordsFetched, Throttled
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    RecordPage,
    RunResult,
    Shard,
    StartingPosition,
    continue_from,
)
from kinesis_publishers.publishers.polling.pacing import (
    adapted_limit,
    delay_before_next_call,
    expected_page,
)
from kinesis_publishers.retry import RetryPolicy, call_with_retries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesis_publishers.abc.record_publisher_factory import PublisherContext
    from kinesis_publishers.config.polling import PollingConfig

__all__ = ["PollingRecordPublisher"]

_T = TypeVar("_T")

# How far this machine's clock may be ahead of the service's.
_CLOCK_SKEW = timedelta(seconds=60)
_CLOCK_SKEW_POLL_SECONDS = 1.0

# After AFTER_SEQUENCE_NUMBER with a trimmed number GetRecords may answer nothing for ever, its lag
# stuck at the retention, which is 24 hours at least. Answers may be empty with data ahead as well,
# but then the lag shrinks from call to call.
_STUCK_ANSWERS = 10
_STUCK_LAG_MILLIS = 23 * 3600 * 1000


class PollingRecordPublisher(RecordPublisher):
    """Publishes the records of one shard by polling; one :meth:`run` is one GetRecords.

    Args:
        shard: what to read.
        starting_position: where to begin; not LATEST.
        config: limits, period and retry policies.
        context: client, clock and event sink.
    """

    def __init__(
        self,
        shard: Shard,
        starting_position: StartingPosition,
        config: PollingConfig,
        context: PublisherContext,
    ) -> None:
        if starting_position.type is PositionType.LATEST:
            raise ValueError("LATEST must be pinned to an instant before it is read from")
        self._shard = shard
        self._position = starting_position
        self._config = config
        self._context = context
        self._limit = config.max_records
        self._iterator: str | None = None
        self._last_call: float | None = None
        self._last_size: tuple[int | None, int | None] = (None, None)
        self._last_lag: int | None = None
        self._stuck_answers = 0

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        # The pause comes first: room that is held while waiting is missing to the other shards.
        await self._keep_pace()
        await consumer.wait_for_space(*expected_page(*self._last_size, self._limit))
        loop_seconds = self._seconds_since_last_call()
        requested_at = self._context.clock.now()
        page = await self._get_records()
        self._check_progress(page)
        batch = RecordBatch.from_page(page, shard=self._shard, requested_at=requested_at)
        self._last_size = len(batch), batch.payload_bytes
        self._context.events(
            RecordsFetched(
                shard=self._shard.key,
                records=len(batch),
                payload_bytes=batch.payload_bytes,
                millis_behind_latest=page.millis_behind_latest,
                limit=self._limit,
                loop_seconds=loop_seconds,
            )
        )
        if self._config.adaptive_reads and loop_seconds is not None:
            self._limit = adapted_limit(
                self._limit,
                records=len(batch),
                payload_bytes=batch.payload_bytes,
                loop_seconds=loop_seconds,
                maximum=self._config.max_records,
            )
        processed = await consumer(batch)
        # An empty answer must not lead from TRIM_HORIZON back to a position that is trimmed.
        if len(batch):
            self._position = continue_from(self._position, processed)
        self._iterator = page.next_shard_iterator
        return RunResult.INCOMPLETE if page.next_shard_iterator else RunResult.COMPLETE

    async def _keep_pace(self) -> None:
        """Wait for the next call's turn."""
        elapsed = self._seconds_since_last_call()
        if elapsed is None:
            return
        delay = delay_before_next_call(self._config.interval_seconds, elapsed)
        if delay > 0:
            await self._context.clock.sleep(delay)

    def _seconds_since_last_call(self) -> float | None:
        previous = self._last_call
        return None if previous is None else self._context.clock.monotonic() - previous

    async def _get_records(self) -> RecordPage:
        async def attempt() -> RecordPage:
            if self._iterator is None:
                self._iterator = await self._get_shard_iterator()
            # Every call counts against the shard's five a second, a repeated one too.
            await self._keep_pace()
            self._last_call = self._context.clock.monotonic()
            plane = self._context.data_plane
            return await plane.get_records(self._shard, self._iterator, self._limit)

        while True:
            try:
                return await self._with_retries(attempt, self._config.get_records_retry)
            except IteratorExpiredError:
                self._iterator = None
                self._context.events(
                    IteratorReplaced(shard=self._shard.key, position=self._position)
                )

    async def _get_shard_iterator(self) -> str:
        async def attempt() -> str:
            plane = self._context.data_plane
            return await plane.get_shard_iterator(self._shard, self._position)

        while True:
            try:
                return await self._with_retries(attempt, self._config.get_iterator_retry)
            except InvalidArgumentError as error:
                if self._position.sequence_number is not None:
                    raise self._trimmed(
                        f"the service does not know the sequence number ({error})"
                    ) from error
                if not self._may_be_ahead_of_service():
                    raise
            await self._context.clock.sleep(_CLOCK_SKEW_POLL_SECONDS)

    def _may_be_ahead_of_service(self) -> bool:
        """Say whether the position may only seem to lie in the future of the service.

        LATEST is pinned by this machine's clock. If that is ahead, the service refuses the instant
        until its own clock has come to it.
        """
        instant = self._position.timestamp
        return instant is not None and abs(self._context.clock.now() - instant) < _CLOCK_SKEW

    async def _with_retries(self, attempt: Callable[[], Awaitable[_T]], policy: RetryPolicy) -> _T:
        return await call_with_retries(
            attempt, policy=policy, clock=self._context.clock, is_endless=self._is_throttle
        )

    def _is_throttle(self, error: ServiceError) -> bool:
        # The quota is shared with every other reader of the shard: being refused says "later", and
        # however often it is said, it is no failure.
        if not isinstance(error, ThroughputExceededError):
            return False
        self._context.events(Throttled(shard=self._shard.key, operation=error.operation))
        return True

    def _check_progress(self, page: RecordPage) -> None:
        lag, last_lag = page.millis_behind_latest, self._last_lag
        self._last_lag = lag
        is_stuck = (
            self._position.type is PositionType.AFTER_SEQUENCE_NUMBER
            and not page.payloads
            and page.next_shard_iterator is not None
            and lag is not None
            and last_lag is not None
            and _STUCK_LAG_MILLIS < last_lag <= lag
        )
        self._stuck_answers = self._stuck_answers + 1 if is_stuck else 0
        if self._stuck_answers >= _STUCK_ANSWERS:
            raise self._trimmed(
                f"{self._stuck_answers} answers were empty with the lag stuck at {lag} ms"
            )

    def _trimmed(self, evidence: str) -> PositionTrimmedError:
        return PositionTrimmedError(
            f"{self._shard}: the position {self._position} is older than what the stream still "
            f"holds: {evidence}."
        )
