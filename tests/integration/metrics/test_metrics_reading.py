"""Metrics of a fetcher that reads a local Kinesis, selected by nothing but properties."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Event, KinesisDataFetcher, RecordBatch, Shard
from kinesis_publishers.events import EVENT_TYPES, FetcherStopped, PoolUsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_FAN_OUT = {"kinesis.stream.recordpublisher": "EFO", "kinesis.stream.efo.consumername": "metrics"}
_RECORDS = [(f"key{number}", b"x" * 100) for number in range(50)]


@pytest.mark.parametrize("publisher", [{}, _FAN_OUT], ids=["polling", "fan-out"])
async def test_cloudwatch_has_every_record_when_the_fetcher_is_closed(
    local_kinesis: LocalKinesis,
    moto_url: str,
    cloudwatch_sums: Callable[[str], dict[str, float]],
    publisher: dict[str, str],
) -> None:
    local_kinesis.create_stream("orders", 2)
    local_kinesis.put_many("orders", _RECORDS)
    namespace = f"billing-{len(publisher)}"
    properties = {
        **local_kinesis.properties("orders"),
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.metrics.sinks": "log,summary,opentelemetry,cloudwatch",
        "kinesis.metrics.cloudwatch.namespace": namespace,
        "kinesis.metrics.cloudwatch.endpoint": moto_url,
        **publisher,
    }
    read, events = 0, list[Event]()

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        nonlocal read
        read += len(batch)
        if read == len(_RECORDS):
            fetcher.stop()

    async with KinesisDataFetcher.from_properties(
        properties, on_batch, events=events.append
    ) as fetcher:
        await fetcher.run()
    sums = await asyncio.to_thread(cloudwatch_sums, namespace)
    assert sums["RecordsProcessed"] == len(_RECORDS)
    assert sums["DataBytesProcessed"] == 100 * len(_RECORDS)
    assert "MillisBehindLatest" in sums
    # What is handed over gets everything as well, and the pool is empty at the end.
    assert {type(one) for one in events} <= set(EVENT_TYPES)
    assert [one for one in events if isinstance(one, FetcherStopped)]
    assert [one for one in events if isinstance(one, PoolUsed)][-1].records == 0
