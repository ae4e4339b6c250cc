"""SubscribeToShard over every HTTP client: requests, events, faults, refusals, leaving."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import SequenceNumber, StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.errors import (
    ConnectionFailedError,
)
from tests.integration.aws.aws_harness import (
    CARRIERS,
    CONSUMER_ARN,
    INITIAL,
    SHARD,
    TRIM_HORIZON,
    Exchange,
    ScriptedService,
    aws_config,
    event,
    http_config,
    server_tls,
)
from tests.integration.readers.fanout_reader import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    import trustme

    from kinesis_publishers.abc import ShardSubscription

PAYLOAD = base64.b64encode(b"x" * 1000).decode()
# A machine five times slower than this one, with everything else running.
DEADLINE_SECONDS = 30


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def service(carrier: str, authority: trustme.CA) -> AsyncIterator[ScriptedService]:
    has_tls = CARRIERS[carrier][1]
    tls = server_tls(authority, ["h2", "http/1.1"]) if has_tls else None
    async with ScriptedService(hold_open, tls).serve() as running:
        yield running


@pytest.fixture
async def plane(
    service: ScriptedService, carrier: str, ca_bundle: Path
) -> AsyncIterator[AioDataPlane]:
    config = aws_config(service.url, ca_bundle)
    async with AioDataPlane(config, http=http_config(carrier)) as running:
        yield running


async def hold_open(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.send(INITIAL)
    await exchange.wait_closed()


async def take(subscription: ShardSubscription) -> str:
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await subscription.wait_for_event() is not None
        return str((await subscription.receive()).continuation_sequence_number)


async def test_the_call_says_what_to_read_and_is_signed(
    service: ScriptedService, plane: AioDataPlane, carrier: str
) -> None:
    instant = datetime(2026, 1, 1, 0, 0, 0, 123_999, tzinfo=UTC)
    for position, expected in (
        (TRIM_HORIZON, {"Type": "TRIM_HORIZON"}),
        (
            StartingPosition.after(SequenceNumber("7")),
            {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "7"},
        ),
        (
            StartingPosition.at_timestamp(instant),
            {"Type": "AT_TIMESTAMP", "Timestamp": int(instant.timestamp()) + 0.123},
        ),
    ):
        async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, position):
            exchange = service.exchanges[-1]
        assert exchange.request == {
            "ConsumerARN": CONSUMER_ARN,
            "ShardId": SHARD.shard_id,
            "StartingPosition": expected,
        }
    assert exchange.headers["x-amz-target"] == "Kinesis_20131202.SubscribeToShard"
    assert exchange.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=key/")
    assert "kinesis-publishers" in exchange.headers["user-agent"]
    assert (":authority" in exchange.headers) is (carrier == "https-2")


async def test_events_come_until_the_service_ends_the_subscription(
    service: ScriptedService, plane: AioDataPlane
) -> None:
    async def three_events(exchange: Exchange) -> None:
        await exchange.answer()
        body = INITIAL + b"".join(event(number, PAYLOAD) for number in range(3))
        for at in range(0, len(body), 700):
            await exchange.send(body[at : at + 700])
        await exchange.end()

    service.script = three_events
    async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON) as subscription:
        assert [await take(subscription) for _ in range(3)] == ["0", "1", "2"]
        assert await subscription.wait_for_event() is None
        assert await subscription.wait_for_event() is None


async def test_what_arrived_before_a_reset_is_delivered_before_the_error(
    service: ScriptedService, plane: AioDataPlane
) -> None:
    is_reset, has_arrived = asyncio.Event(), asyncio.Event()

    async def reset_unread(exchange: Exchange) -> None:
        await exchange.answer()
        await exchange.send(INITIAL + b"".join(event(number, PAYLOAD) for number in range(3)))
        # What is on its way is lost with the reset, so that it must have arrived first.
        await has_arrived.wait()
        exchange.reset()
        is_reset.set()

    service.script = reset_unread
    async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON) as subscription:
        # Of what was sent in one piece, the first part shows that all of it is there.
        first = await take(subscription)
        has_arrived.set()
        await is_reset.wait()
        await until(lambda: service.open_connections == 0)
        assert [first, await take(subscription), await take(subscription)] == ["0", "1", "2"]
        for _ in range(2):
            with pytest.raises(ConnectionFailedError, match=r"orders/shardId-0") as raised:
                await subscription.wait_for_event()
            assert raised.value.retryable


@pytest.mark.parametrize("carrier", ["http", "https-1.1"], indirect=True)
async def test_what_aiohttp_has_received_unread_is_delivered_before_the_error(
    service: ScriptedService, plane: AioDataPlane
) -> None:
    has_begun = asyncio.Event()

    async def reset_unread(exchange: Exchange) -> None:
        await exchange.answer()
        await exchange.send(INITIAL + event(0, PAYLOAD))
        await has_begun.wait()
        await exchange.send(event(1, PAYLOAD))
        # The loopback interface delivers at once, and aiohttp reads in a turn of this very loop.
        for _ in range(10):
            await asyncio.sleep(0)
        exchange.reset()

    service.script = reset_unread
    async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON) as subscription:
        assert await take(subscription) == "0"
        has_begun.set()
        await until(lambda: service.open_connections == 0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert await take(subscription) == "1"
        with pytest.raises(ConnectionFailedError):
            await subscription.wait_for_event()


async def test_leaving_in_the_middle_of_an_event_closes_the_connection(
    service: ScriptedService, plane: AioDataPlane
) -> None:
    closed = asyncio.Event()

    async def half_an_event(exchange: Exchange) -> None:
        await exchange.answer()
        await exchange.send(event(1, PAYLOAD)[:500])
        await exchange.wait_closed()
        closed.set()

    service.script = half_an_event
    async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON) as subscription:
        assert await subscription.wait_for_event() is not None
        receiving = asyncio.ensure_future(subscription.receive())
        await asyncio.sleep(0)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
    await asyncio.wait_for(closed.wait(), DEADLINE_SECONDS)


async def test_cancelling_a_call_that_is_not_answered_leaves_no_connection(
    service: ScriptedService, plane: AioDataPlane
) -> None:
    async def never_answer(exchange: Exchange) -> None:
        await exchange.wait_closed()

    async def enter() -> None:
        async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON):
            pytest.fail("nothing was answered")

    service.script = never_answer
    entering = asyncio.ensure_future(enter())
    await until(lambda: len(service.exchanges) == 1)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await until(lambda: service.open_connections == 0)


async def test_no_listener_is_a_failed_connection(carrier: str, ca_bundle: Path) -> None:
    async with ScriptedService(hold_open, None).serve() as gone:
        port = gone.url.rsplit(":", 1)[1]
    scheme = "https" if CARRIERS[carrier][1] else "http"
    config = aws_config(f"{scheme}://127.0.0.1:{port}", ca_bundle)
    async with AioDataPlane(config, http=http_config(carrier)) as plane:
        with pytest.raises(ConnectionFailedError) as raised:
            await open_and_leave(plane)
    assert raised.value.retryable
    assert raised.value.__cause__ is not None


def open_and_leave(plane: AioDataPlane) -> Awaitable[None]:
    async def enter() -> None:
        async with plane.subscribe_to_shard(SHARD, CONSUMER_ARN, TRIM_HORIZON):
            pass

    return enter()


async def test_120_subscriptions_hold_up_neither_each_other_nor_other_calls(
    service: ScriptedService, plane: AioDataPlane
) -> None:
    async def answer_by_target(exchange: Exchange) -> None:
        if exchange.headers["x-amz-target"].endswith("SubscribeToShard"):
            await exchange.answer()
            await exchange.send(event(1, PAYLOAD))
            await exchange.wait_closed()
        else:
            await exchange.answer()
            await exchange.send(b'{"ShardIterator": "it"}')
            await exchange.end()

    service.script = answer_by_target
    async with AsyncExitStack() as stack:
        subscriptions = [
            await stack.enter_async_context(
                plane.subscribe_to_shard(
                    evolve(SHARD, shard_id=f"shardId-{number:012}"), CONSUMER_ARN, TRIM_HORIZON
                )
            )
            for number in range(120)
        ]
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await plane.get_shard_iterator(SHARD, TRIM_HORIZON) == "it"
        # Nobody has read the first ones meanwhile; the last is not held up by that.
        assert [await take(one) for one in reversed(subscriptions)] == ["1"] * 120
