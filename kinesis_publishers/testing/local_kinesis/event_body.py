"""The body of an accepted SubscribeToShard: pulls events, waits between them, applies faults."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.answers import ConnectionBroken
from kinesis_publishers.testing.local_kinesis.event_feed import EventFeed, Wait
from kinesis_publishers.testing.local_kinesis.event_stream import (
    INITIAL_RESPONSE,
    exception_frame,
    with_bad_crc,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from threading import RLock

    from kinesis_publishers.testing.local_kinesis.event_feed import Event
    from kinesis_publishers.testing.local_kinesis.faults import Fault
    from kinesis_publishers.testing.local_kinesis.state import ServiceState
    from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

__all__ = ["open_body"]

# Enough to cut through the prelude and the headers of the smallest event.
_TRICKLE_PIECES = 20


async def open_body(
    state: ServiceState, subscription: Subscription, lock: RLock
) -> AsyncGenerator[bytes, None]:
    """Return the body; closing it, or reading it to its end, closes the subscription.

    An event is made when the body is read and not before: a client that does not read costs no
    memory. ``lock`` is held while one is made, never while one is awaited or sent.
    """
    body = _body(state, subscription, lock)
    # Only a generator that has been started runs its "finally" when it is closed: the subscription
    # of a client that leaves before the first piece would stay open.
    await anext(body)
    return body


async def _body(
    state: ServiceState, subscription: Subscription, lock: RLock
) -> AsyncGenerator[bytes, None]:
    feed = EventFeed(state, subscription)
    clock = state.account.clock
    try:
        yield b""
        yield INITIAL_RESPONSE
        while (event := await _pull(feed, state, subscription, lock)) is not None:
            fault = event.fault
            for index, piece in enumerate(_pieces_of(event.frame, fault)):
                if index and fault is not None:
                    await clock.sleep(fault.delay_seconds)
                yield piece
            if fault is not None and fault.kind == "reset_mid_event":
                raise ConnectionBroken
            if fault is not None and fault.kind == "truncated_frame":
                return
        if subscription.error is not None:
            yield exception_frame(subscription.error.code, subscription.error.message)
    finally:
        with lock:
            state.subscriptions.close(subscription)


def _pieces_of(frame: bytes, fault: Fault | None) -> list[bytes]:
    """Return what is sent instead of a frame; between pieces there is the delay of the fault."""
    if fault is None:
        return [frame]
    if fault.kind == "bad_crc":
        return [with_bad_crc(frame)]
    if fault.kind == "trickle":
        size = -(-len(frame) // _TRICKLE_PIECES)
        return [frame[start : start + size] for start in range(0, len(frame), size)]
    if fault.kind in ("reset_mid_event", "truncated_frame"):
        return [frame[: len(frame) // 2]]
    return [frame]


async def _pull(
    feed: EventFeed, state: ServiceState, subscription: Subscription, lock: RLock
) -> Event | None:
    """Wait for the next event; None when there are no more."""
    # A shard that never runs dry must leave the loop to others between two events.
    await asyncio.sleep(0)
    while True:
        with lock:
            step = feed.next_step()
            if not isinstance(step, Wait):
                return step
            # Armed under the lock: what is put from here on rings.
            armed = subscription.wakeup.arm()
            if step.is_for_records:
                subscription.shard.watchers.add(subscription.wakeup)
        with suppress(TimeoutError):
            async with state.account.clock.timeout(step.seconds):
                await armed
