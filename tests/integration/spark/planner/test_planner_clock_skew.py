"""Clocks that differ: LATEST and bounds are instants of the service's clock."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import KinesisDataFetcher, Properties, SystemClock
from kinesis_publishers.readers.bounded_read import Narrowing, plan_batch
from kinesis_publishers.testing.local_kinesis import Behaviour, LocalKinesis
from tests.integration.spark.planner.planner_harness import STREAM, Query, options, planner, put

if TYPE_CHECKING:
    from collections.abc import Iterator

SKEWS = [20.0, 600.0, -20.0, -600.0]
PAYLOADS = [f"payload {number}" for number in range(20)]


@contextmanager
def server_ahead(seconds: float) -> Iterator[LocalKinesis]:
    behaviour = Behaviour(clock_skew_seconds=seconds)
    with LocalKinesis.in_thread(behaviour=behaviour) as server:
        server.create_stream(STREAM, 2)
        yield server


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
@pytest.mark.parametrize("seconds", SKEWS)
async def test_a_fetcher_at_latest_misses_nothing_that_is_put_after_it_was_prepared(
    seconds: float, publisher: str, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    with server_ahead(seconds) as server:
        properties = options(server, "LATEST", stream_recordpublisher=publisher)
        properties["kinesis.stream.efo.consumername"] = "reports"

        async def on_batch(shard: object, batch: object) -> None:
            got.extend(batch.payloads)
            if len(got) >= len(PAYLOADS):
                fetcher.stop()

        async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
            await fetcher.prepare()
            put(server, PAYLOADS)
            await fetcher.run()
    assert sorted(got) == sorted(one.encode() for one in PAYLOADS)
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    (warning,) = [one for one in warnings if "clock" in one]
    assert "NTP" in warning


@pytest.mark.parametrize("kind", ["prefetch", "ranges"])
@pytest.mark.parametrize("seconds", SKEWS)
def test_a_query_at_latest_misses_nothing_that_is_put_after_its_first_offset(
    seconds: float, kind: str
) -> None:
    with server_ahead(seconds) as server:
        query = Query(lambda: planner(server, "LATEST", kind=kind))
        query.run_batch()
        rows = put(server, PAYLOADS)
        query.run_until(len(rows))
        query.stop()
    assert sorted(query.rows) == sorted(rows)


@pytest.mark.parametrize("kind", ["prefetch", "ranges"])
@pytest.mark.parametrize("seconds", [600.0, 5.0, -600.0])
def test_available_now_reads_what_there_is_and_ends(seconds: float, kind: str) -> None:
    with server_ahead(seconds) as server:
        rows = put(server, PAYLOADS)
        pages = {"shard_getrecords_maxrecordcount": "4"}
        query = Query(lambda: planner(server, kind=kind, **pages))
        query.run_to_the_end()
        query.stop()
    assert sorted(query.rows) == sorted(rows)


@pytest.mark.parametrize("seconds", [600.0, -600.0])
async def test_a_batch_has_what_came_more_than_a_second_before_it_was_loaded(
    seconds: float,
) -> None:
    with server_ahead(seconds) as server:
        put(server, PAYLOADS)
        properties = Properties.parse(options(server))
        loaded_at = SystemClock().now() + timedelta(seconds=1.5)
        planned = await plan_batch(properties, loaded_at, Narrowing())
        stored = server.records(STREAM)
    assert {one.shard.shard_id for one in planned} == set(stored)
    for one in planned:
        assert all(record.arrival_time < one.until for record in stored[one.shard.shard_id])
