"""The clients that are compared: each reads a whole stream and counts its records.

``python -m benchmarks.clients NAME --endpoint URL --stream NAME`` runs one of them in this process
and prints what it cost as one line of JSON. Set-up (imports, clients, the first connection) is not
counted: the clocks start at the end of the first page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.canned_pages import Workload
from kinesis_publishers.model.native import SWITCH, find_native

if TYPE_CHECKING:
    from kinesis_publishers import RecordBatch, Shard

__all__ = [
    "CLIENTS",
    "CREDENTIALS",
    "REGION",
    "choose_decoder",
    "count_records",
    "reader_properties",
    "shard_ids",
]

CREDENTIALS = {"aws_access_key_id": "benchmark", "aws_secret_access_key": "benchmark"}
REGION = "us-east-1"

Read: TypeAlias = Callable[["Meter"], Awaitable[None]]
# Opened with a URL and a workload; what it yields reads the whole stream and reports each page.
Client: TypeAlias = Callable[[str, Workload], AbstractAsyncContextManager[Read]]


class Meter:
    """Counts records, and what they cost once the first page is done."""

    def __init__(self) -> None:
        self.records = self._uncounted = 0
        self._cpu = self._wall = 0.0

    def add(self, records: int) -> None:
        """Count a page that the consumer is done with."""
        if not self.records:
            self._uncounted = records
            self._cpu, self._wall = time.process_time(), time.perf_counter()
        self.records += records

    def result(self) -> dict[str, Any]:
        return {
            "records": self.records - self._uncounted,
            "cpu_seconds": time.process_time() - self._cpu,
            "wall_seconds": time.perf_counter() - self._wall,
            "peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }


def reader_properties(endpoint: str, workload: Workload) -> dict[str, str | int]:
    """Return properties with which our client reads as fast as it can."""
    return {
        "kinesis.streams": workload.name,
        "kinesis.stream.initpos": "TRIM_HORIZON",
        # AWS's limits would leave the client idle; the canned server has none.
        "kinesis.shard.limits": "off",
        "kinesis.shard.getrecords.intervalmillis": 0,
        "aws.endpoint": endpoint,
        "aws.region": REGION,
        "aws.credentials.provider.basic.accesskeyid": "benchmark",
        "aws.credentials.provider.basic.secretkey": "benchmark",
    }


@asynccontextmanager
async def _ours(
    endpoint: str,
    workload: Workload,
    count: Callable[[RecordBatch], int],
    **more: str,
) -> AsyncIterator[Read]:
    from kinesis_publishers import KinesisDataFetcher

    meter = Meter()

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        meter.add(count(batch))
        if meter.records >= workload.records:
            fetcher.stop()

    async def read(given: Meter) -> None:
        nonlocal meter
        meter = given
        await fetcher.run()

    properties = reader_properties(endpoint, workload)
    properties |= {f"kinesis.{key.replace('_', '.')}": value for key, value in more.items()}
    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        await fetcher.prepare()
        yield read


def count_records(records: Iterable[object]) -> int:
    """Take one record after the other and count them."""
    count = 0
    for _ in records:
        count += 1
    return count


def ours_records(endpoint: str, workload: Workload) -> AbstractAsyncContextManager[Read]:
    """Our whole framework; the consumer iterates record by record."""
    return _ours(endpoint, workload, count_records)


def ours_json(endpoint: str, workload: Workload) -> AbstractAsyncContextManager[Read]:
    """The same as ours_batches with GetRecords in JSON."""
    return _ours(endpoint, workload, len, shard_getrecords_encoding="json")


def ours_cbor(endpoint: str, workload: Workload) -> AbstractAsyncContextManager[Read]:
    """The same as ours_batches with GetRecords in CBOR."""
    return _ours(endpoint, workload, len, shard_getrecords_encoding="cbor")


def ours_batches(endpoint: str, workload: Workload) -> AbstractAsyncContextManager[Read]:
    """Our whole framework; the consumer takes only the length of each batch."""
    return _ours(endpoint, workload, len)


@asynccontextmanager
async def _ours_stored(endpoint: str, workload: Workload, **more: str) -> AsyncIterator[Read]:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/checkpoints.sqlite3"
        more |= {"checkpoint_application": "benchmark", "checkpoint_sqlite_path": path}
        async with _ours(endpoint, workload, len, **more) as read:
            yield read


def ours_checkpoints(endpoint: str, workload: Workload) -> AbstractAsyncContextManager[Read]:
    """The same as ours_batches with checkpoints in a file."""
    return _ours_stored(endpoint, workload)


def ours_leases(endpoint: str, workload: Workload) -> AbstractAsyncContextManager[Read]:
    """The same as ours_checkpoints as the only worker of its application."""
    return _ours_stored(endpoint, workload, lease_enabled="true")


@asynccontextmanager
async def boto3_loop(endpoint: str, workload: Workload) -> AsyncIterator[Read]:
    """A plain loop over boto3's ``get_records``, shard after shard."""
    import boto3

    client = boto3.client("kinesis", endpoint_url=endpoint, region_name=REGION, **CREDENTIALS)

    def read_shard(shard_id: str, meter: Meter) -> None:
        iterator = client.get_shard_iterator(**_first(workload, shard_id))["ShardIterator"]
        while iterator:
            answer = client.get_records(ShardIterator=iterator, Limit=10_000)
            meter.add(count_records(answer["Records"]))
            iterator = answer.get("NextShardIterator")

    async def read(meter: Meter) -> None:
        # It blocks the loop, which has nothing else to do.
        for shard_id in shard_ids(workload):
            read_shard(shard_id, meter)

    yield read
    client.close()


@asynccontextmanager
async def aiobotocore_loop(endpoint: str, workload: Workload) -> AsyncIterator[Read]:
    """A plain loop over aiobotocore's ``get_records``, a task per shard."""
    from aiobotocore.session import get_session

    async with get_session().create_client(
        "kinesis", endpoint_url=endpoint, region_name=REGION, **CREDENTIALS
    ) as client:

        async def read_shard(shard_id: str, meter: Meter) -> None:
            first = await client.get_shard_iterator(**_first(workload, shard_id))
            iterator = first["ShardIterator"]
            while iterator:
                answer = await client.get_records(ShardIterator=iterator, Limit=10_000)
                meter.add(count_records(answer["Records"]))
                iterator = answer.get("NextShardIterator")

        async def read(meter: Meter) -> None:
            shards = shard_ids(workload)
            await asyncio.gather(*(read_shard(shard_id, meter) for shard_id in shards))

        yield read


@asynccontextmanager
async def async_kinesis(endpoint: str, workload: Workload) -> AsyncIterator[Read]:
    """The ``Consumer`` of async-kinesis, as fast as its options allow."""
    from aiobotocore.session import AioSession
    from kinesis import Consumer
    from kinesis.processors import Processor

    class RawProcessor(Processor):
        """Cheaper than any that it ships: hands the payload on, nothing is parsed."""

        def parse(self, data: bytes) -> tuple[bytes]:
            return (data,)

    session = AioSession()
    session.set_credentials("benchmark", "benchmark")
    async with Consumer(
        workload.name,
        session=session,
        endpoint_url=endpoint,
        region_name=REGION,
        processor=RawProcessor(),
        max_queue_size=0,  # unbounded: the queue never makes the fetching wait
        shard_fetch_rate=1_000_000,  # its throttler never waits
        sleep_time_no_records=0,
        record_limit=10_000,
        use_list_shards=True,
        idle_timeout=30,
    ) as consumer:

        async def read(meter: Meter) -> None:
            count = 0
            async for _ in consumer:
                count += 1
                if count == workload.page_records:
                    meter.add(count)
                    count = 0
                    if meter.records >= workload.records:
                        return

        yield read


def _first(workload: Workload, shard_id: str) -> dict[str, str]:
    return {
        "StreamName": workload.name,
        "ShardId": shard_id,
        "ShardIteratorType": "TRIM_HORIZON",
    }


def shard_ids(workload: Workload) -> list[str]:
    """Return the ids that the shards of a canned stream have."""
    return [f"shardId-{shard:012d}" for shard in range(workload.shards)]


CLIENTS: dict[str, Client] = {
    "ours-records": ours_records,
    "ours-batches": ours_batches,
    "ours-json": ours_json,
    "ours-cbor": ours_cbor,
    "ours-checkpoints": ours_checkpoints,
    "ours-leases": ours_leases,
    "native-records": ours_records,
    "native-batches": ours_batches,
    "boto3": boto3_loop,
    "aiobotocore": aiobotocore_loop,
    "async-kinesis": async_kinesis,
}
"""Every client, by the name it has in the results. ``native-`` ones decode in native code."""


def choose_decoder(client: str) -> None:
    """Let this process decode as the name of a client says."""
    is_native = client.startswith("native")
    os.environ[SWITCH] = "1" if is_native else "0"
    functions, decoder = find_native()
    if is_native and functions is None:
        sys.exit(f"Records are decoded in {decoder}: pip install ./native")


async def _measure(client: Client, endpoint: str, workload: Workload) -> dict[str, Any]:
    meter = Meter()
    async with client(endpoint, workload) as read:
        await read(meter)
        result = meter.result()
    if meter.records != workload.records:
        raise AssertionError(f"{meter.records} records were read instead of {workload.records}")
    return result


def main() -> None:
    """Run one client and print what it cost."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--stream", required=True)
    arguments = parser.parse_args()
    workload = Workload.parse(arguments.stream)
    if workload is None:
        sys.exit(f"{arguments.stream!r} does not describe a workload")
    logging.basicConfig(level=logging.WARNING)
    choose_decoder(arguments.client)
    measured = asyncio.run(_measure(CLIENTS[arguments.client], arguments.endpoint, workload))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
