"""The watermark of a fetcher: computed, reported, and waited for by shards that are ahead."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeAlias

from kinesis_publishers.assembly import Services, watermark_assigner_of
from kinesis_publishers.config import LeaseConfig, LeaseFormat, Properties, WatermarkConfig
from kinesis_publishers.engine.alignment import common_instant
from kinesis_publishers.engine.delivery import Delivery, DeliverySink, ForwardingSink, ShardStatus
from kinesis_publishers.engine.slow_calls import LOOK_SECONDS
from kinesis_publishers.engine.watermarks import ShardWatermarks
from kinesis_publishers.errors import ProcessingCancelledError
from kinesis_publishers.events import WatermarkMeasured
from kinesis_publishers.leases.leases import LeasedShards
from kinesis_publishers.model import Shard, ShardKey
from kinesis_publishers.progress.rows import Progress
from kinesis_publishers.tasks import TaskScope, cancelled_from_outside_only, wait_for_event

_LOGGER = logging.getLogger(__name__)

# The default period of Flink's connector. An advance with each answer of each shard is too often.
_PERIOD_SECONDS = 0.2

OnWatermark: TypeAlias = Callable[[datetime], Awaitable[None]]
"""Takes a watermark: all records with earlier event times, within the disorder, are processed."""


class WatermarkSink(ForwardingSink):
    """Passes everything on, and advances the watermark behind what has been processed.

    With ``leases`` it is the watermark of all workers. ``on_watermark`` is called with each
    watermark, one call at a time.
    """

    def __init__(
        self,
        inner: DeliverySink,
        services: Services,
        shards: ShardWatermarks,
        config: WatermarkConfig,
        leases: LeasedShards | None,
        on_watermark: OnWatermark | None,
    ) -> None:
        super().__init__(inner)
        self._clock, self._events = services.clock, services.events
        self._shards = shards
        self._config = config
        self._leases = leases
        self._on_watermark = on_watermark
        self._watermark: datetime | None = None
        # The least watermark of the shards that are not at their tips.
        self._reading: datetime | None = None
        self._published_at = self._told_at = -math.inf
        self._is_over, self._has_advanced = asyncio.Event(), asyncio.Event()

    @classmethod
    def around(
        cls,
        inner: DeliverySink,
        properties: Properties,
        services: Services,
        leases: LeasedShards | None,
        on_watermark: OnWatermark | None,
    ) -> DeliverySink:
        """Return ``inner`` with watermarks, if the properties or the caller ask for them."""
        config = WatermarkConfig.from_properties(properties)
        is_asked = on_watermark or config.lookahead_seconds
        if not (is_asked or properties.is_given(WatermarkConfig.assigner)):
            return inner
        if leases is not None:
            lease = LeaseConfig.from_properties(properties)
            least = max(2 * config.sync_interval_seconds, lease.failover_seconds)
            if lease.format is LeaseFormat.KCL:
                _LOGGER.warning(
                    "The table of the Kinesis Client Library has no room for watermarks: this "
                    "worker has the watermark of its own shards alone. With kinesis.lease.format = "
                    "own it has that of all workers."
                )
                leases = None
            elif 0 < config.lookahead_seconds < least:
                _LOGGER.warning(
                    "%s is %g s. Below %g s a worker often stands still, because it learns too "
                    "late how far the others are. Give twice %s, and %s, or make both shorter.",
                    WatermarkConfig.lookahead_seconds.full_key,
                    config.lookahead_seconds,
                    least,
                    WatermarkConfig.sync_interval_seconds.full_key,
                    LeaseConfig.failover_seconds.full_key,
                )
        shards = ShardWatermarks(watermark_assigner_of(properties), config, services.clock)
        return cls(inner, services, shards, config, leases, on_watermark)

    @property
    def enough_records(self) -> int | None:
        """How many records of a shard may wait to be processed while it is read; ``None``: any."""
        return self._config.queue_capacity if self._config.lookahead_seconds > 0 else None

    def follow(self, shards: Collection[Shard], progress: Progress) -> None:
        """Update the shards that are read, and where each begins."""
        stored = None if self._leases is None else self._leases.stored_watermarks()
        self._shards.follow(shards, progress, stored)

    async def deliver(self, delivery: Delivery) -> None:
        with self._shards.processing(delivery):
            await self._inner.deliver(delivery)

    def observe(self, status: ShardStatus) -> None:
        if self._shards.note(status) and self._leases is not None:
            # The next checkpoint may be the last write of this worker, or of any.
            key = status.shard.key
            self._leases.publish({key: self._shards.front(key)})
        self._inner.observe(status)

    def observe_discovery(self) -> None:
        self._inner.observe_discovery()
        self._shards.note_listing()

    async def wait_until_wanted(self, shard: ShardKey) -> None:
        # A shard that is behind finds room: one that is ahead takes none.
        while self.enough_records and self._shards.is_ahead(shard, self._reading):
            await self._has_advanced.wait()
        await self._inner.wait_until_wanted(shard)

    @asynccontextmanager
    async def advancing(self) -> AsyncIterator[None]:
        """Advance the watermark while the body runs, and a last time at its end.

        What ``on_watermark`` raises cancels the body.
        """
        self._is_over.clear()
        async with TaskScope() as scope:
            scope.spawn(self._advance_periodically(), name="advance the watermark")
            try:
                yield
            finally:
                self._is_over.set()

    async def _advance_periodically(self) -> None:
        while not self._is_over.is_set():
            await self._advance()
            await wait_for_event(self._is_over, timeout_seconds=_PERIOD_SECONDS, clock=self._clock)
        await self._advance()

    async def _advance(self) -> None:
        if self._leases is not None and (ended := self._shards.ended):
            self._shards.forget(self._leases.continued(ended))
        fronts, now = self._shards.fronts(), self._clock.monotonic()
        others = []
        if self._leases is not None:
            if now - self._published_at >= self._config.sync_interval_seconds:
                self._leases.publish(fronts)
                self._published_at = now
            others = self._leases.other_fronts(fronts)
        found = common_instant([*fronts.values(), *others])
        if self.enough_records:
            self._reading = self._shards.reading(others)
            self._has_advanced.set()
            self._has_advanced = asyncio.Event()
        last = self._watermark
        has_advanced = found is not None and (last is None or found > last)
        watermark = found if has_advanced else last
        if watermark is None or not (has_advanced or now - self._told_at >= LOOK_SECONDS):
            return
        self._watermark, self._told_at = watermark, now
        seconds = (self._clock.now() - watermark).total_seconds()
        self._events(WatermarkMeasured(watermark=watermark, seconds=seconds))
        if has_advanced and self._on_watermark is not None:
            with cancelled_from_outside_only(ProcessingCancelledError, "on_watermark"):
                await self._on_watermark(watermark)
