"""Taking events from bytes: what is announced, when the network is read, what ends it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers.aws.subscription import EventStreamSubscription
from kinesis_publishers.errors import (
    ConnectionFailedError,
    MalformedResponseError,
    ResourceInUseError,
)
from kinesis_publishers.testing.local_kinesis.event_feed import encode_frame
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

INITIAL = encode_frame({":message-type": "event", ":event-type": "initial-response"}, b"{}")
UNKNOWN = encode_frame({":message-type": "event", ":event-type": "SomethingNew"}, b"?" * 50)
IN_USE = encode_frame(
    {":message-type": "exception", ":exception-type": "ResourceInUseException"}, b"{}"
)


def event(continuation: int, data: str = "") -> bytes:
    record = {
        "Data": data,
        "PartitionKey": "k",
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": 1,
    }
    body = {"Records": [record], "ContinuationSequenceNumber": str(continuation)}
    headers = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
    return encode_frame(headers, json.dumps(body).encode())


class Chunks:
    """Gives chunks one by one; then raises an error, ends, or is silent until there are more."""

    def __init__(self, chunks: Iterable[bytes], *, error: Exception | None = None) -> None:
        self.chunks = list(chunks)
        self.error = error
        self.is_ended = error is None
        self.reads = 0
        self.more = asyncio.Event()
        self.is_waiting = asyncio.Event()

    def put(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        self.more.set()

    async def read(self) -> bytes:
        self.reads += 1
        while not self.chunks and self.error is None and not self.is_ended:
            self.more.clear()
            self.is_waiting.set()
            await self.more.wait()
        if self.chunks:
            return self.chunks.pop(0)
        if self.error is not None:
            raise self.error
        return b""


def subscribe(source: Chunks, clock: ManualClock | None = None) -> EventStreamSubscription:
    return EventStreamSubscription(
        source.read, where="orders/shardId-0", clock=clock or ManualClock(), request_id="id-1"
    )


async def continuations(subscription: EventStreamSubscription) -> list[str]:
    found = []
    while await subscription.wait_for_event() is not None:
        found.append(str((await subscription.receive()).continuation_sequence_number))
    return found


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_events_come_in_their_order_however_they_are_cut(size: int):
    body = INITIAL + event(1) + UNKNOWN + event(2) + event(3)
    source = Chunks(body[at : at + size] for at in range(0, len(body), size))
    subscription = subscribe(source)
    assert await continuations(subscription) == ["1", "2", "3"]
    reads = source.reads
    assert await subscription.wait_for_event() is None
    assert source.reads == reads


async def test_an_event_is_announced_with_room_for_its_payloads_before_it_is_there():
    body = event(1, "QUJD" * 1000)
    source = Chunks([body[:200], body[200:]])
    subscription = subscribe(source)
    room = await subscription.wait_for_event()
    assert room is not None
    assert 3000 <= room < 3300
    assert await subscription.wait_for_event() == room
    assert source.reads == 1
    assert (await subscription.receive()).page.payloads == [b"ABC" * 1000]


async def test_nothing_is_read_while_an_event_waits_to_be_taken():
    source = Chunks([event(1) + event(2), event(3)])
    subscription = subscribe(source)
    await subscription.wait_for_event()
    await subscription.receive()
    await subscription.wait_for_event()
    assert source.reads == 1
    await subscription.receive()
    assert source.reads == 1


async def test_events_before_an_error_are_given_out_before_it():
    broken = ConnectionFailedError("reset")
    source = Chunks([event(1) + event(2)[:-1], event(2)[-1:]], error=broken)
    subscription = subscribe(source)
    for _ in range(2):
        assert await subscription.wait_for_event() is not None
        await subscription.receive()
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match="reset"):
            await subscription.wait_for_event()
    assert source.reads == 3


async def test_an_exception_of_the_service_ends_the_subscription_after_the_events_before_it():
    subscription = subscribe(Chunks([INITIAL + event(1) + IN_USE]))
    assert await subscription.wait_for_event() is not None
    await subscription.receive()
    for _ in range(2):
        with pytest.raises(ResourceInUseError) as raised:
            await subscription.wait_for_event()
    assert raised.value.request_id == "id-1"


@pytest.mark.parametrize("left", [1, 11, 12, 60, -1])
async def test_a_body_that_ends_inside_an_event_is_a_broken_connection(left: int):
    subscription = subscribe(Chunks([event(1) + event(2)[:left]]))
    await subscription.wait_for_event()
    await subscription.receive()
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match="ended inside an event") as raised:
            await continuations(subscription)
        assert raised.value.retryable


async def test_a_damaged_event_delivers_nothing():
    damaged = bytearray(event(1, "QUJD"))
    damaged[-20] ^= 1
    subscription = subscribe(Chunks([bytes(damaged), event(2)]))
    await subscription.wait_for_event()
    with pytest.raises(MalformedResponseError, match="orders/shardId-0"):
        await subscription.receive()


async def test_receiving_what_was_not_announced_is_an_error_of_the_caller():
    with pytest.raises(RuntimeError, match="no event was announced"):
        await subscribe(Chunks([])).receive()


def silent_source(*chunks: bytes) -> Chunks:
    source = Chunks(chunks)
    source.is_ended = False
    return source


async def test_silence_of_35_seconds_ends_the_subscription():
    clock, source = ManualClock(), silent_source(INITIAL)
    subscription = subscribe(source, clock)
    waiting = asyncio.ensure_future(subscription.wait_for_event())
    await clock.advance(34.9)
    assert not waiting.done()
    await clock.advance(0.1)
    with pytest.raises(ConnectionFailedError, match="no whole event came within 35 s") as raised:
        await waiting
    assert raised.value.code == "SubscriptionSilent"
    assert isinstance(raised.value.__cause__, TimeoutError)
    # It stays broken, also when more comes.
    source.is_ended = True
    with pytest.raises(ConnectionFailedError, match="no whole event came"):
        await subscription.wait_for_event()


async def take_one(subscription: EventStreamSubscription) -> str:
    await subscription.wait_for_event()
    return str((await subscription.receive()).continuation_sequence_number)


@pytest.mark.parametrize("head", [5, 100], ids=["before its head is there", "after its head"])
async def test_an_event_that_trickles_is_silence_after_35_seconds(head: int):
    clock, body = ManualClock(), event(1)
    source = silent_source(body[:head])
    taking = asyncio.ensure_future(take_one(subscribe(source, clock)))
    for at in range(2):
        await clock.advance(15)
        source.put(body[head + at : head + at + 1])
    await clock.advance(4.9)
    assert not taking.done()
    await clock.advance(0.2)
    with pytest.raises(ConnectionFailedError, match="no whole event came within 35 s") as raised:
        await taking
    assert raised.value.code == "SubscriptionSilent"


async def test_every_whole_event_restarts_the_time():
    clock = ManualClock()
    source = silent_source()
    subscription = subscribe(source, clock)
    for number in range(3):
        taking = asyncio.ensure_future(take_one(subscription))
        for piece in (event(number)[:50], event(number)[50:]):
            await clock.advance(17)
            source.put(piece)
        assert await taking == str(number)


async def test_a_large_event_over_a_slow_line_is_not_silence():
    clock, body = ManualClock(), event(1, "QUJD" * 1024 * 1024)
    source = silent_source()
    taking = asyncio.ensure_future(take_one(subscribe(source, clock)))
    for start in range(0, len(body), 512 * 1024):
        await clock.advance(15)
        source.put(body[start : start + 512 * 1024])
    assert await taking == "1"


async def test_time_that_the_application_takes_is_not_silence():
    clock = ManualClock()
    source = silent_source(event(1))
    subscription = subscribe(source, clock)
    await subscription.wait_for_event()
    await clock.advance(300)
    await subscription.receive()
    await clock.advance(300)
    waiting = asyncio.ensure_future(subscription.wait_for_event())
    await clock.advance(34)
    source.put(event(2))
    assert await waiting is not None


async def test_after_a_cancelled_wait_the_subscription_is_broken_and_not_at_its_end():
    source = silent_source(event(1)[:50])
    subscription = subscribe(source)
    waiting = asyncio.ensure_future(subscription.wait_for_event())
    await source.is_waiting.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    source.is_ended = True
    with pytest.raises(ConnectionFailedError, match="a wait was cancelled") as raised:
        await subscription.wait_for_event()
    assert raised.value.code == "SubscriptionCancelled"
    assert source.reads == 2
