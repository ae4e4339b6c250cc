"""The loop over one shard: one publisher after another, until the shard or its range is read."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Protocol

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.config.plugins import check_fit
from kinesis_publishers.engine.consumer_context import ConsumerContext, DeliveryRoom, drop_processed
from kinesis_publishers.engine.data_loss import SHARD_NOT_FOUND
from kinesis_publishers.errors import PluginLoadError, PositionTrimmedError, PublisherCancelledError
from kinesis_publishers.model import (
    PositionType,
    RecordBatch,
    RunResult,
    Shard,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.tasks import cancelled_from_outside_only


class LoopOwner(Protocol):
    """Decides what follows from a trimmed position, and from the end of a shard."""

    async def report_trimmed(self, error: PositionTrimmedError) -> None:
        """Report that the position is gone; raise unless reading may continue at the horizon."""

    def reach_end_of_shard(self) -> None:
        """Called when the publisher has delivered the last record of the shard."""

    def leave_shard(self) -> None:
        """Called when the shard has left the retention, after the report."""


class ShardLoop:
    """Runs the publishers of one shard for their consumer, from a position on.

    Records at or before the place that was reached are dropped, so that each is delivered once.

    Attributes:
        shard: the shard.
        reached: where reading continues: after the records taken from the publishers.
        room: the room of the next delivery.
        publisher: the current publisher; ``None`` before the first, and between two.
        is_done: whether reading ends with the current run.
        delivery_error: the failure of a delivery, which a publisher may raise again.
    """

    def __init__(
        self,
        shard: Shard,
        progress: ShardProgress,
        context: ConsumerContext,
        *,
        consumer: RecordBatchConsumer,
        owner: LoopOwner,
    ) -> None:
        self.shard = shard
        self.reached = progress
        self.room = DeliveryRoom(shard.key, context)
        self.publisher: RecordPublisher | None = None
        self.is_done = False
        self.delivery_error: BaseException | None = None
        self._context = context
        self._consumer, self._owner = consumer, owner
        self._missing = context.data_loss.missing(shard)
        self._run: asyncio.Timeout | None = None

    async def read(self) -> None:
        """Read from the place that was reached until the end, or until :attr:`is_done`."""
        position: StartingPosition | None = self.reached.position
        while position is not None and not self.is_done:
            position = await self._read_from(position)

    async def _read_from(self, position: StartingPosition) -> StartingPosition | None:
        """Read with one publisher; return where the next one begins, ``None`` at the end."""
        before, following = self.reached.position, None
        try:
            await self._run_publisher(position)
            return None
        except PositionTrimmedError as error:
            following = StartingPosition.trim_horizon()
            is_stuck = (
                position.type is PositionType.TRIM_HORIZON and self.reached.position == before
            )
            # A failed delivery has been reported already.
            if is_stuck or error is self.delivery_error:
                raise
            # The remaining records come after the position, or are dropped on arrival.
            await self._owner.report_trimmed(error)
        except SHARD_NOT_FOUND as error:
            if error is self.delivery_error:
                raise
            if await self._missing.has_left(error, self.reached):
                self._owner.leave_shard()
                return None
            is_unmoved = self.reached.position == before
            following = position if is_unmoved else self.reached.position
        self.publisher = None
        return following

    async def _run_publisher(self, position: StartingPosition) -> None:
        if self.publisher is None:
            publisher = await self._context.create_publisher(position, self.shard)
            _check_publisher(publisher, self.shard)
            self.publisher = publisher
        while not self.is_done:
            result = await self._run_once(self.publisher)
            if result is None:
                self.publisher = None
                return
            if result is RunResult.COMPLETE:
                self._owner.reach_end_of_shard()
                return

    async def _run_once(self, publisher: RecordPublisher) -> RunResult | None:
        """Run ``publisher`` once; return its result, ``None`` after an interruption."""
        result = failure = None
        # It has no deadline until it is interrupted.
        self._run = timeout = asyncio.timeout(None)
        try:
            async with timeout:
                try:
                    result = await self._checked_run(publisher)
                except TimeoutError as error:
                    failure = error
                    raise
        except TimeoutError as error:
            # A TimeoutError of the publisher itself, even of its cleanup, is a failure.
            if error is failure:
                raise
        except BaseExceptionGroup as group:
            self._raise_delivery_error(group)
            raise
        finally:
            self._run = None
            # After a throttle, for example, a run ends without the delivery that the room was for.
            self.room.release()
        return None if timeout.expired() else result

    async def _checked_run(self, publisher: RecordPublisher) -> RunResult:
        what = f"{self.shard}: run() of {type(publisher).__name__}"
        with cancelled_from_outside_only(PublisherCancelledError, what):
            result = await publisher.run(self._consumer)
        _check_result(result, publisher, self.shard, is_stopping=self.is_done)
        return result

    def _raise_delivery_error(self, group: BaseExceptionGroup[BaseException]) -> None:
        """Raise the failure of a delivery that a publisher's own TaskGroup has wrapped."""
        error = self.delivery_error
        if error is not None and group.subgroup(lambda one: one is error) is not None:
            raise error

    def interrupt(self) -> None:
        """Interrupt the run at its next wait; a run that returns before is not interrupted."""
        if self._run is not None and not self._run.expired():
            self._run.reschedule(asyncio.get_running_loop().time())

    async def end_run_if_done(self) -> None:
        """End the run of a publisher that continues although the loop is done."""
        if not self.is_done or self._run is None:
            return
        if self._run.expired():
            # The call comes from the cleanup of an interrupted run.
            raise asyncio.CancelledError
        self.interrupt()
        await asyncio.get_running_loop().create_future()

    def fresh(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of the ordered ``batch`` that were not delivered before."""
        self._missing.reset()
        return drop_processed(batch, self.reached.processed, self._context.events)

    async def check_beginning(self, batch: RecordBatch) -> None:
        """Report records that were removed between the position and the first one of ``batch``."""
        now, arrived = batch.requested_at, batch.slice(0, 1).last_arrival
        await self._context.data_loss.check_beginning(
            self.shard, self.reached, now, batch.first_sequence_number, arrived
        )


def _check_publisher(publisher: object, shard: Shard) -> None:
    """Check the result of ``create``, which the class of a factory does not show.

    Raises:
        PluginLoadError: it is not a publisher, or cannot run as one.
    """
    if not isinstance(publisher, RecordPublisher):
        raise PluginLoadError(
            f"{shard}: create() of the record publisher factory returned "
            f"{type(publisher).__name__}, which does not extend RecordPublisher: return an "
            "instance of a subclass"
        )
    _check_class(type(publisher))


@lru_cache
def _check_class(kind: type) -> None:
    check_fit(kind, RecordPublisher, reference=f"{kind.__module__}:{kind.__qualname__}")


def _check_result(
    result: object, publisher: RecordPublisher, shard: Shard, *, is_stopping: bool
) -> None:
    """Check what ``run`` of a publisher returned.

    Raises:
        PluginLoadError: it is not a ``RunResult``. As INCOMPLETE, it would be repeated forever.
        PublisherCancelledError: it is CANCELLED, but the reader is not stopping.
    """
    if not isinstance(result, RunResult):
        raise PluginLoadError(
            f"{shard}: run() of {type(publisher).__name__} returned {result!r}: return "
            "RunResult.INCOMPLETE, or RunResult.COMPLETE after the last record of the shard"
        )
    if result is RunResult.CANCELLED and not is_stopping:
        raise PublisherCancelledError(
            f"{shard}: {type(publisher).__name__} returned CANCELLED, but nothing asked it to "
            "stop. A publisher may return it only after it was told to."
        )
