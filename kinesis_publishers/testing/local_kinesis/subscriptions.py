"""The open subscriptions, the rules for opening another, and the reasons to end one."""

from __future__ import annotations

from attrs import Factory, define, field

from kinesis_publishers.testing.local_kinesis.answers import ApiError
from kinesis_publishers.testing.local_kinesis.faults import Fault
from kinesis_publishers.testing.local_kinesis.limits import RateWindow
from kinesis_publishers.testing.local_kinesis.shard import Position, Shard, Wakeup
from kinesis_publishers.testing.local_kinesis.stream import Consumer, Stream


@define(eq=False)
class Subscription:
    """One accepted SubscribeToShard.

    Attributes:
        position: what the next event begins with.
        is_over: nothing more is sent, except ``error``.
        error: the exception to send at the end.
        sent_bytes: the data and partition keys that were sent within the last second.
        last_event_at: when the last event was sent; when the subscription was opened if none was.
    """

    stream: Stream
    shard: Shard
    consumer: Consumer
    position: Position
    opened_at: float
    fault: Fault | None = None
    is_over: bool = False
    error: ApiError | None = None
    event_count: int = 0
    last_event_at: float = Factory(lambda self: self.opened_at, takes_self=True)
    sent_bytes: RateWindow = field(factory=RateWindow)
    wakeup: Wakeup = field(factory=Wakeup)

    def describe(self, now: float) -> dict[str, object]:
        """Return what the admin calls show of it."""
        return {
            "shard_id": self.shard.shard_id,
            "age_seconds": now - self.opened_at,
            "events": self.event_count,
        }

    def close(self) -> None:
        """End it because its body has ended or its client has left."""
        self.end()
        self.shard.watchers.discard(self.wakeup)

    def end(self, error: ApiError | None = None) -> None:
        """End it, with an exception in the stream if ``error`` is given; the first end counts."""
        if not self.is_over:
            self.is_over, self.error = True, error
        self.wakeup.ring()


@define(eq=False)
class Subscriptions:
    """The newest subscription of each consumer to each shard, open or over."""

    _newest: dict[tuple[str, str], Subscription] = field(factory=dict)

    def seconds_since_opening(self, consumer: Consumer, shard: Shard, now: float) -> float:
        """Return the age of the newest subscription; infinity if there was none."""
        newest = self._newest.get((consumer.arn, shard.shard_id))
        return now - newest.opened_at if newest is not None else float("inf")

    def open(self, subscription: Subscription, replaced: ApiError | None) -> None:
        """Keep a subscription; the one whose place it takes ends, with ``replaced`` if given."""
        key = subscription.consumer.arn, subscription.shard.shard_id
        if key in self._newest:
            self._newest[key].end(replaced)
        self._newest[key] = subscription

    def find(
        self, stream: str | None = None, shard_id: str | None = None, consumer: str | None = None
    ) -> list[Subscription]:
        """Return the open subscriptions of a stream, shard and consumer (by name)."""
        return [
            found
            for found in self._newest.values()
            if not found.is_over
            and stream in (None, found.stream.name)
            and shard_id in (None, found.shard.shard_id)
            and consumer in (None, found.consumer.name)
        ]

    def end(self, error: ApiError, consumer: Consumer | None = None) -> None:
        """End and forget those of a consumer, or all of them."""
        for key, subscription in list(self._newest.items()):
            if consumer is None or subscription.consumer is consumer:
                subscription.end(error)
                del self._newest[key]
