"""Reads a shard with GetRecords."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable
from typing import Self, TypeVar

from kinesis_publishers.abc import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
)
from kinesis_publishers.config import PollingConfig, Properties, ShardLimits
from kinesis_publishers.errors import (
    InvalidArgumentError,
    IteratorExpiredError,
    LimitExceededError,
    MalformedResponseError,
    ServiceError,
    ThroughputExceededError,
)
from kinesis_publishers.events import IteratorReplaced, RecordsFetched, Throttled
from kinesis_publishers.model import (
    RecordBatch,
    RecordPage,
    RunResult,
    Shard,
    StartingPosition,
    continue_from,
)
from kinesis_publishers.model.sources import POLLING
from kinesis_publishers.publishers.quota import CALLS_PER_SECOND, ShardQuota
from kinesis_publishers.publishers.trimmed import LagWatch, delay_after_refusal
from kinesis_publishers.retry import RetryBudget, RetryPolicy

_GET_RECORDS, _GET_SHARD_ITERATOR = "GetRecords", "GetShardIterator"
_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")

# A shard iterator expires five minutes after it was returned (AWS API reference).
_ITERATOR_SECONDS = 300.0
#: The most that one GetRecords returns (AWS service limits).
MAX_PAGE_BYTES = 10 * 1024 * 1024
#: What is reserved for a shard whose last answer was (nearly) empty.
MIN_PAGE_BYTES = 256 * 1024
_MIN_PAGE_RECORDS = 250
# A page may grow from one call to the next before the estimate follows.
_GROWTH = 2
# The read quota of a shard: 2 MB/s, taken as 2 MiB like Flink's connector does.
_SHARD_BYTES_PER_SECOND = 2 * 1024 * 1024
_SHORTEST_PERIOD_SECONDS = 1.0 / CALLS_PER_SECOND
# A busy shard grows while it answers. A smaller lag counts as the tip, where calls are spread over
# the second: five calls in a row would make every record wait for the rest of it.
_BEHIND_MILLIS = 1000
# A silent shard is polled less often. Its next record waits for at most a twentieth of the silence.
_SHARE_OF_SILENCE = 0.05
_LONGEST_IDLE_PERIOD_SECONDS = 1.0


class PollingRecordPublisher(RecordPublisher):
    """Publishes the records of one shard by polling; one :meth:`run` makes at most one GetRecords.

    A run whose call must be repeated delivers nothing. The next run waits for the delay before it
    reserves room, which other shards can use meanwhile.

    Attributes:
        limit: the ``Limit`` of the next call, 1 to 10,000.
    """

    reads_ahead = True

    def __init__(
        self,
        shard: Shard,
        starting_position: StartingPosition,
        config: PollingConfig,
        context: PublisherContext,
        quota: ShardQuota,
    ) -> None:
        self._shard = shard
        self._position = starting_position.require_pinned()
        self._config = config
        self._context = context
        self._quota = quota
        shortest = _SHORTEST_PERIOD_SECONDS if quota.is_kept else 0.0
        self._tip_period = max(config.interval_seconds, shortest)
        self.limit = self._asked = config.max_records
        self._iterator: str | None = None
        self._iterator_received_at = -math.inf
        self._last_call: float | None = None
        self._period = self._tip_period
        self._silent_since = context.clock.monotonic()
        self._not_before = -math.inf
        self._slept_seconds = self._call_seconds = 0.0
        # The first answer may be anything.
        self._last_size = config.max_records, MAX_PAGE_BYTES
        self._lag_watch = LagWatch(shard)
        self._iterator_retries = self._retries(config.get_iterator_retry)
        self._records_retries = self._retries(config.get_records_retry)
        self._listing_retries = self._retries(config.get_records_retry)
        # The position at which an answer without an iterator was last doubted.
        self._doubted_at: StartingPosition | None = None

    def _retries(self, policy: RetryPolicy) -> RetryBudget:
        context = self._context
        return RetryBudget(policy, context.clock, events=context.events, shard=self._shard.key)

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        await self._keep_pace()
        if await self._valid_iterator() is None:
            return RunResult.INCOMPLETE
        self._asked = self._wanted(consumer)
        await consumer.wait_for_space(*expected_page(*self._last_size, self._asked))
        # The consumer may want fewer records after a wait.
        self._asked = self._wanted(consumer)
        # The iterator may have expired during the wait. One attempt replaces it while the room is
        # held: after giving the room back, a shard that always waits this long would never read.
        iterator = await self._valid_iterator()
        if iterator is None:
            return RunResult.INCOMPLETE
        loop_seconds = self._seconds_since_last_call()
        requested_at = self._context.clock.now()
        page = await self._get_records(iterator)
        if page is None:
            return RunResult.INCOMPLETE
        has_ended = page.next_shard_iterator is None
        self._lag_watch.check(page, self._position, has_ended=has_ended)
        batch = RecordBatch.from_page(page, shard=self._shard, requested_at=requested_at)
        self._follow_pace(batch)
        self._report(batch, loop_seconds)
        self._adapt_limit(batch, loop_seconds)
        self._slept_seconds = 0.0
        processed = await consumer(batch)
        # An empty answer must not lead from TRIM_HORIZON back to a position that is trimmed.
        if len(batch):
            self._position = continue_from(self._position, processed)
        self._iterator = page.next_shard_iterator
        if has_ended and await self._has_ended(page):
            return RunResult.COMPLETE
        return RunResult.INCOMPLETE

    def _wanted(self, consumer: RecordBatchConsumer) -> int:
        wanted = consumer.records_wanted
        return self.limit if wanted is None else max(1, min(self.limit, wanted))

    @property
    def seconds_left(self) -> float:
        """How long the next run waits before its call."""
        elapsed = self._seconds_since_last_call()
        return max(
            0.0 if elapsed is None else self._period - elapsed,
            self._not_before - self._context.clock.monotonic(),
            self._quota.seconds_left(self._shard.key, _GET_RECORDS),
        )

    async def _keep_pace(self) -> None:
        if (delay := self.seconds_left) > 0:
            await self._context.clock.sleep(delay)
            self._slept_seconds += delay

    def _back_off(self, seconds: float) -> None:
        self._not_before = self._context.clock.monotonic() + seconds

    def _seconds_since_last_call(self) -> float | None:
        previous = self._last_call
        return None if previous is None else self._context.clock.monotonic() - previous

    async def _valid_iterator(self) -> str | None:
        """Return an iterator; ``None`` if a later run must request it again."""
        age = self._context.clock.monotonic() - self._iterator_received_at
        if self._iterator is not None and age > _ITERATOR_SECONDS:
            self._drop_iterator()
        if self._iterator is None:
            self._iterator = await self._get_shard_iterator()
        return self._iterator

    def _drop_iterator(self) -> None:
        self._iterator = None
        self._context.events(IteratorReplaced(shard=self._shard.key, position=self._position))

    def _takes_turn(self, operation: str) -> bool:
        """Count a call if the quota allows it; otherwise make the next run wait."""
        shard = self._shard.key
        if wait := self._quota.seconds_left(shard, operation):
            self._back_off(wait)
            return False
        self._quota.take(shard, operation)
        return True

    async def _get_shard_iterator(self) -> str | None:
        if not self._takes_turn(_GET_SHARD_ITERATOR):
            return None
        call = self._context.data_plane.get_shard_iterator(self._shard, self._position)
        try:
            return await self._attempt(call, self._iterator_retries)
        except InvalidArgumentError as error:
            now = self._context.clock.now()
            self._back_off(delay_after_refusal(error, self._shard, self._position, now))
            return None

    async def _get_records(self, iterator: str) -> RecordPage | None:
        if not self._takes_turn(_GET_RECORDS):
            return None
        self._last_call = self._context.clock.monotonic()
        # Only an answer that shows more records shortens the period: a failed call does not.
        self._period = self._tip_period
        call = self._context.data_plane.get_records(self._shard, iterator, self._asked)
        try:
            page = await self._attempt(call, self._records_retries)
        except IteratorExpiredError:
            self._drop_iterator()
            return None
        self._call_seconds = self._context.clock.monotonic() - self._last_call
        return page

    async def _attempt(self, call: Awaitable[_T], retries: RetryBudget) -> _T | None:
        """Attempt a call once; return ``None`` if it failed and a later run repeats it."""
        try:
            answer = await call
        except ServiceError as error:
            # Every reader of the shard shares its quota: a refusal means "later". Repeated refusals
            # are no failure.
            is_throttle = isinstance(error, (ThroughputExceededError, LimitExceededError))
            if is_throttle:
                self._context.events(Throttled(shard=self._shard.key, operation=error.operation))
            is_endless = is_throttle or self._config.recoverable_errors.contain(error)
            self._back_off(retries.delay_after(error, is_endless=is_endless))
            return None
        retries.reset()
        # GetShardIterator and GetRecords both return an iterator.
        self._iterator_received_at = self._context.clock.monotonic()
        return answer

    def _follow_pace(self, batch: RecordBatch) -> None:
        self._last_size = len(batch), batch.payload_bytes
        if not self._quota.is_kept:
            return
        assert self._last_call is not None, "an answer has been asked for"
        self._quota.charge(self._shard.key, _GET_RECORDS, batch.payload_bytes)
        if len(batch):
            self._silent_since = self._last_call
        self._period = period_after(
            self._tip_period,
            is_cut=len(batch) >= self._asked,
            millis_behind_latest=batch.millis_behind_latest,
            silent_seconds=self._last_call - self._silent_since,
        )

    def _report(self, batch: RecordBatch, loop_seconds: float | None) -> None:
        self._context.events(
            RecordsFetched(
                shard=self._shard.key,
                records=len(batch),
                payload_bytes=batch.payload_bytes,
                millis_behind_latest=batch.millis_behind_latest,
                limit=self._asked,
                loop_seconds=loop_seconds,
                sleep_seconds=self._slept_seconds,
                call_seconds=self._call_seconds,
            )
        )

    def _adapt_limit(self, batch: RecordBatch, loop_seconds: float | None) -> None:
        if not self._config.adaptive_reads or loop_seconds is None:
            return
        # Waits for the quota do not count: a page that uses it up would make the next one larger.
        busy_seconds = loop_seconds - self._slept_seconds
        self.limit = adapted_limit(
            self.limit,
            records=len(batch),
            payload_bytes=batch.payload_bytes,
            loop_seconds=max(busy_seconds, self._tip_period),
            maximum=self._config.max_records,
        )

    async def _has_ended(self, page: RecordPage) -> bool:
        """Return whether a second source confirms the end that an answer without iterator shows.

        If not, the next run reads on from the position. Some emulators never name child shards.
        """
        if page.child_shards:
            return True
        if not self._shard.is_closed:
            call = self._context.control_plane.list_shards(self._shard.stream_arn)
            listed = await self._attempt(call, self._listing_retries)
            if listed is None:
                return False
            if not any(one.key == self._shard.key and one.is_closed for one in listed):
                return self._doubt_end("ListShards does not show the shard as closed")
        # Some servers measure the lag of a closed shard by the wall clock: two answers suffice.
        if page.millis_behind_latest and self._doubted_at != self._position:
            return self._doubt_end(f"the answer is {page.millis_behind_latest} ms behind the tip")
        return True

    def _doubt_end(self, evidence: str) -> bool:
        error = MalformedResponseError(
            f"GetRecords of {self._shard} answered without a next shard iterator, but {evidence}. "
            f"Reading continues from {self._position}.",
            operation="GetRecords",
            code="EndNotConfirmed",
        )
        if self._doubted_at is None:
            _LOGGER.warning("%s This is said once per reader of the shard.", error)
        self._doubted_at = self._position
        self._back_off(self._records_retries.delay_after(error, is_endless=True))
        return False


class PollingRecordPublisherFactory(RecordPublisherFactory, known=POLLING):
    """Selected by ``stream.recordpublisher = POLLING``, the default."""

    def __init__(self, config: PollingConfig, context: PublisherContext) -> None:
        self._config = config
        self._context = context
        self._quota = ShardQuota(context.clock, is_kept=config.limits is ShardLimits.AWS)

    @classmethod
    def from_properties(cls, properties: Properties, context: PublisherContext) -> Self:
        return cls(PollingConfig.from_properties(properties), context)

    async def create(
        self, starting_position: StartingPosition, shard: Shard
    ) -> PollingRecordPublisher:
        shared = self._config, self._context, self._quota
        return PollingRecordPublisher(shard, starting_position, *shared)


def period_after(
    tip_seconds: float, *, is_cut: bool, millis_behind_latest: int | None, silent_seconds: float
) -> float:
    """Return the time from the start of one call to the start of the next.

    Processing time is part of it, so that a slow consumer is not slowed further. ``is_cut`` says
    whether the answer has as many records as it may have.
    """
    if is_cut or (millis_behind_latest or 0) >= _BEHIND_MILLIS:
        return 0.0
    return max(tip_seconds, min(_LONGEST_IDLE_PERIOD_SECONDS, silent_seconds * _SHARE_OF_SILENCE))


def adapted_limit(
    current: int, *, records: int, payload_bytes: int, loop_seconds: float, maximum: int
) -> int:
    """Return the Limit that uses the shard's 2 MB/s without exceeding them.

    ``current``, the limit in use, is kept after an answer without records. ``loop_seconds`` is the
    time from call to call.
    """
    if records <= 0 or loop_seconds <= 0:
        return current
    if payload_bytes <= 0:
        return maximum
    fitting = _SHARD_BYTES_PER_SECOND * loop_seconds * records / payload_bytes
    return int(max(1, min(maximum, fitting)))


def expected_page(last_records: int, last_bytes: int, limit: int) -> tuple[int, int]:
    """Return (records, bytes) to reserve before a call: up to twice the size of the last answer."""
    return (
        min(limit, max(_MIN_PAGE_RECORDS, _GROWTH * last_records)),
        min(MAX_PAGE_BYTES, max(MIN_PAGE_BYTES, _GROWTH * last_bytes)),
    )
