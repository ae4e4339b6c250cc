"""The body of an accepted SubscribeToShard: its events, their frames and faults."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from threading import RLock

import orjson
from attrs import define, frozen

from kinesis_publishers.testing.local_kinesis.answers import ApiError, ConnectionBroken
from kinesis_publishers.testing.local_kinesis.faults import Fault
from kinesis_publishers.testing.local_kinesis.shard import Page, Position
from kinesis_publishers.testing.local_kinesis.state import ServiceState
from kinesis_publishers.testing.local_kinesis.stream import child_shards_of, millis_behind
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

# An instant plus the time until another one may come to a little less than that other one.
_SHORTEST_WAIT_SECONDS = 0.001


@frozen
class Event:
    """A frame to send, and what goes wrong with it."""

    frame: bytes
    fault: Fault | None


@frozen
class Wait:
    """Nothing to send for ``seconds``; with ``is_for_records``, a new record ends the wait."""

    seconds: float
    is_for_records: bool = False


@define(eq=False)
class EventFeed:
    """Makes the events of one subscription, each when it is asked for and not before."""

    _state: ServiceState
    _subscription: Subscription

    def next_step(self) -> Event | Wait | None:
        """Return what to do next, under the service's lock; None once the subscription is over."""
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

    async def pull(self, lock: RLock) -> Event | None:
        """Wait for the next event; None when there are no more."""
        subscription = self._subscription
        # A shard that never runs dry must leave the loop to others between two events.
        await asyncio.sleep(0)
        while True:
            with lock:
                step = self.next_step()
                if not isinstance(step, Wait):
                    return step
                # Armed under the lock: what is put from here on rings.
                armed = subscription.wakeup.arm()
                if step.is_for_records:
                    subscription.shard.watchers.add(subscription.wakeup)
            with suppress(TimeoutError):
                async with self._state.clock.timeout(step.seconds):
                    await armed

    def _end_if_due(self) -> None:
        state, subscription = self._state, self._subscription
        stream, shard_id = subscription.stream, subscription.shard.shard_id
        try:
            if state.find_readable(stream.name) is not stream:
                raise state.not_found(stream.name)
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
        if fault is None or (fault.after_events or 0) != self._subscription.event_count:
            return None
        return fault

    def _seconds_left(self) -> float:
        lasts = self._state.limits.subscription_seconds
        if lasts is None:
            return float("inf")
        return self._subscription.opened_at + lasts - self._state.clock.monotonic()

    def _records(self, page: Page) -> Event | Wait:
        state, subscription = self._state, self._subscription
        most_bytes, now = state.limits.subscribe_bytes_per_second, state.clock.monotonic()
        if most_bytes is not None:
            sent = subscription.sent_bytes
            seconds = sent.seconds_until_fits(now, page.payload_bytes, most_bytes)
            if seconds > 0:
                return self._wait(seconds)
            sent.take(now, page.payload_bytes, most_bytes)
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
        # An instant, not a duration: the rest of one may be too small to move a clock.
        due_at = subscription.last_event_at + state.behaviour.heartbeat_seconds
        now = state.clock.monotonic()
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
        self._subscription.last_event_at = self._state.clock.monotonic()
        return event


# The type of a header that is a string (AWS event stream encoding).
_STRING = 7


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return a frame of ``application/vnd.amazon.eventstream``, with its checksums."""
    encoded = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    # Two lengths and two checksums.
    lengths = struct.pack("!II", 16 + len(encoded) + len(payload), len(encoded))
    frame = lengths + struct.pack("!I", zlib.crc32(lengths)) + encoded + payload
    return frame + struct.pack("!I", zlib.crc32(frame))


def _header(name: bytes, value: bytes) -> bytes:
    return b"%c%b%c%b%b" % (len(name), name, _STRING, struct.pack("!H", len(value)), value)


def _headers(message_type: str, name: str) -> dict[str, str]:
    return {
        f":{message_type}-type": name,
        ":content-type": "application/x-amz-json-1.1",
        ":message-type": message_type,
    }


_EVENT_HEADERS = _headers("event", "SubscribeToShardEvent")

#: The frame that every accepted subscription begins with.
INITIAL_RESPONSE = encode_frame(_headers("event", "initial-response"), b"{}")


def event_frame(
    fragments: list[bytes],
    continuation: int | None,
    millis_behind: int,
    child_shards: list[dict[str, object]] | None = None,
) -> bytes:
    """Return a SubscribeToShardEvent; ``fragments`` are its records as JSON objects."""
    number = b"null" if continuation is None else b'"%d"' % continuation
    children = b"" if child_shards is None else b'"ChildShards":%s,' % orjson.dumps(child_shards)
    head = b'{"ContinuationSequenceNumber":%s,"MillisBehindLatest":%d,%s"Records":[' % (
        number,
        millis_behind,
        children,
    )
    return encode_frame(_EVENT_HEADERS, b"%b%b]}" % (head, b",".join(fragments)))


def exception_frame(code: str, message: str) -> bytes:
    """Return the frame with which a subscription fails after it was accepted."""
    return encode_frame(_headers("exception", code), orjson.dumps({"message": message}))


def with_bad_crc(frame: bytes) -> bytes:
    """Return the frame with a checksum that does not match its contents."""
    return frame[:-1] + bytes([frame[-1] ^ 0xFF])


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
    try:
        yield b""
        yield INITIAL_RESPONSE
        while (event := await feed.pull(lock)) is not None:
            fault = event.fault
            for index, piece in enumerate(_pieces_of(event.frame, fault)):
                if index and fault is not None:
                    await state.clock.sleep(fault.delay_seconds)
                yield piece
            if fault is not None and fault.kind == "reset_mid_event":
                raise ConnectionBroken
            if fault is not None and fault.kind == "truncated_frame":
                return
        if subscription.error is not None:
            yield exception_frame(subscription.error.code, subscription.error.message)
    finally:
        with lock:
            subscription.close()


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
