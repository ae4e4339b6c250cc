"""Reads single pages of shards by polling, for searches."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.engine.delivery import SHARD_NOT_FOUND
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisher
from kinesis_publishers.readers.range_ends.last_record import ShardPage, ShardPages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.engine.delivery import MissingShard

__all__ = ["CreatePollingPublisher", "PolledPages", "read_page"]

CreatePollingPublisher: TypeAlias = Callable[
    [StartingPosition, Shard], Awaitable[PollingRecordPublisher]
]


async def read_page(publisher: PollingRecordPublisher) -> tuple[RecordBatch | None, RunResult]:
    """Let ``publisher`` make one call; no page says that it has to be made again later."""
    consumer = _OnePage()
    result = await publisher.run(consumer)
    return consumer.page, result


class _OnePage(RecordBatchConsumer):
    def __init__(self) -> None:
        self.page: RecordBatch | None = None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Ask for nothing: a search holds one page per shard, and drops it at once."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.page = batch.in_order()
        return self.page.last_sequence_number


class PolledPages(ShardPages):
    """Pages of GetRecords: throttles, retries and expired iterators are the publisher's business.

    Args:
        create_publisher: makes what reads a shard.
        missing: makes what decides if the service does not find a shard.
        interval_seconds: the least time between two calls to one shard, whichever publishers make
            them: each of them keeps the pace of its own calls only.
        clock: the only source of time.
    """

    def __init__(
        self,
        create_publisher: CreatePollingPublisher,
        missing: Callable[[Shard], MissingShard],
        *,
        interval_seconds: float,
        clock: Clock,
    ) -> None:
        self._create_publisher = create_publisher
        self._missing = missing
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._last_begin: dict[ShardKey, float] = {}

    async def read(
        self, shard: Shard, position: StartingPosition, limit: int
    ) -> AsyncGenerator[ShardPage, None]:
        await self._keep_pace(shard)
        publisher, missing = await self._create_publisher(position, shard), self._missing(shard)
        result = RunResult.INCOMPLETE
        while result is not RunResult.COMPLETE:
            # Anew for each call: adaptive reads change it.
            publisher.limit = limit
            try:
                page, result = await read_page(publisher)
            except SHARD_NOT_FOUND as error:
                if await missing.has_left(error, ShardProgress(position=position)):
                    raise
                continue
            if page is not None:
                missing.reset()
                yield ShardPage(batch=page, has_ended=result is RunResult.COMPLETE)

    async def _keep_pace(self, shard: Shard) -> None:
        """Wait for the shard's turn."""
        elapsed = self._clock.monotonic() - self._last_begin.get(shard.key, -math.inf)
        if elapsed < self._interval_seconds:
            await self._clock.sleep(self._interval_seconds - elapsed)
        self._last_begin[shard.key] = self._clock.monotonic()
