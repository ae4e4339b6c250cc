"""The calls that carry records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kinesis_publishers.model import (
        RecordPage,
        Shard,
        StartingPosition,
        SubscriptionEvent,
    )

__all__ = ["DataPlane", "ShardSubscription"]


class ShardSubscription(ABC):
    """An accepted SubscribeToShard, from which events are taken one by one.

    What is not taken stays with the service, apart from a small buffer: whoever does not read holds
    the subscription back, and costs no memory. Both methods raise what ends the subscription, but
    only after the events that arrived before it have been taken:

    - ``ConnectionFailedError``: the connection broke or ended inside an event, or no whole event,
      not even a heartbeat, came within 35 seconds of waiting for the network;
    - ``MalformedResponseError``: an event is damaged (its checksum is wrong, it cannot be decoded);
    - any other ``ServiceError``: the service ended the subscription with this exception.
    """

    @abstractmethod
    async def wait_for_event(self) -> int | None:
        """Wait until an event begins to arrive, and leave it there.

        Returns:
            How many bytes the payloads of the event's records have at most, for which room is made
            before it is received; ``None`` when the service has ended the subscription.
        """

    @abstractmethod
    async def receive(self) -> SubscriptionEvent:
        """Return the event that :meth:`wait_for_event` has announced, once all of it is there."""


class DataPlane(ABC):
    """Reads shards. Makes each call once: retrying belongs to the caller.

    Every method raises :class:`~kinesis_publishers.errors.ServiceError` (or a subclass) when AWS
    refuses or cannot be reached.
    """

    @abstractmethod
    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """Return an iterator that stands at ``position``; it is valid for five minutes."""

    @abstractmethod
    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        """Return up to ``limit`` records (1 to 10,000) and 10 MB from ``shard_iterator`` on."""

    @abstractmethod
    def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AbstractAsyncContextManager[ShardSubscription]:
        """Subscribe to ``shard`` from ``position`` on (enhanced fan-out).

        Entering the context makes the call and returns once the service has accepted it; leaving
        closes the subscription and drops what was not taken. It may be left by another task, while
        nothing is read. The service ends a subscription after five minutes at the latest.

        Args:
            shard: what to read.
            consumer_arn: the registered consumer, which has 2 MB/s of its own.
            position: where to begin; never LATEST.
        """
