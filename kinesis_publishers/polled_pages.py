"""Reads single pages of shards by polling, for searches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attrs import evolve

from kinesis_publishers.abc.record_publisher import RecordBatchConsumer
from kinesis_publishers.model import RunResult
from kinesis_publishers.publishers.polling import PollingRecordPublisher
from kinesis_publishers.tip_search import ShardPage, ShardPages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kinesis_publishers.abc import PublisherContext
    from kinesis_publishers.config import PollingConfig
    from kinesis_publishers.model import (
        RecordBatch,
        SequenceNumber,
        Shard,
        ShardKey,
        StartingPosition,
    )

__all__ = ["PolledPages"]


class PolledPages(ShardPages):
    """Pages of GetRecords: throttles, retries and expired iterators are the publisher's business.

    Args:
        config: period and retry policies.
        context: client, clock and event sink.
    """

    def __init__(self, config: PollingConfig, context: PublisherContext) -> None:
        self._config = evolve(config, adaptive_reads=False)
        self._context = context
        self._last_begin: dict[ShardKey, float] = {}

    async def read(
        self, shard: Shard, position: StartingPosition, limit: int
    ) -> AsyncGenerator[ShardPage, None]:
        await self._keep_pace(shard)
        config = evolve(self._config, max_records=limit)
        publisher = PollingRecordPublisher(shard, position, config, self._context)
        consumer = _LastBatch()
        result = RunResult.INCOMPLETE
        while result is not RunResult.COMPLETE:
            result = await publisher.run(consumer)
            if consumer.batch is not None:
                yield ShardPage(batch=consumer.batch, has_ended=result is RunResult.COMPLETE)
                consumer.batch = None

    async def _keep_pace(self, shard: Shard) -> None:
        """Wait for the shard's turn: each publisher keeps the pace of its own calls only."""
        clock = self._context.clock
        elapsed = clock.monotonic() - self._last_begin.get(shard.key, -math.inf)
        if elapsed < self._config.interval_seconds:
            await clock.sleep(self._config.interval_seconds - elapsed)
        self._last_begin[shard.key] = clock.monotonic()


class _LastBatch(RecordBatchConsumer):
    def __init__(self) -> None:
        self.batch: RecordBatch | None = None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Ask for nothing: a search holds one page per shard, and drops it at once."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.batch = batch
        return batch.last_sequence_number
