"""Reads exact ranges of many shards at once, in bounded memory, call after call."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from attrs import evolve

from kinesis_publishers.assembly import Services, open_services
from kinesis_publishers.config import Properties
from kinesis_publishers.engine.continuations import Leftover, Leftovers
from kinesis_publishers.engine.range_consumer import RangeConsumer
from kinesis_publishers.readers.range_publishers import RangePublishers
from kinesis_publishers.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from kinesis_publishers.clock import Clock
    from kinesis_publishers.engine.delivery import ConsumerContext, DeliverySink
    from kinesis_publishers.events import EventSink
    from kinesis_publishers.model import ShardRange

__all__ = ["KinesisRangeReader"]


class KinesisRangeReader:
    """Reads ranges, call after call, with the same clients and budget.

    What a range leaves, a publisher and the records that were fetched with its last one, is kept
    for the range that follows it: that needs no GetShardIterator and fetches nothing twice.

    Args:
        services: everything that the properties select.
        publishers: makes what reads the shards.
        leftovers: what earlier ranges have left.
    """

    def __init__(
        self, services: Services, publishers: RangePublishers, leftovers: Leftovers | None = None
    ) -> None:
        self._services = services
        self._publishers = publishers
        self._leftovers = leftovers or Leftovers(services.clock)

    @classmethod
    @asynccontextmanager
    async def from_properties(
        cls,
        properties: Properties | Mapping[str, str | int | float | bool],
        *,
        events: EventSink | None = None,
        clock: Clock | None = None,
    ) -> AsyncIterator[Self]:
        """Open clients as ``properties`` say, yield a reader, and close them.

        Args:
            properties: what to read, and how.
            events: takes diagnostic events, beside the sinks that the properties name.
            clock: the only source of time, this machine's unless it is given.

        Raises:
            ConfigError: the properties cannot work; every problem is named.
        """
        if not isinstance(properties, Properties):
            properties = Properties.parse(properties)
        async with open_services(properties, events=events, clock=clock) as services:
            yield cls(services, RangePublishers.select(properties, services))

    async def read(
        self,
        ranges: Collection[ShardRange],
        sink: DeliverySink,
        *,
        expected_bytes: int | None = None,
    ) -> None:
        """Read exactly ``ranges``, all at once; return when they have been handed on.

        Records of one shard come in their order; those of different shards as they arrive. When one
        range fails the others are stopped.

        Args:
            ranges: what to read, at most one range per shard.
            sink: what the records are handed to.
            expected_bytes: about how much all of it is; with fan-out a little is polled.

        Raises:
            DataLossError: a range does not begin or end with its own records any more.
            ServiceError: a failure that retrying does not mend.
        """
        share = None if expected_bytes is None else expected_bytes // max(1, len(ranges))
        subscribes = self._publishers.subscribes(share)
        publishers = self._publishers
        create = publishers.create_subscribing if subscribes else publishers.plain.create
        context = self._services.consumer_context(sink, create)
        async with TaskScope() as scope:
            for one in ranges:
                begin = self._leftovers.take(one)
                if begin is not None and subscribes:
                    # Its publisher would poll.
                    begin = evolve(begin, publisher=None)
                work = self._read_range(one, context, begin)
                scope.spawn(work, name=f"read a range of {one.shard}")

    async def _read_range(
        self, one: ShardRange, context: ConsumerContext, begin: Leftover | None
    ) -> None:
        leftover = await RangeConsumer(one, context, begin).run()
        if leftover is not None:
            self._leftovers.keep(one.shard, leftover)
