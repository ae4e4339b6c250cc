"""Workers that share the shards of a stream by leases on a server, which is killed meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from attrs import define, field

from kinesis_publishers import KinesisDataFetcher
from kinesis_publishers.events import LeasesCounted
from tests.servers import SERVERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers import Event, RecordBatch, Shard
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.servers import Server


@define
class Group:
    """The workers of one application, what they have processed, and how many leases each has."""

    properties: dict[str, str]
    processed: Counter[int] = field(factory=Counter)
    leases: dict[str, int] = field(factory=dict)
    changed: asyncio.Event = field(factory=asyncio.Event)

    async def on_batch(self, shard: Shard, batch: RecordBatch) -> None:
        self.processed.update(int(record.data) for record in batch)
        self.changed.set()

    def on_event(self, event: Event) -> None:
        if isinstance(event, LeasesCounted):
            self.leases[event.worker] = event.current
            self.changed.set()

    def worker(self, name: str) -> KinesisDataFetcher:
        properties = self.properties | {"kinesis.lease.workerid": name}
        return KinesisDataFetcher.from_properties(properties, self.on_batch, events=self.on_event)

    async def until(self, is_reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_reached():
                self.changed.clear()
                await self.changed.wait()


def numbered(start: int, stop: int) -> list[tuple[str, bytes]]:
    return [(f"key-{number}", b"%d" % number) for number in range(start, stop)]


@pytest.mark.long
@pytest.mark.parametrize("fixture", SERVERS)
async def test_workers_share_shards_through_a_server_that_is_killed_and_take_over(
    fixture: str, request: pytest.FixtureRequest, local_kinesis: LocalKinesis
) -> None:
    server: Server = request.getfixturevalue(fixture)
    local_kinesis.create_stream("orders", 4)
    group = Group(
        {
            **local_kinesis.properties("orders"),
            **server.properties,
            "kinesis.stream.initpos": "TRIM_HORIZON",
            "kinesis.checkpoint.application": "sharing",
            "kinesis.lease.enabled": "true",
        }
    )
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
        first, second = [
            await opened.enter_async_context(group.worker(name)) for name in ("first", "second")
        ]
        tasks.create_task(first.run())
        tasks.create_task(second.run())
        await group.until(lambda: group.leases == {"first": 2, "second": 2})
        local_kinesis.put_many("orders", numbered(0, 200))
        await group.until(lambda: len(group.processed) == 200)
        server.kill()
        server.start()
        local_kinesis.put_many("orders", numbered(200, 400))
        await group.until(lambda: len(group.processed) == 400)
        first.stop()
        await group.until(lambda: group.leases["second"] == 4)
        local_kinesis.put_many("orders", numbered(400, 600))
        await group.until(lambda: len(group.processed) == 600)
        second.stop()
    assert group.processed == Counter(range(600)), "records were repeated"
