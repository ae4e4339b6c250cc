"""Subscriptions without a service: events that a behaviour pushes, taken one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.abc import ShardSubscription
from kinesis_publishers.model import RecordPage, SequenceNumber, SubscriptionEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kinesis_publishers.model import ChildShard, Record

__all__ = ["FakeSubscription", "event_of"]


class FakeSubscription(ShardSubscription):
    """Hands out what ``pushed`` yields, and raises what it raises.

    Attributes:
        taken: how many events have been received.
        is_closed: whether whoever subscribed has left; nothing may be taken after that.
    """

    def __init__(self, pushed: AsyncIterator[SubscriptionEvent]) -> None:
        self._pushed = pushed
        self._announced: SubscriptionEvent | None = None
        self.taken = 0
        self.is_closed = False

    async def wait_for_event(self) -> int | None:
        assert not self.is_closed, "a closed subscription was read from"
        if self._announced is None:
            self._announced = await anext(self._pushed, None)
        return None if self._announced is None else sum(map(len, self._announced.page.payloads))

    async def receive(self) -> SubscriptionEvent:
        assert not self.is_closed, "a closed subscription was read from"
        event, self._announced = self._announced, None
        assert event is not None, "receive() was called before an event was announced"
        self.taken += 1
        return event


def event_of(
    records: Sequence[Record] = (),
    *,
    continuation: str | None = "",
    child_shards: tuple[ChildShard, ...] = (),
    millis_behind_latest: int | None = 0,
) -> SubscriptionEvent:
    """Return ``records`` as one event.

    Args:
        records: what it holds.
        continuation: its continuation sequence number, that of the last record unless it is given;
            ``None`` as at the end of the shard.
        child_shards: the shards that continue this one, once it has ended.
        millis_behind_latest: the lag.
    """
    if continuation == "":
        continuation = records[-1].sequence_number
    return SubscriptionEvent(
        page=RecordPage(
            payloads=[record.data for record in records],
            partition_keys=[record.partition_key for record in records],
            sequence_numbers=[record.sequence_number for record in records],
            arrival_epoch_seconds=[record.arrival_epoch_seconds for record in records],
            millis_behind_latest=millis_behind_latest,
            child_shards=child_shards,
        ),
        continuation_sequence_number=None if continuation is None else SequenceNumber(continuation),
    )
