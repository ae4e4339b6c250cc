"""Watermarks of the simple API: told in order, behind the records, as far as they go."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import (
    DeadLetter,
    KinesisDataFetcher,
    Record,
    RetryOnError,
    WatermarkAssigner,
    read,
    records,
    scan,
)
from kinesis_publishers.errors import EventTimeError, ProcessingCancelledError
from tests.integration.processing.processing_support import STREAM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers import RecordBatch, Shard
    from tests.integration.processing.processing_support import Orders

COUNT = 400


class Numbered(WatermarkAssigner):
    """Takes the number of a record for seconds; some are not what it expects."""

    def event_time_of(self, record: Record) -> datetime | None:
        strange = {b"naive": datetime(2026, 1, 1), b"seconds": 1.5, b"never": None}  # noqa: DTZ001
        return strange.get(record.data) if record.data in strange else at(int(record.data))


def at(seconds: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class Reader:
    """Notes what is processed, checks each watermark against it, and stops at the last one."""

    def __init__(self, orders: Orders, *, strange: Iterable[bytes] = (), **keywords: Any) -> None:
        orders.server.put_many(STREAM, [(f"key-{one!r}", one) for one in strange])
        self.waiting = {at(number) for number in orders.put(COUNT)}
        self.told: list[datetime] = []
        self.taken: list[bytes] = []
        self.properties = orders.properties(watermark_assigner=f"{__name__}:Numbered")
        self.keywords = keywords
        self.ended: list[datetime] = []
        self.error: BaseException | None = None

    def take(self, record: Record) -> None:
        self.taken.append(record.data)
        if record.data.isdigit():
            self.waiting.discard(at(int(record.data)))

    def take_batch(self, batch: RecordBatch) -> None:
        for record in batch:
            self.take(record)

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
        # A call that has begun ends, also if it has stopped its reader.
        for _ in range(5):
            await asyncio.sleep(0)
        self.ended.append(watermark)

    async def with_read(self) -> None:
        stream = read(self.properties, on_watermark=self.tell_async, **self.keywords)
        self.halt = stream.stop
        async for record in stream:
            self.take(record)

    async def with_fetcher(self) -> None:
        async def take(_: Shard, batch: RecordBatch) -> None:
            # Longer than watermarks take to advance.
            await asyncio.sleep(0.4)
            self.take_batch(batch)

        async with KinesisDataFetcher.from_properties(
            self.properties, take, on_watermark=self.tell_async
        ) as fetcher:
            self.halt = fetcher.stop
            await fetcher.run()

    async def with_scan(self, process: Any = None, **more: Any) -> None:
        stop = threading.Event()
        self.halt = stop.set
        keywords = {"on_watermark": self.tell, "stop": stop, "workers": 2, **self.keywords}
        await asyncio.to_thread(scan, self.properties, process or self.take, **keywords, **more)

    async def with_scan_of_batches(self) -> None:
        await self.with_scan(self.take_batch, per_batch=True)

    async def with_records(self) -> None:
        iterator = records(self.properties, on_watermark=self.tell, **self.keywords)
        self.halt = iterator.stop
        await asyncio.to_thread(lambda: [self.take(record) for record in iterator])


# Those that have an error policy.
WAYS = ["with_read", "with_scan", "with_scan_of_batches", "with_records"]


@pytest.mark.parametrize("way", [*WAYS, "with_fetcher"])
async def test_each_way_tells_all_watermarks_and_fails_with_what_the_callback_raises(
    orders: Orders, way: str
) -> None:
    reader = Reader(orders)
    await getattr(reader, way)()
    assert reader.told[-1] >= at(COUNT - 20)
    assert reader.ended in ([], reader.told)
    errors = {
        LookupError("no window"): (LookupError, "no window"),
        asyncio.CancelledError(): (RuntimeError | ProcessingCancelledError, "CancelledError"),
    }
    for error, (expected, text) in errors.items():
        failing = Reader(orders)
        failing.error = error
        with pytest.raises(Exception, match=text) as raised:
            await getattr(failing, way)()
        assert isinstance(raised.value, expected)
        assert any("by on_watermark for 2026-01-01 00:" in one for one in raised.value.__notes__)


STRANGE = {
    b"poison": r"Numbered raised ValueError\(.*poison.*\) for record orders/",
    b"naive": r"returned datetime.* for record orders/.*: return a datetime with a time zone",
    b"seconds": r"returned 1\.5 for record orders/",
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_record_without_an_event_time_that_should_have_one_goes_to_the_error_policy(
    orders: Orders, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    aside: dict[bytes, Exception] = {}

    def put(item: Record | RecordBatch, error: Exception) -> None:
        (record,) = [item] if isinstance(item, Record) else item
        aside[record.data] = error

    policy: Any = DeadLetter(put)
    if way not in ("with_read", "with_records"):
        policy = RetryOnError(otherwise=policy)
    reader = Reader(orders, strange=[*STRANGE, b"never"], on_error=policy)
    await getattr(reader, way)()
    assert "retry" not in caplog.text
    assert isinstance(aside[b"poison"].__cause__, ValueError)
    assert reader.told[-1] >= at(COUNT - 20)
    assert b"never" in reader.taken
    assert not {*reader.taken} & {*aside}
    for data, error in STRANGE.items():
        with pytest.raises(EventTimeError, match=error):
            raise aside[data]


@pytest.mark.parametrize("way", [*WAYS, "with_fetcher"])
async def test_without_a_policy_a_record_without_an_event_time_ends_the_reading(
    orders: Orders, way: str
) -> None:
    without = Reader(orders, strange=[b"poison"])
    with pytest.raises(EventTimeError, match=STRANGE[b"poison"]):
        await getattr(without, way)()
    assert b"poison" not in without.taken


async def test_a_call_that_was_cancelled_is_repeated(orders: Orders) -> None:
    async def tell(watermark: datetime) -> None:
        told.append(watermark)
        if len(told) == 3:
            stream.stop()
        else:
            asking.cancel()
            await asyncio.Event().wait()

    async def take_all() -> None:
        async for _ in stream:
            pass

    orders.put(20)
    told: list[datetime] = []
    properties = orders.properties(watermark_assigner=f"{__name__}:Numbered")
    async with read(properties, on_watermark=tell) as stream:
        for _ in range(3):
            asking = asyncio.create_task(take_all())
            await asyncio.wait([asking])
    assert told == [told[0]] * 3


async def test_a_watermark_may_be_known_before_anything_is_read(orders: Orders) -> None:
    async def tell(watermark: datetime) -> None:
        told.append(watermark)
        streams[-1].stop()

    orders.put(20)
    told: list[datetime] = []
    streams = []
    # By arrival, the second run knows it from the checkpoints of the first one.
    for _ in range(2):
        streams.append(read(orders.properties(), on_watermark=tell))
        async for _ in streams[-1]:
            pass
    assert len(told) == 2
