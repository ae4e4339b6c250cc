"""Reads a shard with SubscribeToShard."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from datetime import datetime, timedelta
from typing import TypeVar

from attrs import define, field

from kinesis_publishers.abc import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    ShardSubscription,
)
from kinesis_publishers.config import FanOutConfig
from kinesis_publishers.errors import ConnectionFailedError, MalformedResponseError
from kinesis_publishers.events import EventReceived, SubscriptionEnded, SubscriptionStarted
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    StartingPosition,
    SubscriptionEvent,
    continue_from,
)
from kinesis_publishers.publishers.fanout.recovery import SubscriptionRecovery
from kinesis_publishers.publishers.trimmed import LagWatch
from kinesis_publishers.tasks import TaskScope

_T = TypeVar("_T")

_OPERATION = "SubscribeToShard"
# Within 5 s of a successful SubscribeToShard a second call for the shard is refused. A shard
# accepts one call per second, successful or not (AWS API reference).
_EXCLUSIVE_SECONDS = 5.0
_CALL_PERIOD_SECONDS = 1.0
# After this wait an event is new, but it may have been under way when the wait began.
_FRESH_SECONDS = 1.0
_UNDER_WAY = timedelta(seconds=1)
# AWS reports the end of a shard at once, never after a silence of this length.
_QUIET_SECONDS = 60.0


class _RunOver(Exception):
    """Ends a run that the caller repeats; it never leaves this module."""


@define(eq=False)
class FanOutRecordPublisher(RecordPublisher):
    """Publishes the records of one shard as they are pushed; one :meth:`run` is one subscription.

    Within a process, a subscription continues after the last event, even an empty one: otherwise
    the service would search a quiet shard from its last record every five minutes. Recovery from a
    failure (a delay, a new registration) waits for the next run, which starts without a
    subscription and without room.

    Attributes:
        failure: prevented or ended the last subscription; the next run handles it.
    """

    _shard: Shard
    _position: StartingPosition
    _config: FanOutConfig
    _context: PublisherContext
    _recovery: SubscriptionRecovery
    failure: Exception | None = field(default=None, init=False)
    _consumer_arn: str = field(default="", init=False)
    _not_before: float = field(default=-math.inf, init=False)
    _refused_room: tuple[int, int] | None = field(default=None, init=False)
    _has_room: bool = field(default=False, init=False)
    _has_subscribed: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _delivering_since: float = field(default=math.inf, init=False)
    _poller: RecordPublisher | None = field(default=None, init=False)
    _quiet_since: float = field(default=math.inf, init=False)
    _last_record_count: int = field(default=1, init=False)
    _last_delivered: SequenceNumber | None = field(default=None, init=False)
    _end_reason: str = field(default="", init=False)
    _lag_watch: LagWatch = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._position.require_pinned()
        self._lag_watch = LagWatch(self._shard)

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        await self._recover()
        if (poller := await self._rest_publisher()) is not None:
            return await poller.run(consumer)
        clock = self._context.clock
        if (delay := self._not_before - clock.monotonic()) > 0:
            await clock.sleep(delay)
        # Registration takes long: finish it before reserving room that others need.
        self._consumer_arn = await self._recovery.registrar.consumer_arn(self._shard.stream_arn)
        await self._regain_room(consumer)
        requested_at = clock.now()
        try:
            async with AsyncExitStack() as subscribed, TaskScope() as scope:
                subscription = await self._subscribe(subscribed)
                scope.spawn(self._close_when_blocked(subscribed), name=f"close {self._shard}")
                try:
                    return await self._read(subscription, consumer, requested_at)
                finally:
                    # Cancelling would leave a connection half closed.
                    if not self._is_closed:
                        scope.cancel()
        except _RunOver:
            return RunResult.INCOMPLETE

    async def _recover(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            self._back_off(
                await self._recovery.delay_after(failure, self._position, self._consumer_arn)
            )

    def _back_off(self, seconds: float) -> None:
        self._not_before = max(self._not_before, self._context.clock.monotonic() + seconds)

    async def _regain_room(self, consumer: RecordBatchConsumer) -> None:
        """Wait for the room whose lack closed the last subscription; keep it for the first event.

        If that event had to queue again, shards that all wait longer than a subscription may would
        take turns and never deliver.
        """
        self._has_room = self._refused_room is not None
        if self._refused_room is not None:
            await self._wait_for_space(consumer, self._refused_room)

    async def _wait_for_space(self, consumer: RecordBatchConsumer, wanted: tuple[int, int]) -> None:
        began_at = self._context.clock.monotonic()
        try:
            await consumer.wait_for_space(*wanted)
        finally:
            # During the wait the application is silent, not the shard.
            self._quiet_since += self._context.clock.monotonic() - began_at

    async def _subscribe(self, subscribed: AsyncExitStack) -> ShardSubscription:
        """Return a subscription that stays open as long as ``subscribed``."""
        context = self._context
        # Refused subscriptions, as in an outage, say nothing about the shard.
        quiet_since, self._quiet_since = self._quiet_since, math.inf
        subscription = await self._of_service(self._open(subscribed))
        subscribed.callback(self._report_end, context.clock.monotonic())
        self._back_off(_EXCLUSIVE_SECONDS)
        self._end_reason = "the reader stopped or failed"
        self._is_closed = False
        self._quiet_since = min(quiet_since, context.clock.monotonic())
        context.events(
            SubscriptionStarted(
                shard=self._shard.key,
                position=self._position,
                consumer_arn=self._consumer_arn,
                is_reopened=self._has_subscribed,
            )
        )
        self._has_subscribed = True
        return subscription

    def _report_end(self, opened_at: float) -> None:
        seconds = self._context.clock.monotonic() - opened_at
        self._recovery.note_end(seconds)
        self._context.events(
            SubscriptionEnded(shard=self._shard.key, reason=self._end_reason, seconds=seconds)
        )

    async def _close_when_blocked(self, subscribed: AsyncExitStack) -> None:
        """Close the connection if a delivery takes too long; the delivery continues."""
        clock, seconds = self._context.clock, self._config.space_timeout_seconds
        # One check covers many deliveries: a timer for each would cost too much.
        while (left := self._delivering_since + seconds - clock.monotonic()) > 0:
            await clock.sleep(max(0.1, min(left, seconds)))
        self._is_closed = True
        self._end_reason = f"the application has processed one delivery for more than {seconds:g} s"
        # The delivery must continue; the next run handles a failure.
        with suppress(_RunOver):
            await self._of_service(subscribed.aclose())

    async def _open(self, stack: AsyncExitStack) -> ShardSubscription:
        context, seconds = self._context, self._config.subscribe_timeout_seconds
        self._back_off(_CALL_PERIOD_SECONDS)
        call = context.data_plane.subscribe_to_shard(
            self._shard, self._consumer_arn, self._position
        )
        try:
            async with context.clock.timeout(seconds):
                return await stack.enter_async_context(call)
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{_OPERATION} of {self._shard}: no answer within {seconds:g} s.",
                operation=_OPERATION,
                code="SubscribeTimeout",
            ) from error

    async def _read(
        self, subscription: ShardSubscription, consumer: RecordBatchConsumer, requested_at: datetime
    ) -> RunResult:
        clock = self._context.clock
        while True:
            asked_at, since = clock.now(), clock.monotonic()
            size = await self._of_service(subscription.wait_for_event())
            if clock.monotonic() - since >= _FRESH_SECONDS:
                requested_at = max(requested_at, asked_at - _UNDER_WAY)
            if size is None:
                self._end_reason = "the service ended it"
                return RunResult.INCOMPLETE
            if not await self._make_room(consumer, size):
                return RunResult.INCOMPLETE
            event = await self._of_service(subscription.receive())
            # The service created the event after the subscription began, and about when the wait
            # began if no event was there. With a lag of 0, everything that had arrived by then has
            # been delivered.
            batch = RecordBatch.from_page(event.page, shard=self._shard, requested_at=requested_at)
            await self._deliver(batch, event, consumer)
            problem = _contradiction(event)
            if event.continuation_sequence_number is None and not problem:
                self._end_reason = "the shard has ended"
                return RunResult.COMPLETE
            if await self._rest_publisher(problem) is not None:
                return RunResult.INCOMPLETE
            if problem:
                text = f"{_OPERATION} of {self._shard}: {problem}."
                self._recovery.warn(f"{text} The shard is subscribed to again.")
                raise self._run_over(
                    MalformedResponseError(text, operation=_OPERATION, code="MalformedResponse")
                )
            # A heartbeat counts as progress.
            self._recovery.retries.reset()
            if self._is_closed:
                return RunResult.INCOMPLETE

    async def _make_room(self, consumer: RecordBatchConsumer, payload_bytes: int) -> bool:
        """Wait a limited time for the room of the next event; return whether it is there."""
        if self._has_room:
            return True
        wanted = self._last_record_count, payload_bytes
        seconds = self._config.space_timeout_seconds
        try:
            async with self._context.clock.timeout(seconds) as timeout:
                await self._wait_for_space(consumer, wanted)
        except TimeoutError:
            if not timeout.expired():
                raise
            self._end_reason = f"the application has left no room for {seconds:g} s"
            self._refused_room = wanted
            return False
        return True

    async def _deliver(
        self, batch: RecordBatch, event: SubscriptionEvent, consumer: RecordBatchConsumer
    ) -> None:
        has_ended = event.continuation_sequence_number is None
        self._lag_watch.check(event.page, self._position, has_ended=has_ended)
        self._has_room = False
        if len(batch):
            self._refused_room = None
            self._last_record_count = len(batch)
            self._last_delivered = batch.last_sequence_number
        self._context.events(
            EventReceived(
                shard=self._shard.key,
                records=len(batch),
                payload_bytes=batch.payload_bytes,
                millis_behind_latest=batch.millis_behind_latest,
            )
        )
        self._delivering_since = self._context.clock.monotonic()
        try:
            processed = await consumer(batch)
        finally:
            self._delivering_since = math.inf
        if len(batch):
            self._quiet_since = self._context.clock.monotonic()
        self._position = self._position_after(event, batch, processed)

    def _position_after(
        self, event: SubscriptionEvent, batch: RecordBatch, processed: SequenceNumber | None
    ) -> StartingPosition:
        # A continuation next to child shards is not trusted.
        continuation = None if event.page.child_shards else event.continuation_sequence_number
        last = self._last_delivered
        # An empty event does not skip unprocessed records of an earlier one.
        is_processed = last is None or (processed is not None and processed >= last)
        if continuation is not None and is_processed:
            return StartingPosition.after(continuation)
        return continue_from(self._position, processed) if len(batch) else self._position

    async def _rest_publisher(self, problem: str = "") -> RecordPublisher | None:
        """Return the poller for the rest of a closed shard whose end is never reported, if any."""
        poll_rest = self._context.poll_rest
        is_quiet = self._context.clock.monotonic() - self._quiet_since >= _QUIET_SECONDS
        if self._poller is not None or poll_rest is None or not (problem or is_quiet):
            return self._poller
        self._poller = await poll_rest(self._position, self._shard)
        if self._poller is None:
            return None
        self._end_reason = "the shard is closed and its end does not come: its rest is polled"
        self._recovery.warn(
            f"{self._shard}: ListShards shows the shard as closed, but {_OPERATION} does not end "
            f"it: {problem or 'nothing comes'}. The rest is read with GetRecords, from "
            f"{self._position} on. AWS does not answer like this: check aws.endpoint.",
            about=f"the rest of {self._shard}",
        )
        return self._poller

    async def _of_service(self, call: Awaitable[_T]) -> _T:
        """Await ``call``; on failure, end the run and leave the error to the next one."""
        try:
            return await call
        except Exception as error:
            raise self._run_over(error) from error

    def _run_over(self, error: Exception) -> _RunOver:
        self._end_reason = str(error)
        self.failure = error
        return _RunOver()


def _contradiction(event: SubscriptionEvent) -> str:
    """Return how an event contradicts itself about the end of its shard; empty if it does not."""
    number = event.continuation_sequence_number
    children = ", ".join(child.shard_id for child in event.page.child_shards)
    if number is None and not children:
        return "an event has neither a continuation nor child shards"
    if number is not None and children:
        return f"an event has both the continuation {number} and the child shards {children}"
    return ""
