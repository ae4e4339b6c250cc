"""Reads exact ranges of many shards at once, in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Self

from attrs import define, field

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher, RecordPublisherFactory
from kinesis_publishers.assembly import Services, open_services, publisher_factory_class
from kinesis_publishers.config import Properties, SourceConfig
from kinesis_publishers.config.assignments import has_other_reader
from kinesis_publishers.config.catalogue import CUSTOM
from kinesis_publishers.engine.delivery import DeliverySink
from kinesis_publishers.engine.range_consumer import RangeConsumer
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardRange,
    StartingPosition,
    continue_from,
)
from kinesis_publishers.publishers.fanout import FanOutRecordPublisher
from kinesis_publishers.tasks import TaskScope


class KinesisRangeReader:
    """Reads ranges; all calls share the clients and the budget."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @classmethod
    @asynccontextmanager
    async def from_properties(
        cls, properties: Properties, *, packs_columns: bool = False
    ) -> AsyncIterator[Self]:
        """Open clients as ``properties`` say, yield a reader, and close them."""
        async with open_services(properties, packs_columns=packs_columns) as services:
            yield cls(services)

    async def read(
        self,
        ranges: Collection[ShardRange],
        sink: DeliverySink,
        *,
        expected_bytes: int | None = None,
    ) -> None:
        """Read exactly ``ranges``, at most one per shard; return when all have been delivered.

        Records of one shard come in order, those of different shards as they arrive. If a range
        fails, the others are stopped. ``expected_bytes`` is the approximate total: fan-out polls
        small ranges.

        Raises:
            DataLossError: a range no longer begins or ends with its own records.
            ServiceError: a failure that retrying does not cure.
        """
        share = None if expected_bytes is None else expected_bytes // max(1, len(ranges))
        is_large = share is None or share >= _MIN_SUBSCRIBED_BYTES
        subscribes = self._services.factory.subscribes and is_large
        create = self._subscribe if subscribes else self._services.range_factory.create
        context = self._services.consumer_context(sink, create)
        async with TaskScope() as scope:
            for one in ranges:
                work = RangeConsumer(one, context).run()
                scope.spawn(work, name=f"read a range of {one.shard}")

    async def _subscribe(self, position: StartingPosition, shard: Shard) -> RecordPublisher:
        subscriber = await self._services.factory.create(position, shard)
        return SubscribeThenPoll(shard, position, subscriber, self._services.polling)


_LOGGER = logging.getLogger(__name__)

# A subscription costs a call and a connection, and blocks the shard for other readers for five
# seconds. Polling reads this much in about two seconds.
_MIN_SUBSCRIBED_BYTES = 4 * 1024 * 1024


def as_polling(properties: Properties) -> Properties:
    """Return ``properties`` with polling in place of subscriptions."""
    if not publisher_factory_class(properties).subscribes:
        return properties
    publisher = SourceConfig.record_publisher
    # Custom options go with the publisher that reads them, unless a class for credentials does too.
    custom = () if has_other_reader(properties) else properties.members(CUSTOM)
    return properties.with_values(
        {publisher: publisher.default, **{CUSTOM.of(name): None for name in custom}}
    )


@define(eq=False)
class SubscribeThenPoll(RecordPublisher):
    """Publishes one shard: the first :meth:`run` is one subscription, the following ones poll.

    A shard has one subscription per consumer. It is refused while another is younger than five
    seconds, a second reader takes it over, or it breaks: in each case polling continues after the
    last record at once, and drives out no other reader.
    """

    _shard: Shard
    _position: StartingPosition
    _subscriber: RecordPublisher | None
    _polling: RecordPublisherFactory
    _poller: RecordPublisher | None = field(default=None, init=False)

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            follower = _Follower(consumer, self._position)
            result = await subscriber.run(follower)
            self._position = follower.position
            self._log(subscriber)
            return result
        if self._poller is None:
            self._poller = await self._polling.create(self._position, self._shard)
        return await self._poller.run(consumer)

    def _log(self, subscriber: RecordPublisher) -> None:
        failure = subscriber.failure if isinstance(subscriber, FanOutRecordPublisher) else None
        if isinstance(failure, ServiceError) and not failure.retryable:
            # The records are right, but the user pays for fan-out and gets polling.
            _LOGGER.warning("%s: not subscribed to but polled: %s", self._shard, failure)


@define(eq=False)
class _Follower(RecordBatchConsumer):
    """Passes records on; ``position`` is where reading continues after them."""

    _consumer: RecordBatchConsumer
    position: StartingPosition

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._consumer.wait_for_space(records, payload_bytes)

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        processed = await self._consumer(batch)
        if len(batch):
            self.position = continue_from(self.position, processed)
        return processed
