"""What it costs to write records, beside the peers; how soon they are written, and from Spark.

``python -m benchmarks.producing --output benchmarks/results/producing.json`` writes the figures as
JSON and, next to it, Markdown tables. The canned server accepts everything at memory speed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
import uuid
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.canned_pages import Workload
from benchmarks.canned_server import running_server
from benchmarks.clients import CREDENTIALS, REGION, choose_decoder
from benchmarks.memory import rss_bytes
from benchmarks.polling import environment, heading, numbers, publish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kinesis_publishers import KinesisProducer

_PACKAGES = ("botocore", "aiobotocore", "aiohttp", "orjson", "pybase64", "async-kinesis", "pyspark")
_STREAM = Workload(1024, 1, 0).name
_BASELINE = "boto3"
# They are put again and again.
_PREPARED = 20_000
_MANY = 2_000
_MOST_UNDER_WAY = 8
_MIB = 1024 * 1024
_CORES = 2

_Record = tuple[bytes, str]


def _records(size: int) -> list[_Record]:
    keys = [uuid.uuid4().hex for _ in range(1000)]
    return [(os.urandom(size), keys[number % len(keys)]) for number in range(_PREPARED)]


def producer_properties(url: str, **options: Any) -> dict[str, Any]:
    """Return properties with which our producer writes as fast as it can."""
    return {
        "kinesis.streams": _STREAM,
        "aws.endpoint": url,
        "aws.region": REGION,
        "aws.credentials.provider.basic.accesskeyid": "benchmark",
        "aws.credentials.provider.basic.secretkey": "benchmark",
        # The rate of a shard would leave the client idle.
        "kinesis.producer.ratelimit": 10_000_000,
        **{f"kinesis.producer.{name.replace('_', '.')}": one for name, one in options.items()},
    }


@asynccontextmanager
async def _boto3(url: str, records: list[_Record]) -> AsyncIterator[Callable[[int], Any]]:
    import boto3

    client = boto3.client("kinesis", endpoint_url=url, region_name=REGION, **CREDENTIALS)

    async def put(count: int) -> None:
        for start in range(0, count, 500):
            first = start % _PREPARED
            answer = client.put_records(
                StreamName=_STREAM,
                Records=[
                    {"Data": data, "PartitionKey": key}
                    for data, key in records[first : first + 500]
                ],
            )
            assert not any("ErrorCode" in one for one in answer["Records"])

    yield put


def _async_kinesis(*, aggregates: bool) -> Any:
    @asynccontextmanager
    async def opened(url: str, records: list[_Record]) -> AsyncIterator[Callable[[int], Any]]:
        from aiobotocore.session import AioSession
        from kinesis import Producer
        from kinesis.aggregators import KPLAggregator, SimpleAggregator
        from kinesis.serializers import Serializer

        class AsItIs(Serializer):
            def serialize(self, item: Any) -> Any:
                return item

            def deserialize(self, data: Any) -> Any:
                return data

        class Aggregated(KPLAggregator, AsItIs):
            pass

        class Plain(SimpleAggregator, AsItIs):
            pass

        session = AioSession()
        session.set_credentials(*CREDENTIALS.values())
        async with Producer(
            _STREAM,
            session=session,
            endpoint_url=url,
            region_name=REGION,
            put_rate_limit_per_shard=10**9,
            put_bandwidth_limit_per_shard=10**9,
            processor=Aggregated() if aggregates else Plain(),
            max_queue_size=100_000,
            use_list_shards=True,
        ) as producer:

            async def put(count: int) -> None:
                for number in range(count):
                    data, key = records[number % _PREPARED]
                    # Its aggregator knows no keys.
                    await (
                        producer.put(data) if aggregates else producer.put(data, partition_key=key)
                    )
                await producer.flush()

            yield put

    return opened


def _ours(*, many: bool, **options: Any) -> Any:
    @asynccontextmanager
    async def opened(url: str, records: list[_Record]) -> AsyncIterator[Callable[[int], Any]]:
        from kinesis_publishers import KinesisProducer

        properties = producer_properties(url, **options)
        async with KinesisProducer.from_properties(properties) as producer:

            async def put_one_by_one(count: int) -> None:
                for number in range(count):
                    data, key = records[number % _PREPARED]
                    await producer.put(data, key)
                await producer.flush()

            async def put_many(count: int) -> None:
                under_way: list[asyncio.Future[Any]] = []
                for start in range(0, count, _MANY):
                    first = start % _PREPARED
                    under_way.append(await producer.put_many(records[first : first + _MANY]))
                    if len(under_way) > _MOST_UNDER_WAY:
                        await under_way.pop(0)
                await asyncio.gather(*under_way)

            yield put_many if many else put_one_by_one

    return opened


CLIENTS: dict[str, Any] = {
    _BASELINE: _boto3,
    "async-kinesis": _async_kinesis(aggregates=False),
    "async-kinesis-kpl": _async_kinesis(aggregates=True),
    "ours": _ours(many=True),
    "ours-put": _ours(many=False),
    "ours-aggregated": _ours(many=True, aggregation="true"),
    "ours-aggregated-put": _ours(many=False, aggregation="true"),
    "native": _ours(many=True),
    "native-aggregated": _ours(many=True, aggregation="true"),
}
# It takes 200 microseconds for a record.
_SLOW = {"async-kinesis": 20}


async def _measure_one(name: str, url: str, size: int, count: int) -> dict[str, float]:
    records = _records(size)
    count = max(1000, count // _SLOW.get(name, 1))
    async with CLIENTS[name](url, records) as put:
        await put(min(count, _PREPARED))
        cpu, wall = time.process_time(), time.perf_counter()
        await put(count)
        spent = time.process_time() - cpu
        return {"cpu_us": spent / count * 1e6, "seconds": time.perf_counter() - wall}


def measure_throughput(
    url: str, sizes: list[int], count: int, repetitions: int, clients: list[str]
) -> list[dict[str, Any]]:
    """Let each client write records of each size, in processes of their own, in rotated order."""
    rows = []
    for size in sizes:
        samples: dict[str, list[float]] = {name: [] for name in clients}
        for repetition in range(repetitions):
            turn = repetition % len(clients)
            for name in clients[turn:] + clients[:turn]:
                command = [sys.executable, "-m", "benchmarks.producing", "--client", name]
                command += ["--url", url, "--sizes", str(size), "--records", str(count)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                samples[name].append(json.loads(done.stdout)["cpu_us"])
                print(".", end="", file=sys.stderr, flush=True)
        rows += [
            {"client": name, "record_bytes": size, "cpu_us": of_client}
            for name, of_client in samples.items()
        ]
    return rows


async def measure_latency(url: str, linger_ms: int, count: int) -> dict[str, Any]:
    """Put 200 records a second; return the milliseconds until they were acknowledged."""
    from kinesis_publishers import KinesisProducer

    properties = producer_properties(url, lingermillis=linger_ms)
    async with KinesisProducer.from_properties(properties) as producer:
        futures = []
        for _ in range(count):
            futures.append(await producer.put(os.urandom(200), uuid.uuid4().hex))
            await asyncio.sleep(0.005)
        seconds = sorted([(await future).seconds for future in futures])
    return {
        "linger_ms": linger_ms,
        "p50_ms": seconds[len(seconds) // 2] * 1000,
        "p99_ms": seconds[len(seconds) * 99 // 100] * 1000,
    }


async def measure_memory(url: str, count: int, **options: Any) -> dict[str, Any]:
    """Put so many records of 200 B; return the resident memory on the way."""
    from kinesis_publishers import KinesisProducer

    records, sizes = _records(200), {}
    async with KinesisProducer.from_properties(producer_properties(url, **options)) as producer:
        put = 0
        for share in (10, 50, 100):
            while put < count * share // 100:
                await _put_and_forget(producer, records)
                put += _PREPARED
            sizes[f"at {share} %"] = rss_bytes() / _MIB
    return {"records": count, "rss_mib": sizes, "aggregates": bool(options)}


async def _put_and_forget(producer: KinesisProducer, records: list[_Record]) -> None:
    for data, key in records:
        await producer.put(data, key)


def measure_spark(url: str, megabytes: int, repetitions: int) -> list[dict[str, Any]]:
    """Write a cached DataFrame of 1 KiB records with the sink; return MB/s by variant."""
    from benchmarks.spark_queries import running_spark

    rows = []
    with running_spark() as bench:
        spark, count = bench.spark, megabytes * 1_000_000 // 1024
        columns = "repeat(sha2(cast(id as string), 512), 8) AS data", "uuid() AS partitionKey"
        frame = spark.range(0, count, 1, _CORES).selectExpr(*columns).cache()
        frame.count()
        variants = {
            "plain": {},
            "aggregated": {"kinesis.producer.aggregation": "true"},
            "marked": {"includeBatchMarker": "true"},
        }
        for name, options in variants.items():
            properties = {key: str(one) for key, one in producer_properties(url).items()} | options
            writer = frame.write.format("kinesis").options(**properties).mode("append")
            writer.save()
            seconds = []
            for _ in range(repetitions):
                began = time.perf_counter()
                writer.save()
                seconds.append(time.perf_counter() - began)
            speed = [count * 1024 / 1e6 / one for one in seconds]
            rows.append({"variant": name, "megabytes": megabytes, "mb_per_second": speed})
            print(".", end="", file=sys.stderr, flush=True)
    return rows


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as tables."""
    lines = heading("Producing", result["command"], result["environment"])
    if result["throughput"]:
        lines += [
            "| client | record | CPU µs | records per CPU-s | x boto3 |",
            "|---|---|---|---|---|",
        ]
    medians = {
        (row["client"], row["record_bytes"]): statistics.median(row["cpu_us"])
        for row in result["throughput"]
    }
    for (client, size), median in medians.items():
        base = medians.get((_BASELINE, size), median)
        lines.append(
            f"| {client} | {size} B | {median:.2f} | {1e6 / median:,.0f} | {base / median:.1f} |"
        )
    if result["latency"]:
        lines += ["", "| linger | p50 | p99 |", "|---|---|---|"]
    lines += [
        f"| {one['linger_ms']} ms | {one['p50_ms']:.1f} ms | {one['p99_ms']:.1f} ms |"
        for one in result["latency"]
    ]
    if result["memory"]:
        lines += ["", "| records | aggregation | resident memory |", "|---|---|---|"]
    for one in result["memory"]:
        shown = ", ".join(f"{name}: {mib:.0f} MiB" for name, mib in one["rss_mib"].items())
        lines.append(f"| {one['records']:,} | {'on' if one['aggregates'] else 'off'} | {shown} |")
    if result["spark"]:
        lines += ["", "| Spark's sink | records of 1 KiB | MB/s |", "|---|---|---|"]
    for one in result["spark"]:
        median = statistics.median(one["mb_per_second"])
        lines.append(f"| {one['variant']} | {one['megabytes']} MB | {median:.0f} |")
    return "\n".join(lines) + "\n"


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    parts, clients = arguments.parts.split(","), arguments.clients.split(",")
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.producing {shlex.join(sys.argv[1:])}".strip(),
        "environment": environment(_PACKAGES),
    }
    result |= {"throughput": [], "latency": [], "memory": [], "spark": []}
    with running_server() as url:
        if "throughput" in parts:
            sizes = numbers(arguments.sizes)
            of_clients = arguments.records, arguments.repetitions, clients
            result["throughput"] = measure_throughput(url, sizes, *of_clients)
        if "latency" in parts:
            result["latency"] = [asyncio.run(measure_latency(url, ms, 2000)) for ms in (10, 100)]
        if "memory" in parts:
            hour = arguments.memory_records
            result["memory"] = [
                asyncio.run(measure_memory(url, hour)),
                asyncio.run(measure_memory(url, hour, aggregation="true")),
            ]
        if "spark" in parts:
            result["spark"] = measure_spark(url, arguments.megabytes, arguments.repetitions)
    return result


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="throughput,latency,memory,spark")
    parser.add_argument("--sizes", default="200,1024", help="of records, in bytes")
    parser.add_argument("--records", type=int, default=400_000, help="per run")
    parser.add_argument("--memory-records", type=int, default=3_600_000, help="in all")
    parser.add_argument("--megabytes", type=int, default=400, help="that Spark writes")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="JSON; the table goes next to it as .md")
    arguments = parser.parse_args()
    if arguments.client:
        choose_decoder(arguments.client)
        size = int(arguments.sizes)
        one = _measure_one(arguments.client, arguments.url, size, arguments.records)
        print(json.dumps(asyncio.run(one)))
        return
    result = _measure(arguments)
    print(file=sys.stderr)
    publish(markdown(result), result, arguments.output)


if __name__ == "__main__":
    main()
