"""Which subscriptions are open, who may open another, and why one has to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers.testing.local_kinesis.limits import RateWindow
from kinesis_publishers.testing.local_kinesis.shard import Wakeup

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.answers import ApiError
    from kinesis_publishers.testing.local_kinesis.faults import Fault
    from kinesis_publishers.testing.local_kinesis.shard import Position, Shard
    from kinesis_publishers.testing.local_kinesis.stream import Consumer, Stream

__all__ = ["Subscription", "Subscriptions"]


@define(eq=False)
class Subscription:
    """One accepted SubscribeToShard.

    Attributes:
        position: what the next event begins with.
        opened_at: the time of the call, monotonic.
        fault: what goes wrong with its events.
        is_over: nothing more is sent, except ``error``.
        error: the exception to send at the end, if it is to end with one.
        sent_bytes: the data and partition keys that were sent of late.
        event_count: how many events were sent.
        last_event_at: when the last one was sent; when the subscription was opened if none was.
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
    last_event_at: float = field(init=False)
    sent_bytes: RateWindow = field(factory=RateWindow)
    wakeup: Wakeup = field(factory=Wakeup)

    def __attrs_post_init__(self) -> None:
        self.last_event_at = self.opened_at

    def describe(self, now: float) -> dict[str, object]:
        """Return what the admin calls show of it."""
        return {
            "shard_id": self.shard.shard_id,
            "age_seconds": now - self.opened_at,
            "events": self.event_count,
        }

    def end(self, error: ApiError | None = None) -> None:
        """End it, with an exception in the stream if ``error`` is given; the first end counts."""
        if not self.is_over:
            self.is_over, self.error = True, error
        self.wakeup.ring()


@define
class _Place:
    """The shard as one consumer sees it."""

    opened_at: float
    subscription: Subscription | None


@define(eq=False)
class Subscriptions:
    """The open subscriptions, at most one for each consumer and shard."""

    _places: dict[tuple[str, str], _Place] = field(factory=dict)

    def seconds_since_opening(self, consumer: Consumer, shard: Shard, now: float) -> float:
        """Return the age of the newest subscription, open or over; infinity if there was none."""
        place = self._places.get((consumer.arn, shard.shard_id))
        return now - place.opened_at if place is not None else float("inf")

    def open(self, subscription: Subscription, replaced: ApiError | None) -> None:
        """Keep a subscription; the one whose place it takes ends, with ``replaced`` if given."""
        key = _key_of(subscription)
        place = self._places.get(key)
        if place is not None and place.subscription is not None:
            place.subscription.end(replaced)
        self._places[key] = _Place(subscription.opened_at, subscription)

    def close(self, subscription: Subscription) -> None:
        """Forget a subscription that has ended or whose client is gone."""
        subscription.end()
        subscription.shard.watchers.discard(subscription.wakeup)
        place = self._places.get(_key_of(subscription))
        if place is not None and place.subscription is subscription:
            place.subscription = None

    def find(
        self, stream: str | None = None, shard_id: str | None = None, consumer: str | None = None
    ) -> list[Subscription]:
        """Return the open subscriptions of a stream, shard and consumer (by name)."""
        return [
            found
            for place in self._places.values()
            if (found := place.subscription) is not None
            and not found.is_over
            and stream in (None, found.stream.name)
            and shard_id in (None, found.shard.shard_id)
            and consumer in (None, found.consumer.name)
        ]

    def end_consumer(self, consumer: Consumer, error: ApiError) -> None:
        """End the subscriptions of a consumer that is deregistered, and forget its places."""
        for subscription in self.find():
            if subscription.consumer.arn == consumer.arn:
                subscription.end(error)
        self._places = {key: one for key, one in self._places.items() if key[0] != consumer.arn}

    def clear(self, error: ApiError) -> None:
        """End and forget all of them."""
        for subscription in self.find():
            subscription.end(error)
        self._places.clear()

    def end_stream(self, stream: Stream, error: ApiError) -> None:
        """End the subscriptions of a stream that is deleted."""
        for subscription in self.find():
            if subscription.stream is stream:
                subscription.end(error)


def _key_of(subscription: Subscription) -> tuple[str, str]:
    return subscription.consumer.arn, subscription.shard.shard_id
