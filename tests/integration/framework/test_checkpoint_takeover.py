"""A rolling deployment: two readers of one application over one store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Event, KinesisDataFetcher, RecordBatch, Shard
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.errors import ReaderReplacedError
from kinesis_publishers.events import StreamPrepared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from kinesis_publishers.testing.local_kinesis import LocalKinesis


class QuickClock(SystemClock):
    """Delays take a tenth of their time."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 10)


class Reader:
    """Reads until it is stopped, and remembers what."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties
        self._has_news = asyncio.Event()
        self._fetcher: KinesisDataFetcher | None = None
        self.is_prepared = asyncio.Event()
        self.numbers: list[int] = []

    async def on_batch(self, shard: Shard, batch: RecordBatch) -> None:
        self.numbers += [int(record.data) for record in batch]
        self._has_news.set()

    def on_event(self, event: Event) -> None:
        if isinstance(event, StreamPrepared):
            self.is_prepared.set()

    async def run(self) -> None:
        opened = KinesisDataFetcher.from_properties(
            self._properties, self.on_batch, events=self.on_event, clock=QuickClock()
        )
        async with opened as self._fetcher:
            await self._fetcher.run()

    def stop(self) -> None:
        if self._fetcher is not None:
            self._fetcher.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            self.stop()
            await asyncio.wait([task])

    async def has_read(self, numbers: Iterable[int]) -> None:
        async with asyncio.timeout(20):
            while not set(numbers) <= set(self.numbers):
                self._has_news.clear()
                await self._has_news.wait()


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def properties(
    request: pytest.FixtureRequest, local_kinesis: LocalKinesis, tmp_path: Path
) -> dict[str, str]:
    local_kinesis.create_stream("orders", 2)
    store = {
        "memory": {},
        "sqlite": {"kinesis.checkpoint.sqlite.path": str(tmp_path / "checkpoints.sqlite3")},
        "dynamodb": {"kinesis.checkpoint.dynamodb.table": "takeover"},
    }[request.param]
    if request.param == "dynamodb":
        store["kinesis.checkpoint.dynamodb.endpoint"] = request.getfixturevalue("moto_url")
    return {
        **local_kinesis.properties("orders"),
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.shard.getrecords.intervalmillis": "100",
        "kinesis.checkpoint.application": tmp_path.name,
        "kinesis.checkpoint.intervalmillis": "200",
        "kinesis.checkpoint.store": request.param,
        **store,
    }


async def test_the_newer_wins_the_older_stops_and_waits_when_it_is_started_again(
    properties: dict[str, str], local_kinesis: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer, again = Reader(properties), Reader(properties), Reader(properties)

    def put(*numbers: int) -> None:
        local_kinesis.put_many("orders", [(f"key {number}", b"%d" % number) for number in numbers])

    async with older.running() as replaced:
        put(*range(10))
        await older.has_read(range(10))
        async with newer.running() as winner:
            await newer.is_prepared.wait()
            put(*range(10, 20))
            await newer.has_read(range(10, 20))
            with pytest.raises(ReaderReplacedError, match="has taken over"):
                await replaced
            async with again.running():
                while "this one waits until" not in caplog.text:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0)
                put(*range(20, 30))
                await newer.has_read(range(20, 30))
                assert again.numbers == []
                newer.stop()
                await winner
                put(*range(30, 40))
                await again.has_read(range(30, 40))
    assert sorted(again.numbers) == list(range(30, 40))
