"""Reading that ends: at the tip of the start, or before an instant, each record exactly once."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from kinesis_publishers import KinesisDataFetcher, read, records, scan
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.errors import ConfigError, ConfigErrors
from tests.integration.processing.processing_support import STREAM, Orders, numbers

if TYPE_CHECKING:
    from kinesis_publishers import Record, RecordBatch, Shard

NOW = SystemClock().now


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local record is visible at once: nobody waits for it after the end."""
    monkeypatch.setattr("kinesis_publishers.engine.ending.VISIBLE_AFTER", timedelta(0))


def properties_of(orders: Orders, **more: str) -> dict[str, str]:
    """Return the properties of a reader without checkpoints."""
    given = orders.properties(**more)
    return {key: one for key, one in given.items() if not re.search("checkpoint|initpos", key)}


def put_at_one_instant(orders: Orders, count: int) -> datetime:
    """Put numbers, and return an instant after which nothing of them has arrived."""
    orders.put(count)
    stored = [one for shard in orders.server.records(STREAM).values() for one in shard]
    return max(one.arrival_time for one in stored) + timedelta(milliseconds=1)


def in_a_moment() -> datetime:
    """Return an instant that is near, in whole milliseconds as an end is."""
    end = NOW() + timedelta(seconds=0.6)
    return end - timedelta(microseconds=end.microsecond % 1000)


def wait_until(instant: datetime) -> None:
    """Let what is put from now on arrive at ``instant`` or later."""
    seconds = (instant - NOW()).total_seconds()
    asyncio.run(SystemClock().sleep(seconds + 0.002))


def read_all(properties: dict[str, str], face: str, **options: Any) -> list[int]:
    """Read to the end with one of the faces; return the numbers in ascending order."""
    seen: list[Record] = []

    async def loop() -> None:
        async with read(properties, **options) as stream:
            seen.extend([record async for record in stream])

    async def fetch() -> None:
        async def take(_: Shard, batch: RecordBatch) -> None:
            seen.extend(batch)

        async with KinesisDataFetcher.from_properties(properties, take, **options) as fetcher:
            await fetcher.run()

    if face == "records":
        seen.extend(records(properties, **options))
    elif face == "scan":
        scan(properties, seen.append, workers=2, **options)
    else:
        asyncio.run(loop() if face == "read" else fetch())
    return sorted(numbers(seen))


@pytest.mark.parametrize("face", ["records", "read", "scan", "fetcher"])
def test_every_face_ends_with_what_is_in_the_stream_at_its_start(orders: Orders, face: str) -> None:
    expected = orders.put(50)
    assert read_all(properties_of(orders), face, end="LATEST") == expected


@pytest.mark.parametrize("face", ["records", "read", "scan", "fetcher"])
def test_every_face_ends_in_an_empty_stream(orders: Orders, face: str) -> None:
    assert read_all(properties_of(orders), face, end="LATEST") == []


def test_reading_ends_before_the_first_record_of_each_shard_that_came_at_the_end(
    orders: Orders,
) -> None:
    end = put_at_one_instant(orders, 20)
    wait_until(end)
    orders.put(20)
    properties = properties_of(orders)
    assert read_all(properties, "records", end=end) == list(range(20))
    # One that begins there continues without a gap, and without a record twice.
    assert read_all(properties, "records", start=end, end="LATEST") == list(range(20, 40))


def test_one_page_of_records_is_cut_at_the_end_and_the_aggregate_before_it_is_whole(
    orders: Orders,
) -> None:
    orders.put(5, key="one shard", is_aggregated=True)
    end = put_at_one_instant(orders, 0)
    wait_until(end)
    orders.put(5, key="one shard", is_aggregated=True)
    assert read_all(properties_of(orders), "scan", end=end) == list(range(5))


def test_a_relative_end_means_the_same_in_every_notation(orders: Orders) -> None:
    orders.put(10)
    properties = properties_of(orders)
    for end in ("-1h", timedelta(hours=1), NOW() - timedelta(hours=1), "AT_TIMESTAMP -1h"):
        assert read_all(properties, "records", end=end) == []
    for start in ("-1h", timedelta(hours=1), NOW() - timedelta(hours=1), "AT_TIMESTAMP -1h"):
        assert read_all(properties, "records", start=start, end="LATEST") == list(range(10))


def arrived_before(orders: Orders, end: datetime) -> list[int]:
    stored = [one for shard in orders.server.records(STREAM).values() for one in shard]
    return sorted(int(one.data) for one in stored if one.arrival_time < end)


def test_an_end_in_the_future_is_waited_for(orders: Orders) -> None:
    orders.put(10)
    end = in_a_moment()
    seen: list[Record] = []
    for record in records(properties_of(orders), end=end):
        seen.append(record)
        if len(seen) % 10 == 0 and NOW() < end:
            orders.put(10)
    assert end <= NOW()
    assert sorted(numbers(seen)) == arrived_before(orders, end)


@pytest.mark.parametrize("count", [1, 3])
def test_the_children_of_shards_that_ended_before_the_end_are_read(
    orders: Orders, count: int
) -> None:
    orders.put(20)
    orders.server.reshard(STREAM, count)
    orders.put(20)
    orders.server.reshard(STREAM, 2)
    expected = [*range(40), *orders.put(20)]
    assert read_all(properties_of(orders), "records", end="LATEST") == expected


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "with another answer"])
def test_the_children_of_a_shard_that_ends_while_it_is_read_are_read_to_the_end(
    orders: Orders, is_late: bool
) -> None:
    orders.server.behaviour = evolve(orders.server.behaviour, late_shard_end=is_late)
    orders.put(10)
    end = in_a_moment()
    # Listed only once, at the beginning, were it not for the end.
    properties = properties_of(orders, shard_discovery_intervalmillis="3600000")
    seen: list[int] = []
    for record in records(properties, end=end):
        seen.append(int(record.data))
        if len(seen) == 10:
            orders.server.reshard(STREAM, 1)
            orders.put(10)
    assert sorted(seen) == arrived_before(orders, end)


def test_what_comes_after_the_end_of_a_parent_and_of_reading_is_left(orders: Orders) -> None:
    end = put_at_one_instant(orders, 10)
    wait_until(end)
    orders.put(5)
    orders.server.reshard(STREAM, 1)
    orders.put(10)
    assert read_all(properties_of(orders), "records", end=end) == list(range(10))


def test_the_next_run_of_an_application_begins_after_what_was_read(orders: Orders) -> None:
    end = put_at_one_instant(orders, 20)
    wait_until(end)
    orders.put(20)
    properties = orders.properties()
    assert read_all(properties, "records", end=end) == list(range(20))
    assert read_all(properties, "scan", end=end) == []
    orders.server.reshard(STREAM, 1)
    assert read_all(properties, "read", end="LATEST") == list(range(20, 40))
    later = orders.put(5)
    assert read_all(properties, "records", end="LATEST") == later
    assert read_all(properties, "records", end="LATEST") == []


def test_progress_of_a_fetcher_ends_at_the_end(orders: Orders) -> None:
    end = put_at_one_instant(orders, 20)
    wait_until(end)
    orders.put(20)
    properties = properties_of(orders)
    seen: list[Record] = []

    async def run(**more: Any) -> Any:
        async def take(_: Shard, batch: RecordBatch) -> None:
            seen.extend(batch)

        async with KinesisDataFetcher.from_properties(properties, take, **more) as fetcher:
            await fetcher.run()
            return fetcher.progress

    progress = asyncio.run(run(end=end))
    assert sorted(numbers(seen)) == list(range(20))
    asyncio.run(run(end="LATEST", resume=progress))
    assert sorted(numbers(seen)) == list(range(40))


def test_reading_by_fan_out_ends_too(orders: Orders) -> None:
    end = put_at_one_instant(orders, 20)
    wait_until(end)
    orders.put(20)
    efo = {"publisher": "EFO", "consumer_name": "billing"}
    assert read_all(properties_of(orders), "records", end=end, **efo) == list(range(20))
    assert read_all(properties_of(orders), "records", end="LATEST", **efo) == list(range(40))


def test_what_waits_for_a_flag_or_for_other_shards_ends_too(orders: Orders) -> None:
    orders.put(40)
    seen: list[Record] = []
    scan(
        properties_of(orders),
        seen.append,
        stop=threading.Event(),
        on_watermark=lambda _: None,
        watermark_lookahead_millis="1ms",
        end="LATEST",
    )
    assert sorted(numbers(seen)) == list(range(40))


def test_leaving_a_loop_before_its_end_counts_the_current_record(orders: Orders) -> None:
    orders.put(20, key="one shard")
    properties = orders.properties(stream_endpos="LATEST")
    with records(properties) as stream:
        assert [int(next(stream).data) for _ in range(7)] == list(range(7))
    assert read_all(properties, "records") == list(range(7, 20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "-1h", "end": "-2h"}, r"start \(1:00:00 ago\) is later than end \(2:00:00 ago"),
        ({"start": "LATEST", "end": "-1s"}, r"start \(LATEST\) is later than end"),
        ({"end": "LATEST", "lease_enabled": True}, "end and lease_enabled contradict"),
        (
            {"end": "LATEST", "stream_endpos_shards": '{"orders": "LATEST"}'},
            "stream_endpos_shards is for spark.read: here all shards end at one instant",
        ),
    ],
)
def test_an_end_that_cannot_work_is_refused_before_any_call(
    options: dict[str, Any], message: str
) -> None:
    given = {"stream": "orders", "application": "a", "checkpoint_store": "dynamodb", **options}
    for face in (read, records, lambda **more: scan(process=print, **more)):
        with pytest.raises((ConfigError, ConfigErrors), match=message):
            face(**given)
