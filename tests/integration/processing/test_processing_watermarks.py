"""Watermarks of the simple API: told in order, behind the records, as far as they go."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import KinesisDataFetcher, WatermarkAssigner, read, records, scan
from kinesis_publishers.events import Event, WatermarkMeasured

if TYPE_CHECKING:
    from kinesis_publishers import Record, RecordBatch, Shard
    from tests.integration.processing.processing_support import Orders

COUNT = 400


class Numbered(WatermarkAssigner):
    """Takes the number of a record for seconds."""

    def event_time_of(self, record: Record) -> datetime:
        return at(int(record.data))


def at(seconds: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class Reader:
    """Notes what is processed, checks each watermark against it, and stops at the last one."""

    def __init__(self, orders: Orders) -> None:
        self.waiting = {at(number) for number in orders.put(COUNT)}
        self.told: list[datetime] = []
        self.properties = orders.properties(watermark_assigner=f"{__name__}:Numbered")
        self.error: Exception | None = None

    def take(self, record: Record) -> None:
        self.waiting.discard(at(int(record.data)))

    def tell(self, watermark: datetime) -> None:
        if self.error is not None:
            raise self.error
        assert not self.told or watermark > self.told[-1]
        assert all(one >= watermark for one in self.waiting)
        self.told.append(watermark)
        # Each shard has one of the last records.
        if watermark >= at(COUNT - 20):
            self.halt()

    async def tell_async(self, watermark: datetime) -> None:
        self.tell(watermark)

    async def with_read(self) -> None:
        stream = read(self.properties, on_watermark=self.tell_async)
        self.halt = stream.stop
        async for record in stream:
            self.take(record)

    async def with_fetcher(self) -> None:
        async def take(_: Shard, batch: RecordBatch) -> None:
            for record in batch:
                self.take(record)

        async with KinesisDataFetcher.from_properties(
            self.properties, take, on_watermark=self.tell_async
        ) as fetcher:
            self.halt = fetcher.stop
            await fetcher.run()

    async def with_scan(self) -> None:
        stop = threading.Event()
        self.halt = stop.set
        keywords = {"on_watermark": self.tell, "stop": stop, "workers": 2}
        await asyncio.to_thread(scan, self.properties, self.take, **keywords)

    async def with_records(self) -> None:
        iterator = records(self.properties, on_watermark=self.tell)
        self.halt = iterator.stop
        await asyncio.to_thread(lambda: [self.take(record) for record in iterator])


@pytest.mark.parametrize("way", [one for one in dir(Reader) if one.startswith("with_")])
async def test_each_way_tells_all_watermarks_and_fails_with_what_the_callback_raises(
    orders: Orders, way: str
) -> None:
    reader = Reader(orders)
    await getattr(reader, way)()
    assert reader.told[-1] >= at(COUNT - 20)
    failing = Reader(orders)
    failing.error = LookupError("no window")
    with pytest.raises(LookupError, match="no window"):
        await getattr(failing, way)()


async def test_after_a_cancelled_call_watermarks_go_on_and_never_back(orders: Orders) -> None:
    told: list[datetime] = []
    is_told, is_later = asyncio.Event(), asyncio.Event()

    async def hang_first(watermark: datetime) -> None:
        told.append(watermark)
        if len(told) == 1:
            is_told.set()
            await asyncio.Event().wait()
        elif len(told) == 5:
            stream.stop()

    def note(event: Event) -> None:
        if told and isinstance(event, WatermarkMeasured) and event.watermark > told[0]:
            is_later.set()

    async def take_all() -> None:
        async for _ in stream:
            pass

    # By arrival, the watermark of shards at their tips follows the time.
    orders.put(COUNT)
    async with read(orders.properties(), on_watermark=hang_first, events=note) as stream:
        first = asyncio.create_task(take_all())
        await is_told.wait()
        await is_later.wait()
        first.cancel()
        await asyncio.wait([first])
        is_later.clear()
        await is_later.wait()
        await take_all()
    assert told[1:] == sorted(set(told[1:]))
    assert told[1] >= told[0]
