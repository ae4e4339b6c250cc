"""What a GetRecords call costs that finds nothing: back to back, and in a reader of idle shards.

``python -m benchmarks.calls --output benchmarks/results/calls.json`` writes the figures as JSON
and, next to it, a Markdown table. The server answers at memory speed and nothing is shared with
it, but the kernel's part of the connection: the row ``aiohttp`` is the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import statistics
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiobotocore.session import get_session

from benchmarks.canned_pages import Workload
from benchmarks.canned_server import STREAM_ARN, running_server, served
from benchmarks.clients import CREDENTIALS, REGION, reader_properties
from benchmarks.polling import environment, heading, publish
from kinesis_publishers import KinesisDataFetcher, Properties, Shard, StartingPosition
from kinesis_publishers.aws.data_plane import AioDataPlane
from kinesis_publishers.config import AwsConfig, Encoding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

_EMPTY = Workload(1024, 1, 0)
_SHARD = Shard(stream_arn=STREAM_ARN + _EMPTY.name, shard_id="shardId-000000000000")
_LIMIT = 10_000
_WARM_UP_CALLS = 50
# By default a shard is asked less often only after some calls that found nothing.
_WARM_UP_SECONDS = 8.0
_POLL_MILLIS = 200


@asynccontextmanager
async def _ours(url: str, encoding: Encoding) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    aws = AwsConfig.from_properties(Properties.parse(reader_properties(url, _EMPTY)))
    async with AioDataPlane(aws, encoding=encoding) as plane:
        iterator = await plane.get_shard_iterator(_SHARD, StartingPosition.trim_horizon())
        yield lambda: plane.get_records(_SHARD, iterator, _LIMIT)


@asynccontextmanager
async def _aiobotocore(url: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    session = get_session()
    async with session.create_client(
        "kinesis", endpoint_url=url, region_name=REGION, **CREDENTIALS
    ) as client:
        found = await client.get_shard_iterator(
            StreamARN=_SHARD.stream_arn, ShardId=_SHARD.shard_id, ShardIteratorType="TRIM_HORIZON"
        )
        request = {"StreamARN": _SHARD.stream_arn, "ShardIterator": found["ShardIterator"]}
        yield lambda: client.get_records(**request, Limit=_LIMIT)


@asynccontextmanager
async def _aiohttp(url: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    headers = {"X-Amz-Target": "Kinesis_20131202.GetRecords"}
    body = f'{{"ShardIterator":"{_EMPTY.name}/0/0/0/"}}'.encode()
    async with aiohttp.ClientSession(headers=headers) as session:

        async def call() -> object:
            async with session.post(url, data=body) as response:
                return await response.read()

        yield call


_CALLERS: dict[
    str, Callable[[str], AbstractAsyncContextManager[Callable[[], Awaitable[object]]]]
] = {
    "ours": lambda url: _ours(url, Encoding.CBOR),
    "ours-json": lambda url: _ours(url, Encoding.JSON),
    "aiobotocore": _aiobotocore,
    "aiohttp": _aiohttp,
}


async def measure_calls(url: str, calls: int, repetitions: int) -> dict[str, list[float]]:
    """Return the milliseconds of CPU per call of each client, of interleaved runs."""
    samples: dict[str, list[float]] = {name: [] for name in _CALLERS}
    for _ in range(repetitions):
        for name, opened in _CALLERS.items():
            async with opened(url) as call:
                for _ in range(_WARM_UP_CALLS):
                    await call()
                before = time.process_time()
                for _ in range(calls):
                    await call()
                samples[name].append((time.process_time() - before) / calls * 1000)
        print(".", end="", file=sys.stderr, flush=True)
    return samples


async def measure_idle(url: str, shards: int, seconds: float, limits: str) -> dict[str, Any]:
    """Return what a reader of idle shards takes, with the limits of AWS or without."""
    properties = reader_properties(url, Workload(1024, shards, 0)) | {
        "kinesis.shard.getrecords.intervalmillis": _POLL_MILLIS,
        "kinesis.shard.limits": limits,
    }
    async with KinesisDataFetcher.from_properties(properties, _ignore) as fetcher:
        await fetcher.prepare()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(_WARM_UP_SECONDS)
        calls, cpu = await _asked(url), time.process_time()
        await asyncio.sleep(seconds)
        spent, made = time.process_time() - cpu, await _asked(url) - calls
        fetcher.stop()
        await running
    return {
        "shards": shards,
        "polled": "every 200 ms" if limits == "off" else "by default",
        "cpu_seconds_per_minute": spent * 60 / seconds,
        "calls": made,
        "cpu_ms_per_call": spent / made * 1000,
    }


async def _ignore(*_: object) -> None:
    pass


async def _asked(url: str) -> int:
    return int((await asyncio.to_thread(served, url))["calls"].get("GetRecords", 0))


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as two tables."""
    medians = {name: statistics.median(of_client) for name, of_client in result["calls"].items()}
    lines = [
        *heading("Calls", result["command"], result["environment"]),
        "| client | CPU ms per call | least | x aiohttp |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {median:.3f} | {min(result['calls'][name]):.3f} "
        f"| {median / medians['aiohttp']:.2f} |"
        for name, median in medians.items()
    ]
    lines += [
        "",
        "| idle shards | polled | CPU-s per minute | calls per second | CPU ms per call |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {idle['shards']} | {idle['polled']} | {idle['cpu_seconds_per_minute']:.1f} "
        f"| {idle['calls'] / result['seconds']:.0f} | {idle['cpu_ms_per_call']:.3f} |"
        for idle in result["idle"]
    ]
    return "\n".join(lines) + "\n"


async def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    with running_server() as url:
        calls = await measure_calls(url, arguments.calls, arguments.repetitions)
        idle = [
            await measure_idle(url, arguments.shards, arguments.seconds, limits)
            for limits in ("off", "aws")
        ]
    return {
        "command": f"python -m benchmarks.calls {shlex.join(sys.argv[1:])}".strip(),
        "environment": environment(("botocore", "aiobotocore", "aiohttp", "cbor2")),
        "seconds": arguments.seconds,
        "calls": calls,
        "idle": idle,
    }


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="per run and client")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0, help="of idling")
    parser.add_argument("--output", type=Path, help="JSON; the table goes next to it as .md")
    arguments = parser.parse_args()
    result = asyncio.run(_run(arguments))
    publish(markdown(result), result, arguments.output)


if __name__ == "__main__":
    main()
