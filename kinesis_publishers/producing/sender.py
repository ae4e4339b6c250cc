"""Makes the PutRecords calls, and handles the result of each record."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from kinesis_publishers.abc import PutAnswer, PutColumns
from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.config import ProducerConfig
from kinesis_publishers.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    KinesisPublishersError,
    RecordExpiredError,
    ServiceError,
    StreamNotFoundError,
    ThroughputExceededError,
)
from kinesis_publishers.events import PutRecordsAnswered, RecordsPut, RecordsRefused
from kinesis_publishers.producing.collector import SHARD_BYTES, Collector, Part, columns_of
from kinesis_publishers.producing.misplaced import Misplaced, MisplacedRecords
from kinesis_publishers.producing.outstanding import Outstanding, not_decided
from kinesis_publishers.producing.queues import ShardQueue, ShardQueues
from kinesis_publishers.producing.records import Run
from kinesis_publishers.retry import RetryBudget
from kinesis_publishers.tasks import TaskScope

_OPERATION: Final = "PutRecords"
# A shorter wait is skipped: a rounding error would never end it.
_TICK_SECONDS: Final = 0.001
# The period in which the distribution and the shards of the stream are checked.
_ASK_SECONDS: Final = 60.0


class Sender:
    """Sends the records in the queues, until it is cancelled."""

    def __init__(
        self, services: WritingServices, queues: ShardQueues, outstanding: Outstanding
    ) -> None:
        self._services = services
        self._queues = queues
        self._outstanding = outstanding
        self._config, self._clock, self._events = services.config, services.clock, services.events
        self._collector = Collector(services.config, queues)
        self._misplaced = MisplacedRecords(services, queues, outstanding)
        # Decides how long to wait after a call that failed as a whole.
        self._budget = RetryBudget(services.config.retry, services.clock, events=services.events)
        self._wake = asyncio.Event()
        # The records put since the last check of the queues. Enough for a call triggers a check.
        self._new_records = self._new_bytes = 0
        # The time of the next check, unless the sender is woken earlier.
        self._looks_at = -math.inf
        self._in_flight = 0
        self._scope = TaskScope()
        # What else is done as long as records are sent.
        self.further: Callable[[], Coroutine[Any, Any, None]] | None = None
        # The shards of a call that failed as a whole are blocked until then.
        self._blocked_until = self._failed_at = -math.inf
        # The time of the next check whether the stream still distributes records itself.
        self._asks_at = self._clock.monotonic() + _ASK_SECONDS

    def note(self, records: int, size: int, now: float) -> bool:
        """Count records that were put into the queues; return whether to send now."""
        self._new_records += records
        self._new_bytes += size
        is_enough = self._new_bytes >= SHARD_BYTES or (
            self._new_records >= self._config.batch_records and not self._queues.aggregates
        )
        if is_enough or now + self._config.linger_seconds < self._looks_at:
            self.wake()
        return is_enough

    def wake(self) -> None:
        """Check the queues now."""
        self._looks_at = -math.inf
        self._new_records = self._new_bytes = 0
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; after an unexpected error nothing more is sent."""
        async with self._scope:
            if self.further is not None:
                self._scope.spawn(self.further(), name="further work")
            while True:
                self._wake.clear()
                delay = self._start_calls()
                self._looks_at = self._clock.monotonic() + delay
                if delay == math.inf:
                    await self._wake.wait()
                    continue
                with suppress(TimeoutError):
                    async with self._clock.timeout(max(delay, _TICK_SECONDS)):
                        await self._wake.wait()

    def _start_calls(self) -> float:
        """Start the calls that can be made now; return the seconds until the next check."""
        now = self._clock.monotonic()
        if self._queues.shard_map.choices and now >= self._asks_at:
            self._ask(now)
        expiry = self._expire(now)
        while self._in_flight < self._config.max_in_flight:
            parts, delay = self._collector.collect(now, hurries=self._outstanding.hurries)
            if not parts:
                return min(delay, expiry)
            self._in_flight += 1
            calls = [deque(parts)]
            self._start(self._call(calls), chain.from_iterable(calls), name=_OPERATION)
        return expiry

    def _start(
        self, work: Coroutine[Any, Any, None], undecided: Iterable[Part], *, name: str
    ) -> None:
        """Run a task; the parts that are still ``undecided`` at its end fail."""

        def end(task: asyncio.Task[None]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            for part in undecided:
                self._outstanding.fail(part, not_decided(error))
            self._wake.set()

        self._scope.spawn(work, name=name).add_done_callback(end)

    def _expire(self, now: float) -> float:
        """Give up expired records; return the seconds until the next one expires."""
        ttl, left = self._config.expiry_seconds, math.inf
        for queue in self._queues:
            expired: list[Run] = []
            while queue.waiting and queue.waiting[0].put_at + ttl <= now:
                expired.append(queue.pop(len(queue.waiting[0])))
            if expired:
                self._outstanding.give_up(queue, expired, self._expired(queue, expired[0]))
            if queue.waiting:
                left = min(left, queue.waiting[0].put_at + ttl - now)
        return left

    def _expired(self, queue: ShardQueue, run: Run) -> RecordExpiredError:
        reason = f"the last error was: {queue.error}" if queue.error else "it was never its turn"
        error = RecordExpiredError(
            f"{queue.shard} has not accepted the record with the partition key "
            f"{run.partition_keys[0]!r} within {self._config.ttl_seconds:g} s "
            f"({ProducerConfig.ttl_seconds.full_key}); {reason}"
        )
        error.__cause__ = queue.error
        return error

    async def _call(self, calls: list[deque[Part]]) -> None:
        """Send a call; one with an invalid record is sent in halves, one after another."""
        try:
            while calls:
                if halves := await self._send(calls[-1]):
                    calls[-1:] = map(deque, reversed(halves))
                else:
                    calls.pop()
        finally:
            self._in_flight -= 1

    async def _send(self, parts: deque[Part]) -> Sequence[Sequence[Part]]:
        """Make a call and handle the answer; return its halves if one record made it fail."""
        sent_at, columns = self._clock.monotonic(), columns_of(parts)
        try:
            answer = await self._put(columns)
        except ServiceError as error:
            self._report_call(parts, sent_at, error.code)
            if isinstance(error, InvalidArgumentError):
                if None in columns.partition_keys:
                    self._send_keys(parts)
                    return ()
                # One record is invalid, and the service does not name it.
                if halves := _halved(parts):
                    return halves
            await self._take_failure(parts, error, sent_at)
            return ()
        self._report_call(parts, sent_at)
        # A service that is away may refuse every entry of a call instead of the call.
        is_there = any(answer.shard_ids) or any(map(_is_throttling, answer.errors.values()))
        self._outstanding.buffer.note_service(is_away=not is_there)
        self._budget.reset()
        now, start = self._clock.monotonic(), 0
        while parts:
            end = start + parts[0].entries
            self._take_answer(parts[0], answer, slice(start, end), (sent_at, now))
            parts.popleft()
            start = end
        return ()

    def _send_keys(self, parts: deque[Part]) -> None:
        """Requeue records that were refused without keys: the stream may need keys again."""
        if any(part.queue.leaves_out_keys for part in parts):
            self._ask(self._clock.monotonic())
        while parts:
            parts[0].queue.leaves_out_keys = False
            self._outstanding.wait_again(parts.popleft())

    async def _put(self, columns: PutColumns) -> PutAnswer:
        services, seconds = self._services, self._config.request_timeout_seconds
        try:
            async with self._clock.timeout(seconds):
                return await services.writer.put_records(services.arn, columns)
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{_OPERATION} of {services.name}: no answer within {seconds:g} s "
                f"({ProducerConfig.request_timeout_seconds.full_key}).",
                operation=_OPERATION,
                code="RequestTimeout",
            ) from error

    def _report_call(self, parts: Iterable[Part], sent_at: float, code: str = "") -> None:
        self._events(
            PutRecordsAnswered(
                stream_arn=self._services.arn,
                entries=sum([part.entries for part in parts]),
                records=sum([part.records for part in parts]),
                seconds=self._clock.monotonic() - sent_at,
                pending_records=self._outstanding.records + self._outstanding.buffer.on_disk,
                pending_bytes=self._outstanding.buffer.bytes,
                code=code,
            )
        )

    async def _take_failure(self, parts: deque[Part], error: ServiceError, sent_at: float) -> None:
        """Decide about a call that failed as a whole."""
        is_retryable = error.retryable
        self._outstanding.buffer.note_service(is_away=is_retryable and not _is_throttling(error))
        if isinstance(error, StreamNotFoundError):
            is_retryable = await self._has_stream()
        if not is_retryable or self._config.fails_on_error:
            while parts:
                self._outstanding.fail(parts.popleft(), error)
            return
        if sent_at > self._failed_at:
            # Calls in flight at the same time fail for the same reason: count one failure.
            self._failed_at = self._clock.monotonic()
            delay = self._budget.delay_after(error, is_endless=True)
            self._blocked_until = self._failed_at + delay
        while parts:
            parts[0].queue.block(self._blocked_until, error)
            self._outstanding.wait_again(parts.popleft())

    async def _has_stream(self) -> bool:
        # A single node of the service may not know the stream for a moment.
        try:
            await self._services.discovery.describe(self._services.arn)
        except StreamNotFoundError:
            return False
        except KinesisPublishersError:
            return True  # Unknown: the time to live decides.
        return True

    def _take_answer(
        self, part: Part, answer: PutAnswer, places: slice, times: tuple[float, float]
    ) -> None:
        """Handle the results of a part, whose entries are at ``places`` in the answer.

        ``times`` are the times of the call and of the answer.
        """
        shard_ids = answer.shard_ids[places]
        # A record has a number where it has a shard.
        numbers: Sequence[Any] = answer.sequence_numbers[places]
        # Without a prediction no shard is wrong.
        right = set(shard_ids) - {None} if part.queue.choices else {part.queue.shard.shard_id}
        if right.issuperset(shard_ids):
            self._settle(part, shard_ids, numbers, times)
            part.queue.budget.reset()
            return
        accepted: list[int] = []
        misplaced: list[Misplaced] = []
        refused: dict[int, ServiceError] = {}
        for index, found in enumerate(shard_ids):
            if found is None:
                refused[index] = answer.errors[index + places.start]
                continue
            if found not in right:
                misplaced.append((part.pick([index]), (found, numbers[index])))
            # Records of a misplaced aggregate may belong to a third shard.
            if found in right or not part.is_divisible(index):
                accepted.append(index)
        if accepted:
            found_ids = [shard_ids[index] for index in accepted]
            found_numbers = [numbers[index] for index in accepted]
            self._settle(part.pick(accepted), found_ids, found_numbers, times)
        if misplaced:
            undecided = [one for one, _ in misplaced if one.is_divisible(0)]
            work = self._misplaced.correct(misplaced, undecided)
            self._start(work, undecided, name="correct predictions")
        if refused:
            self._take_refusals(part, refused, *times)
        else:
            part.queue.budget.reset()

    def _settle(
        self,
        part: Part,
        shard_ids: Sequence[Any],
        numbers: Sequence[Any],
        times: tuple[float, float],
    ) -> None:
        sent_at, now = times
        records, oldest = part.records, part.oldest
        self._events(
            RecordsPut(
                shard=part.queue.shard,
                entries=part.entries,
                records=records,
                payload_bytes=sum([sum(map(len, run.payloads)) for run in part.runs]),
                entry_bytes=part.size,
                attempts=records + sum([run.attempts * len(run) for run in part.runs]),
                buffering_seconds=sent_at - oldest,
                seconds=now - oldest,
            )
        )
        self._outstanding.settle(part, shard_ids, numbers, now)

    def _take_refusals(
        self, part: Part, refused: Mapping[int, ServiceError], sent_at: float, now: float
    ) -> None:
        """Put refused entries back into the queues, or give them up."""
        queue, share = part.queue, len(refused) / part.entries
        again: list[int] = []
        for code, error in {one.code: one for one in refused.values()}.items():
            indices = [index for index, one in refused.items() if one.code == code]
            self._events(RecordsRefused(shard=queue.shard, code=code, entries=len(indices)))
            if _is_throttling(error):
                queue.limiter.lower(share, sent_at=sent_at, now=now)
            if not error.retryable or self._config.fails_on_error:
                self._outstanding.fail(part.pick(indices), error)
                continue
            again += indices
            if sent_at > queue.refused_at:
                if share < 1:
                    # A shard that accepts a part of each call needs no growing delay.
                    queue.budget.reset()
                queue.refused_at = now
                queue.block(now + queue.budget.delay_after(error, is_endless=True), error)
        if again:
            # Keep their order, also with different errors.
            self._outstanding.wait_again(part.pick(sorted(again)))

    def _ask(self, now: float) -> None:
        """Check whether the stream still distributes records itself, and list its shards."""
        self._asks_at = now + _ASK_SECONDS
        self._start(self._misplaced.refresh(), (), name="ask for the strategy")


def _is_throttling(error: ServiceError) -> bool:
    return isinstance(error, ThroughputExceededError)


def _halved(parts: Iterable[Part]) -> Sequence[Sequence[Part]]:
    """Return the halves of a call; none if it has one entry."""
    singles = [part.pick([index]) for part in parts for index in range(part.entries)]
    middle = len(singles) // 2
    return [singles[:middle], singles[middle:]] if middle else []
