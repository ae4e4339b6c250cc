"""How ranges are read under enhanced fan-out: one subscription, and what it leaves by polling.

The publishers do not know each other; this stands above them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from attrs import frozen

from kinesis_publishers.abc import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.assembly import publisher_factory_class
from kinesis_publishers.config import Properties, SourceConfig, SubscriptionHttpConfig
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.model import RunResult, Shard, StartingPosition, continue_from
from kinesis_publishers.publishers.fanout import FanOutRecordPublisher

if TYPE_CHECKING:
    from kinesis_publishers.abc import RecordPublisherFactory
    from kinesis_publishers.assembly import Services
    from kinesis_publishers.model import RecordBatch, SequenceNumber

__all__ = ["RangePublishers", "SubscribeThenPoll", "as_polling"]

_LOGGER = logging.getLogger(__name__)

# A subscription costs a call, a connection and, for whoever comes within the next five seconds, the
# shard. Polling reads so much in about two seconds.
_MIN_SUBSCRIBED_BYTES = 4 * 1024 * 1024


def as_polling(properties: Properties) -> Properties:
    """Return ``properties`` that poll, if they subscribe to shards; any others stay."""
    if not publisher_factory_class(properties).subscribes:
        return properties
    publisher, http2_client = SourceConfig.record_publisher, SubscriptionHttpConfig.http2_client
    return properties.with_values(
        {
            publisher: publisher.default,
            # Polling does not need the client of the subscriptions to be installed.
            http2_client: http2_client.default.value,
        }
    )


class SubscribeThenPoll(RecordPublisher):
    """Publishes one shard: the first :meth:`run` is one subscription, the following ones poll.

    A shard has one subscription per consumer. When it is refused, because somebody else's is
    younger than five seconds, taken over by a second reader of the same range, or breaks, then
    nothing is waited for and nobody is driven out: polling goes on after the last record.

    Args:
        shard: what to read.
        starting_position: where to begin; not LATEST.
        subscriber: makes the one subscription.
        polling: makes what goes on.
    """

    def __init__(
        self,
        shard: Shard,
        starting_position: StartingPosition,
        subscriber: RecordPublisher,
        polling: RecordPublisherFactory,
    ) -> None:
        self._shard = shard
        self._position = starting_position
        self._subscriber: RecordPublisher | None = subscriber
        self._polling = polling
        self._poller: RecordPublisher | None = None

    async def run(self, consumer: RecordBatchConsumer) -> RunResult:
        if self._poller is not None:
            return await self._poller.run(consumer)
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            result = await subscriber.run(_Follower(consumer, self))
            self._log(subscriber)
            return result
        self._poller = await self._polling.create(self._position, self._shard)
        return await self._poller.run(consumer)

    def _log(self, subscriber: RecordPublisher) -> None:
        failure = subscriber.failure if isinstance(subscriber, FanOutRecordPublisher) else None
        if isinstance(failure, ServiceError) and not failure.retryable:
            # The rows are right, and yet somebody pays for fan-out and does not get it.
            _LOGGER.warning("%s: not subscribed to but polled: %s", self._shard, failure)

    def follow(self, batch: RecordBatch, processed: SequenceNumber | None) -> None:
        """Note how far the consumer of the subscription has come."""
        if len(batch):
            self._position = continue_from(self._position, processed)


@frozen(eq=False)
class _Follower(RecordBatchConsumer):
    _consumer: RecordBatchConsumer
    _publisher: SubscribeThenPoll

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        await self._consumer.wait_for_space(records, payload_bytes)

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        processed = await self._consumer(batch)
        self._publisher.follow(batch, processed)
        return processed


@frozen(kw_only=True, eq=False)
class RangePublishers:
    """Makes what reads ranges.

    Attributes:
        plain: makes what reads any range.
        fan_out: subscribes to large ones, if the properties select it.
    """

    plain: RecordPublisherFactory
    fan_out: RecordPublisherFactory | None = None

    @classmethod
    def select(cls, properties: Properties, services: Services) -> Self:
        """Return what ``properties`` select; somebody else's publisher reads its ranges itself."""
        if publisher_factory_class(properties).subscribes:
            return cls(plain=services.polling, fan_out=services.factory)
        return cls(plain=services.factory)

    def subscribes(self, expected_bytes: int | None) -> bool:
        """Say whether a range of about this size is subscribed to; ``None`` is not known."""
        is_large = expected_bytes is None or expected_bytes >= _MIN_SUBSCRIBED_BYTES
        return self.fan_out is not None and is_large

    async def create_subscribing(self, position: StartingPosition, shard: Shard) -> RecordPublisher:
        """Return what reads a large range; only under fan-out."""
        assert self.fan_out is not None
        subscriber = await self.fan_out.create(position, shard)
        return SubscribeThenPoll(shard, position, subscriber, self.plain)
