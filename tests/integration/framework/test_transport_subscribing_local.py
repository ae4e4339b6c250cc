"""Subscriptions of the local server, over every HTTP client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties, Shard, StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig
from kinesis_publishers.errors import ServiceError
from kinesis_publishers.testing.local_kinesis import LocalKinesis
from tests.integration.framework.transport_harness import CARRIERS, http_config

if TYPE_CHECKING:
    from kinesis_publishers.abc import ShardSubscription

TRIM_HORIZON = StartingPosition.trim_horizon()


async def payloads(subscription: ShardSubscription, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            assert await subscription.wait_for_event() is not None
            found += (await subscription.receive()).page.payloads
    return found


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_what_is_put_arrives_and_strangers_are_refused(carrier: str) -> None:
    async with LocalKinesis(tls=CARRIERS[carrier][2]) as server:
        server.create_stream("orders", 1)
        arn = f"arn:aws:kinesis:{server.behaviour.region}:123456789012:stream/orders"
        shard = Shard(stream_arn=arn, shard_id="shardId-000000000000")
        consumer = server.register_consumer("orders", "reader")
        aws = AwsConfig.from_properties(Properties.parse(server.properties("orders")))
        before = [b"%d" % number for number in range(50)]
        server.put_many("orders", [("k", data) for data in before])
        async with AioDataPlane(aws, http=http_config(carrier)) as plane:
            async with plane.subscribe_to_shard(shard, consumer, TRIM_HORIZON) as subscription:
                assert await payloads(subscription, 50) == before
                server.put_many("orders", [("k", b"later")])
                assert await payloads(subscription, 1) == [b"later"]
            with pytest.raises(ServiceError, match="SubscribeToShard of orders/shardId-0"):
                async with plane.subscribe_to_shard(shard, f"{arn}/consumer/x:1", TRIM_HORIZON):
                    pytest.fail("there is no such consumer")
