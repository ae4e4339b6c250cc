"""Collects progress and writes it to a store, periodically and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from attrs import define, evolve, field

from kinesis_publishers.abc import JoinedWrite, OpenTransaction
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ForwardingSink, ShardStatus
from kinesis_publishers.errors import CheckpointError, KinesisPublishersError, StaleCheckpointError
from kinesis_publishers.model import (
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StreamProgress,
    is_refresh_due,
)
from kinesis_publishers.progress.rows import Identities, KeptProgress, Listing, Progress
from kinesis_publishers.tasks import TaskScope, wait_for_event

_LOGGER = logging.getLogger(__name__)

# How long a reader that ends still tries to write.
_LAST_WRITE_SECONDS = 10.0
_LEARN_SECONDS = 5.0


@define(eq=False)
class Checkpointer:
    """Collects how far shards have been processed, and writes it to a store periodically.

    ``stored`` decides who may write what: one reader of the application, or the workers by their
    leases.

    :meth:`take_over` comes first, then :meth:`follow` with each listing of the streams, and
    :meth:`record` inside of :meth:`running`. What is recorded is written after the interval at the
    latest, or with so many others that the limit of records is reached; the end of a shard at once.
    One batch is written at a time, while further progress accumulates.

    A failure of the store, after its own retries, is raised out of :meth:`running`: no records are
    processed whose progress cannot be kept.

    Attributes:
        has_failed: whether the last write has failed for good, after the store's own retries.
    """

    stored: KeptProgress
    _config: CheckpointConfig
    _clock: Clock
    _pending: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    _records: int = field(default=0, init=False)
    _is_stopping: bool = field(default=False, init=False)
    has_failed: bool = field(default=False, init=False)
    _has_pending: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_urgent: asyncio.Event = field(factory=asyncio.Event, init=False)

    def sink(self, inner: DeliverySink, *, records_deliveries: bool = True) -> DeliverySink:
        """Return ``inner`` with each delivery recorded as soon as it has been taken.

        Args:
            records_deliveries: ``False`` if the caller calls :meth:`record` itself; only the age
                of what is recorded is kept up then.
        """
        return _CheckpointingSink(inner, self, records_deliveries=records_deliveries)

    async def take_over(self, identities: Identities) -> dict[str, StreamProgress]:
        """Return what is stored, per stream (by ARN); from now on another reader is refused."""
        async with self._exclusively():
            return await self.stored.take_over(identities)

    async def release(self) -> None:
        """Record that this reader has stopped, so that the next one need not wait."""
        if self.has_failed:
            return
        try:
            async with self._clock.timeout(_LAST_WRITE_SECONDS):
                await self.stored.close()
        except (KinesisPublishersError, TimeoutError) as error:
            _LOGGER.warning(
                "This reader could not record that it has stopped, so others wait for it until "
                "it counts as dead: %r",
                error,
            )

    async def follow(self, identities: Identities, listed: Listing, progress: Progress) -> None:
        """Write the first checkpoint of each new shard; remove those of shards that are gone.

        It is called before a new shard is read. Only then is a pinned LATEST durable, and a shard
        that was found but not read yet not taken for one that was read to its end.

        Args:
            identities: the streams that are read, by ARN; checkpoints of others are left alone.
            listed: the shards that there are, and those that are still in use.
            progress: where each of them begins, or how far it has been read.
        """
        async with self._exclusively():
            await self.stored.follow(identities, listed, progress)

    def record(self, key: ShardKey, progress: ShardProgress, *, records: int = 0) -> None:
        """Record the progress of a shard; a sub-record of an aggregate will do.

        Progress of a shard that has left the retention is dropped: it cannot be read again.

        Args:
            key: which shard, one that :meth:`follow` has seen.
            progress: everything up to there has been processed; its ``as_of`` may be missing.
            records: how many records more than at the last call for this shard.

        Raises:
            CheckpointError: the shard is not known, or its progress would move backwards.
        """
        stored, latest = self.stored.get(key), self._latest(key)
        if stored is None or latest is None:
            return
        if _is_behind(progress, latest):
            raise CheckpointError(
                f"The progress of {key} would move back, from {_shown(latest)} to "
                f"{_shown(progress)}: record the records of a shard in their order."
            )
        # Everything before either instant has been read, so the later one holds.
        as_of = max((one.as_of for one in (latest, progress) if one.as_of), default=None)
        progress = evolve(progress, as_of=as_of)
        self._records += records
        is_moved = (stored.position, stored.is_ended) != (progress.position, progress.is_ended)
        if not (is_moved or is_refresh_due(stored.as_of, as_of, self._clock.now())):
            if latest == stored:
                self.stored.note_age(key, progress)
            return
        self._pending[key] = progress
        self._has_pending.set()
        has_just_ended = progress.is_ended and not latest.is_ended
        if has_just_ended or self._records >= self._config.max_records:
            self._is_urgent.set()

    def renew(
        self, key: ShardKey, progress: ShardProgress, delivered: SequenceNumber | None
    ) -> None:
        """Record how far a shard was read, if all delivered records have been recorded.

        ``delivered`` is the last record of it that was delivered; ``None`` if there was none.
        """
        latest = self._latest(key)
        # Of deliveries that overlap, a later one may have been recorded already.
        if latest is None or progress.is_ended or _is_behind(progress, latest):
            return
        processed = latest.processed
        if delivered is None or (processed is not None and not processed < delivered):
            self.record(key, progress)

    def _latest(self, key: ShardKey) -> ShardProgress | None:
        return self._pending.get(key) or self.stored.get(key)

    def forget(self, key: ShardKey) -> None:
        """Drop what was recorded for a shard that another worker reads now."""
        self._pending.pop(key, None)

    def join(
        self, key: ShardKey, progress: ShardProgress, transaction: Any, request: Mapping[str, Any]
    ) -> JoinedWrite:
        """Return a write of the progress of a shard as a part of a transaction.

        It does not wait: what is being written at the moment is replaced, or refused. Until
        :meth:`settle` nothing else is written about the shard.

        Raises:
            StaleCheckpointError: another reader has the shard.
            CheckpointError: the store has no such transactions, or has this progress already.
            TypeError: it takes no such transaction.
        """
        if (stored := self.stored.get(key)) is None:
            raise StaleCheckpointError(f"Another worker reads {key} now: roll back.")
        before, after = stored.processed, progress.processed
        if before is not None and after is not None and not before < after:
            raise CheckpointError(
                f"{key} was processed up to {before} already, as an earlier transaction has "
                "recorded: this one must not be committed."
            )
        row, owner = self.stored.row_with(key, progress)
        opened = OpenTransaction(handle=transaction, owner=owner, request=request)
        return self.stored.rows.join(row, opened)

    async def learn_refusal(self, key: ShardKey) -> None:
        """Learn why the write that :meth:`join` has returned was refused; it may be tried again.

        Raises:
            StaleCheckpointError: that takes too long.
            CheckpointError: this reader has been replaced.
        """
        self.stored.rows.joined.pop(key, None)
        refused = StaleCheckpointError(
            f"The checkpoint of {key} was not written in the transaction: another writer has "
            "changed its row. Roll the transaction back."
        )
        try:
            # What is being written may wait for the transaction itself.
            async with self._clock.timeout(_LEARN_SECONDS), self.stored.rows.turn:
                await self.stored.learn([key], refused)
        except TimeoutError:
            raise refused from None

    async def settle(self, key: ShardKey, *, is_committed: bool | None) -> bool:
        """Record how the transaction of :meth:`join` has ended; return if it was committed.

        Args:
            is_committed: ``None`` if that is not known: the store is asked.

        Raises:
            KinesisPublishersError: the store has failed.
        """
        rows = self.stored.rows
        if key not in rows.joined:
            return False
        # What was being written when the transaction began may still be under way.
        async with rows.turn:
            learn = partial(self.stored.learn, [key])
            is_committed = await rows.settle(key, learn, is_committed=is_committed)
        if is_committed:
            self._pending.pop(key, None)
        elif key in self._pending:
            self._has_pending.set()
        return is_committed

    async def flush(self) -> None:
        """Write all recorded progress, and return when it is durable.

        Raises:
            StaleCheckpointError: another reader has written a checkpoint.
            KinesisPublishersError: the store has failed.
        """
        if not self._pending:
            # Do not wait, not even for the first checkpoints of new shards.
            self._forget_haste()
            return
        async with self._exclusively():
            joined = self.stored.rows.joined
            batch = {key: one for key, one in self._pending.items() if key not in joined}
            self._forget_haste()
            try:
                await self.stored.write(batch)
            except BaseException:
                self._has_pending.set()
                raise
            for key, one in batch.items():
                # A transaction that has begun meanwhile has kept its shard from being written.
                if self._pending.get(key) is one and key not in joined:
                    del self._pending[key]
            self.has_failed = self.has_failed and not batch

    async def flush_at_end(self) -> None:
        """Flush; for ten seconds, repeat a write that was given up to renew leases in time."""
        until = self._clock.monotonic() + _LAST_WRITE_SECONDS
        while True:
            try:
                return await self.flush()
            except KinesisPublishersError as error:
                is_given_up = getattr(error, "code", "") == "timeout"
                self.has_failed = not is_given_up or self._clock.monotonic() >= until
                if self.has_failed:
                    raise

    def _forget_haste(self) -> None:
        self._records = 0
        self._has_pending.clear()
        self._is_urgent.clear()

    @asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[None]:
        try:
            async with self.stored.rows.turn:
                yield
        except KinesisPublishersError as error:
            self.has_failed = not self.stored.is_bearable(error)
            raise

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write what is recorded while the body runs, and the rest at its end.

        If the body fails or is cancelled, that is what is raised, with a note if writing the rest
        has failed too. A failure of the store cancels the body.

        Raises:
            KinesisPublishersError: the store has failed.
        """
        self._is_stopping = False
        try:
            async with TaskScope() as scope:
                scope.spawn(self._write_periodically(), name="write checkpoints")
                keeping = self.stored.keep(self._exclusively)
                alive = scope.spawn(keeping, name="show that the reader is alive")
                try:
                    yield
                finally:
                    alive.cancel()
                    self._is_stopping = True
                    self._has_pending.set()
                    self._is_urgent.set()
            await self.flush_at_end()
        except BaseException as error:
            await self.flush_despite(error)
            raise

    async def _write_periodically(self) -> None:
        while not self._is_stopping:
            await self._has_pending.wait()
            await wait_for_event(
                self._is_urgent, timeout_seconds=self._config.interval_seconds, clock=self._clock
            )
            try:
                if not self._is_stopping:
                    await self.flush()
            except KinesisPublishersError:
                if self.has_failed:
                    raise

    async def flush_despite(self, error: BaseException) -> None:
        """Write the recorded progress although ``error`` ends everything.

        It is tried for ten seconds, unless the store has failed. If it fails, that is a note on
        ``error``, which the caller raises.
        """
        if self.has_failed:
            return
        try:
            async with self._clock.timeout(_LAST_WRITE_SECONDS):
                await self.flush_at_end()
        except (KinesisPublishersError, TimeoutError) as failure:
            # The next handler of this error does not try again.
            self.has_failed = True
            error.add_note(
                "The last checkpoints could not be written; the records since then will be "
                f"repeated: {failure!r}"
            )


class _CheckpointingSink(ForwardingSink):
    """Passes everything on, and records what the consumer has taken, unless the caller does that.

    The progress of idle shards is renewed either way, before it looks like lost data.
    """

    def __init__(
        self, inner: DeliverySink, checkpointer: Checkpointer, *, records_deliveries: bool
    ) -> None:
        super().__init__(inner)
        self._checkpointer, self._records_deliveries = checkpointer, records_deliveries
        # The last record of each shard; of an aggregate, the last one inside.
        self._delivered: dict[ShardKey, SequenceNumber] = {}

    async def deliver(self, delivery: Delivery) -> None:
        # Before it is taken, which may change the batch.
        records, last = len(delivery.batch), delivery.batch.last_sequence_number
        await self._inner.deliver(delivery)
        key = delivery.shard.key
        if self._records_deliveries:
            self._checkpointer.record(key, delivery.progress, records=records)
        elif last is not None:
            self._delivered[key] = last

    def observe(self, status: ShardStatus) -> None:
        self._inner.observe(status)
        key = status.shard.key
        if self._records_deliveries:
            # The end of a shard, or that an idle one was at its tip; never what was only fetched.
            self._checkpointer.record(key, status.progress)
            return
        self._checkpointer.renew(key, status.progress, self._delivered.get(key))
        if status.progress.is_ended:
            self._delivered.pop(key, None)

    def withdraw(self, shard: ShardKey, *, is_lost: bool) -> None:
        super().withdraw(shard, is_lost=is_lost)
        self._delivered.pop(shard, None)
        if is_lost:
            self._checkpointer.forget(shard)


def _is_behind(progress: ShardProgress, latest: ShardProgress) -> bool:
    if latest.is_ended and not progress.is_ended:
        return True
    before, after = latest.processed, progress.processed
    return before is not None and (after is None or after < before)


def _shown(progress: ShardProgress) -> str:
    return f"{progress.position}{' (ended)' if progress.is_ended else ''}"
