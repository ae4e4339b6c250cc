"""The loop over one shard: one publisher after another, until the shard or its range is read."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import lru_cache

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.config.plugins import check_fit
from kinesis_publishers.engine.delivery import (
    SHARD_NOT_FOUND,
    ConsumerContext,
    DeliveryRoom,
    drop_processed,
)
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


class ShardLoop(RecordBatchConsumer):
    """Reads from a position on, and is the consumer of its own publishers.

    Records at or before the place that was reached are dropped, so that each is delivered once.

    Attributes:
        reached: where reading continues: behind what was taken from the publishers.
    """

    def __init__(self, shard: Shard, progress: ShardProgress, context: ConsumerContext) -> None:
        self.shard = shard
        self.reached = progress
        self.context = context
        self._room = DeliveryRoom(shard.key, context)
        self._missing = context.missing(shard)
        self._publisher: RecordPublisher | None = None
        self._run: asyncio.Timeout | None = None
        self._is_done = False
        self._delivery_error: BaseException | None = None

    @abstractmethod
    async def _report_trimmed(self, error: PositionTrimmedError) -> None:
        """Report that the position is gone; raises unless reading may continue at the horizon."""

    @abstractmethod
    def _reach_end_of_shard(self) -> None:
        """Note that the publisher has delivered the last record of the shard."""

    def _leave_shard(self) -> None:
        """Note that the shard has left the retention, which has been reported."""

    async def _read(self, position: StartingPosition | None) -> None:
        while position is not None and not self._is_done:
            position = await self._read_from(position)

    async def _read_from(self, position: StartingPosition) -> StartingPosition | None:
        """Read with one publisher; return where the next one begins, or ``None`` at the end."""
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
            if is_stuck or error is self._delivery_error:
                raise
            # What is left comes after the position, or is dropped on arrival.
            await self._report_trimmed(error)
        except SHARD_NOT_FOUND as error:
            if error is self._delivery_error:
                raise
            if await self._missing.has_left(error, self.reached):
                self._leave_shard()
                return None
            is_unmoved = self.reached.position == before
            following = position if is_unmoved else self.reached.position
        self._publisher = None
        return following

    async def _run_publisher(self, position: StartingPosition) -> None:
        if self._publisher is None:
            publisher = await self.context.create_publisher(position, self.shard)
            _check_publisher(publisher, self.shard)
            self._publisher = publisher
        while not self._is_done:
            result = await self._run_once(self._publisher)
            if result is None:
                self._publisher = None
                return
            if result is RunResult.COMPLETE:
                self._reach_end_of_shard()
                return

    async def _run_once(self, publisher: RecordPublisher) -> RunResult | None:
        """Run ``publisher`` once; return its result, ``None`` if it was interrupted."""
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
            # The publisher's own, even of its cleanup, is a failure; the other one interrupted it.
            if error is failure:
                raise
        except BaseExceptionGroup as group:
            self._raise_delivery_error(group)
            raise
        finally:
            self._run = None
            # A run may end without the delivery that it asked for room for, as after a throttle.
            self._room.release()
        return None if timeout.expired() else result

    async def _checked_run(self, publisher: RecordPublisher) -> RunResult:
        what = f"{self.shard}: run() of {type(publisher).__name__}"
        with cancelled_from_outside_only(PublisherCancelledError, what):
            result = await publisher.run(self)
        _check_result(result, publisher, self.shard, is_stopping=self._is_done)
        return result

    def _raise_delivery_error(self, group: BaseExceptionGroup[BaseException]) -> None:
        """Raise the failure of a delivery that a publisher's own TaskGroup has wrapped."""
        error = self._delivery_error
        if error is not None and group.subgroup(lambda one: one is error) is not None:
            raise error

    def _interrupt(self) -> None:
        """Interrupt the run where it waits next; one that returns before is not interrupted."""
        if self._run is not None and not self._run.expired():
            self._run.reschedule(asyncio.get_running_loop().time())

    async def _end_run_if_done(self) -> None:
        """Keep a publisher that continues although the loop is done from coming back."""
        if not self._is_done or self._run is None:
            return
        if self._run.expired():
            # It was interrupted, and has called from its cleanup.
            raise asyncio.CancelledError
        self._interrupt()
        await asyncio.get_running_loop().create_future()

    def _fresh(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of ``batch``, which are in order, that were not delivered before."""
        self._missing.reset()
        return drop_processed(batch, self.reached.processed, self.context.events)

    async def _check_beginning(self, batch: RecordBatch) -> None:
        """Report records that were removed between the position and the first one of ``batch``."""
        now, arrived = batch.requested_at, batch.slice(0, 1).last_arrival
        await self.context.data_loss.check_beginning(
            self.shard, self.reached, now, batch.first_sequence_number, arrived
        )


def _check_publisher(publisher: object, shard: Shard) -> None:
    """Check what ``create`` returned: the class of a factory does not show what it makes.

    Raises:
        PluginLoadError: it is no publisher, or cannot be run as one.
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
        PluginLoadError: it is no result. Taken for INCOMPLETE, it would be asked again for ever.
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
