"""What a subscription sends next: records, a sign of life, the end of its shard or its own end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, frozen

from kinesis_publishers.testing.local_kinesis.answers import ConnectionBroken
from kinesis_publishers.testing.local_kinesis.errors import ApiError
from kinesis_publishers.testing.local_kinesis.event_stream import event_frame
from kinesis_publishers.testing.local_kinesis.operations.positions import Position
from kinesis_publishers.testing.local_kinesis.operations.shapes import (
    child_shards_of,
    millis_behind,
)

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.faults import Fault
    from kinesis_publishers.testing.local_kinesis.shard import Page
    from kinesis_publishers.testing.local_kinesis.state import ServiceState
    from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

__all__ = ["Event", "EventFeed", "Wait"]

# The sum of an instant and what is left until another one may be a little before that other one.
_SHORTEST_WAIT_SECONDS = 0.001


@frozen
class Event:
    """A frame to send, and what goes wrong with it."""

    frame: bytes
    fault: Fault | None


@frozen
class Wait:
    """Nothing to send yet.

    Attributes:
        seconds: when to ask again at the latest.
        is_for_records: a new record is a reason to ask again before.
    """

    seconds: float
    is_for_records: bool = False


@define(eq=False)
class EventFeed:
    """Makes the events of one subscription, each when it is asked for and not before.

    It neither waits nor sends, and it is called under the service's lock.
    """

    _state: ServiceState
    _subscription: Subscription

    def next_step(self) -> Event | Wait | None:
        """Return what to do next; None once the subscription is over.

        Raises:
            ConnectionBroken: by a scripted fault.
        """
        subscription = self._subscription
        self._end_if_due()
        if subscription.is_over:
            return None
        fault = self._due_fault()
        if fault is not None and fault.kind == "reset":
            raise ConnectionBroken
        if fault is not None and fault.kind == "silence":
            return self._wait(self._state.behaviour.heartbeat_seconds)
        if subscription.position.kind == "stuck":
            return self._sign_of_life()
        number = subscription.position.number
        limits = self._state.limits
        page = subscription.shard.page(number, limits.event_max_records, limits.event_max_bytes)
        if page.fragments:
            return self._records(page)
        if subscription.shard.has_ended_at(number):
            return self._last_event(page)
        return self._sign_of_life()

    def _end_if_due(self) -> None:
        state, subscription = self._state, self._subscription
        stream, shard_id = subscription.stream, subscription.shard.shard_id
        try:
            if state.account.find_readable(stream.name) is not stream:
                raise state.account.not_found(stream.name)
            stream.shard(shard_id, state.now_ms())
        except ApiError as error:
            subscription.end(error)
        if self._seconds_left() <= 0:
            subscription.end()
        fault = self._due_fault()
        if fault is not None and fault.kind == "end":
            subscription.end()
        elif fault is not None and fault.kind == "exception":
            subscription.end(ApiError(fault.code, fault.message or "Scripted fault."))

    def _due_fault(self) -> Fault | None:
        """Return the fault that hits the next event."""
        fault = self._subscription.fault
        if fault is None or fault.events_before != self._subscription.event_count:
            return None
        return fault

    def _seconds_left(self) -> float:
        lasts = self._state.limits.subscription_seconds
        if lasts is None:
            return float("inf")
        return self._subscription.opened_at + lasts - self._state.monotonic()

    def _records(self, page: Page) -> Event | Wait:
        state, subscription = self._state, self._subscription
        most_bytes, now = state.limits.subscribe_bytes_per_second, state.monotonic()
        if most_bytes is not None:
            sent = subscription.sent_bytes
            seconds = sent.seconds_until_fits(now, page.payload_bytes, most_bytes)
            if seconds > 0:
                return self._wait(seconds)
            sent.take(now, page.payload_bytes)
            # A record above the rate passes alone and is made up for.
            if page.payload_bytes > most_bytes:
                sent.block_until(now + page.payload_bytes / most_bytes)
        has_ended = subscription.shard.has_ended_at(page.next_number)
        if has_ended and not state.behaviour.late_shard_end:
            return self._last_event(page)
        subscription.position = Position(page.next_number)
        return self._event(
            page.fragments, page.next_number - 1, millis_behind(page, state.now_ms())
        )

    def _last_event(self, page: Page) -> Event:
        subscription = self._subscription
        children = child_shards_of(subscription.stream, subscription.shard)
        fault = subscription.fault
        continues = fault is not None and fault.kind == "continues_with_children"
        number = subscription.shard.last_number if continues else None
        event = self._event(page.fragments, number, 0, children)
        subscription.end()
        return event

    def _sign_of_life(self) -> Event | Wait:
        """Return an event without records, if it is time for one."""
        state, subscription = self._state, self._subscription
        # An instant, not a duration: what is left of one may be too small to move a clock.
        due_at = subscription.last_event_at + state.behaviour.heartbeat_seconds
        now = state.monotonic()
        if now < due_at:
            return self._wait(due_at - now, is_for_records=True)
        if subscription.position.kind == "stuck":
            behind = subscription.stream.retention_ms
            return self._event([], subscription.position.number - 1, behind)
        return self._event([], subscription.shard.mark_tip(state.now_ms()), 0)

    def _wait(self, seconds: float, *, is_for_records: bool = False) -> Wait:
        seconds = min(seconds, self._seconds_left())
        due_ms = self._subscription.stream.pending_due_ms
        if due_ms is not None:
            seconds = min(seconds, (due_ms - self._state.now_ms()) / 1000)
        return Wait(max(seconds, _SHORTEST_WAIT_SECONDS), is_for_records)

    def _event(
        self,
        fragments: list[bytes],
        continuation: int | None,
        behind_ms: int,
        child_shards: list[dict[str, object]] | None = None,
    ) -> Event:
        fault = self._due_fault()
        arranged = fragments if fault is None else fault.arrange(fragments)
        event = Event(event_frame(arranged, continuation, behind_ms, child_shards), fault)
        self._subscription.event_count += 1
        self._subscription.last_event_at = self._state.monotonic()
        return event
