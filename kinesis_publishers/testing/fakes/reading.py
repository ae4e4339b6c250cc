"""Reads one shard with any publisher, without waiting for real time, and checks what came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from attrs import field, frozen

from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.config import AggregationMode, PendingConfig
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.delivery import ConsumerContext
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.engine.shard_consumer import ShardConsumer
from kinesis_publishers.model import ShardProgress, StartingPosition
from kinesis_publishers.testing.fakes.planes import FakeStream
from kinesis_publishers.testing.fakes.recording import RecordingSink
from kinesis_publishers.testing.fakes.samples import sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kinesis_publishers.abc import RecordPublisherFactory
    from kinesis_publishers.events import Event
    from kinesis_publishers.model import Record, Shard, StreamSummary

__all__ = ["ShardReader", "assert_shard_is_read", "finish"]

_T = TypeVar("_T")
_STEP_SECONDS = 1.0
# For each step: some ten seconds of real time for what takes its time on a slow machine.
_REAL_SECONDS = 0.02
_DAY_SECONDS = 86_400.0


async def finish(
    work: Awaitable[_T],
    clock: ManualClock,
    *,
    within: float = 600.0,
    on_step: Callable[[], None] | None = None,
) -> _T:
    """Run ``work`` to its end while ``clock`` moves on; return what it returns.

    Args:
        work: what to run.
        clock: the clock that it sleeps on.
        within: how many seconds of that clock it may take; the test fails if it takes longer.
        on_step: is called each time that the clock has moved on; what it raises ends ``work``.
    """
    task = asyncio.ensure_future(work)
    try:
        await clock.settle()
        deadline = clock.monotonic() + within
        while not task.done() and clock.monotonic() < deadline:
            await clock.advance(_STEP_SECONDS)
            if on_step is not None:
                on_step()
            if not (clock.is_awaited or task.done()):
                # It may wait for something real, as a thread that reads a file.
                await asyncio.wait([task], timeout=_REAL_SECONDS)
        assert task.done(), f"not finished after {within:g} s"
        return await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@frozen(kw_only=True)
class ShardReader:
    """Everything that a consumer of a shard or of a range needs in a test.

    Attributes:
        factory: makes the publisher.
        clock: the clock that the factory uses too.
        sink: what the records are handed to.
        pool: the budget.
        events: what was reported by the consumer.
        fails_on_data_loss: as ``kinesis.failondataloss``.
        aggregation: as ``kinesis.aggregation``.
        fails_on_invalid: whether ``kinesis.aggregation.on-invalid`` is ``fail``.
        listed_shards: what the service answers when the shards are listed.
        listings: the streams for which it was asked.
        retention_seconds: what the service answers when it is asked for the retention.
        retention_questions: the streams for which it was asked.
    """

    factory: RecordPublisherFactory
    clock: ManualClock = field(factory=ManualClock)
    sink: RecordingSink = field(factory=RecordingSink)
    pool: PendingPool = field(
        factory=lambda: PendingPool(
            max_records=PendingConfig.max_records.default, max_bytes=PendingConfig.max_bytes.default
        )
    )
    events: list[Event] = field(factory=list)
    fails_on_data_loss: bool = True
    aggregation: AggregationMode = AggregationMode.AUTO
    fails_on_invalid: bool = False
    listed_shards: tuple[Shard, ...] = field(factory=lambda: (sample_shard(),))
    listings: list[str] = field(factory=list)
    retention_seconds: float = _DAY_SECONDS
    retention_questions: list[str] = field(factory=list)

    @property
    def context(self) -> ConsumerContext:
        """What every consumer of this reader shares."""
        return ConsumerContext(
            create_publisher=self.factory.create,
            pool=self.pool,
            sink=self.sink,
            aggregates=Deaggregator(
                self.aggregation,
                self.events.append,
                self._list_shards,
                fails_on_invalid=self.fails_on_invalid,
            ),
            data_loss=DataLossGuard(
                fail=self.fails_on_data_loss, events=self.events.append, describe=self._describe
            ),
            clock=self.clock,
            events=self.events.append,
        )

    def consumer(
        self, progress: ShardProgress | None = None, *, shard: Shard | None = None
    ) -> ShardConsumer:
        """Return a consumer that begins at ``progress``, at TRIM_HORIZON unless it is given."""
        start = progress or ShardProgress(position=StartingPosition.trim_horizon())
        return ShardConsumer(shard or sample_shard(), start, self.context)

    async def read(
        self, progress: ShardProgress | None = None, *, shard: Shard | None = None
    ) -> ShardProgress:
        """Read to the end of the shard; return how far it has been read."""
        consumer = self.consumer(progress, shard=shard)
        await finish(consumer.run(), self.clock)
        return consumer.progress

    async def _list_shards(self, stream_arn: str) -> tuple[Shard, ...]:
        self.listings.append(stream_arn)
        return self.listed_shards

    async def _describe(self, stream_arn: str) -> StreamSummary:
        self.retention_questions.append(stream_arn)
        stream = FakeStream(arn=stream_arn, retention_seconds=self.retention_seconds)
        return stream.summary


async def assert_shard_is_read(
    factory: RecordPublisherFactory,
    expected: Sequence[Record],
    *,
    clock: ManualClock,
    start: StartingPosition | None = None,
    shard: Shard | None = None,
) -> ShardReader:
    """Read a shard to its end with the publisher of ``factory``, and check what every one owes.

    Each record of ``expected`` is delivered once, in order; the progress follows every delivery and
    ends durable; the pool is empty again. The same call serves every kind of publisher.

    Args:
        factory: what is tested; its context uses ``clock``.
        expected: what the shard holds from ``start`` on.
        clock: moves on by itself until the shard has ended.
        start: where to begin, TRIM_HORIZON unless it is given.
        shard: which shard.

    Returns:
        What took part, for further checks.
    """
    reader = ShardReader(factory=factory, clock=clock)
    begin = ShardProgress(position=start or StartingPosition.trim_horizon())
    progress = await reader.read(begin, shard=shard)
    assert list(map(_identity, reader.sink.records)) == list(map(_identity, expected))
    assert progress.is_ended, f"the shard was left at {progress.position} and not marked as ended"
    for delivery in reader.sink.deliveries:
        delivered = delivery.batch.last_sequence_number
        assert delivered is not None
        assert delivery.progress.processed == delivered.whole
    if expected:
        last = progress.processed
        assert last is not None
        assert last.sequence_number == expected[-1].sequence_number
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0), "the pool is not empty"
    return reader


def _identity(record: Record) -> tuple[object, ...]:
    place = record.sequence_number, record.sub_sequence_number
    return *place, record.data, record.partition_key
