"""What is handed out while an assigner suspends the delivery of a shard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesis_publishers import read
from kinesis_publishers.abc import ShardAssigner

if TYPE_CHECKING:
    from kinesis_publishers.model import ShardKey
    from tests.integration.processing.processing_support import Orders


class Suspending(ShardAssigner):
    """Lets deliveries pass, and suspends them when they are to be handed out."""

    is_allowed = False
    was_asked = asyncio.Event()

    def may_deliver(self, shard: ShardKey) -> bool:
        Suspending.was_asked.set()
        return Suspending.is_allowed


async def test_the_first_record_of_a_delivery_waits_as_the_others_do(orders: Orders) -> None:
    orders.put(3, key="one shard")
    properties = orders.properties(shard_assigner=f"{__name__}:Suspending")
    async with asyncio.timeout(30), read(properties) as records:
        first = asyncio.create_task(anext(records))
        await Suspending.was_asked.wait()
        assert not first.done()
        Suspending.is_allowed = True
        assert (await first).data == b"0"
