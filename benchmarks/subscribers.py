"""The fan-out clients that are compared: each subscribes to every shard and counts records.

``python -m benchmarks.subscribers NAME --endpoint URL --stream NAME --seconds 5`` runs one of them
in this process and prints what it cost as one line of JSON. Set-up is not counted: the clocks start
when every shard has delivered an event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import resource
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.canned_events import consumer_arn
from benchmarks.canned_pages import Workload
from benchmarks.clients import CREDENTIALS, REGION, count_records, reader_properties, shard_ids

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers import RecordBatch, Shard

__all__ = ["SUBSCRIBERS", "Target", "subscriber_properties"]

_MAX_CONNECTIONS = 1_000


class Meter:
    """Counts what comes within some seconds after every shard has delivered something.

    Args:
        shards: how many shards there are.
        seconds: how long to count.
    """

    def __init__(self, shards: int, seconds: float) -> None:
        self._seconds = seconds
        self._waited_for = shards
        self._seen: set[str] = set()
        self._records = self._events = 0
        self._cpu = self._began = 0.0
        self.result: dict[str, Any] | None = None

    def add(self, shard_id: str, records: int) -> bool:
        """Count an event that the consumer is done with; return False when it was the last one."""
        now = time.perf_counter()
        if len(self._seen) < self._waited_for:
            self._seen.add(shard_id)
            self._cpu, self._began = time.process_time(), now
            return True
        self._records += records
        self._events += 1
        if self.result is None and now - self._began >= self._seconds:
            self.result = {
                "records": self._records,
                "events": self._events,
                "cpu_seconds": time.process_time() - self._cpu,
                "wall_seconds": now - self._began,
                "peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            }
        return self.result is None


@dataclass(frozen=True)
class Target:
    """What is subscribed to.

    Attributes:
        url: the endpoint.
        ca_bundle: the certificates that it is trusted by; None for plain HTTP.
        workload: what the stream holds.
    """

    url: str
    ca_bundle: str | None
    workload: Workload


Subscriber: TypeAlias = Callable[[Target, Meter], Awaitable[None]]


def subscriber_properties(target: Target) -> dict[str, str | int]:
    """Return properties with which our client subscribes to a canned stream."""
    stream = target.workload.name
    properties = reader_properties(target.url, target.workload) | {
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.registration": "NONE",
        f"kinesis.stream.efo.consumerarn.{stream}": consumer_arn(target.workload),
    }
    return properties | ({} if target.ca_bundle is None else {"aws.cabundle": target.ca_bundle})


async def ours(target: Target, meter: Meter) -> None:
    """Our whole framework; the consumer iterates record by record."""
    from kinesis_publishers import KinesisDataFetcher

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        if not meter.add(shard.shard_id, count_records(batch)):
            fetcher.stop()

    properties = subscriber_properties(target)
    repetitions: list[object] = []
    async with KinesisDataFetcher.from_properties(
        properties, on_batch, events=lambda event: _note_repetition(event, repetitions)
    ) as fetcher:
        await fetcher.run()
    # They would be read without being counted.
    assert not repetitions, f"the server repeats itself: {repetitions[0]}"


def _note_repetition(event: object, repetitions: list[object]) -> None:
    from kinesis_publishers.events import RecordsSkipped

    if isinstance(event, RecordsSkipped):
        repetitions.append(event)


async def aiobotocore_subscribers(
    target: Target, meter: Meter, session_class: type | None = None
) -> None:
    """A plain loop over aiobotocore's ``subscribe_to_shard``, a task per shard."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(
        # With the default, the eleventh subscription would wait for ever.
        max_pool_connections=_MAX_CONNECTIONS,
        **({} if session_class is None else {"http_session_cls": session_class}),
    )
    async with get_session().create_client(
        "kinesis",
        endpoint_url=target.url,
        region_name=REGION,
        verify=target.ca_bundle,
        config=config,
        **CREDENTIALS,
    ) as client:

        async def read_shard(shard_id: str) -> None:
            answer = await client.subscribe_to_shard(
                ConsumerARN=consumer_arn(target.workload),
                ShardId=shard_id,
                StartingPosition={"Type": "TRIM_HORIZON"},
            )
            async for event in answer["EventStream"]:
                records = event["SubscribeToShardEvent"]["Records"]
                if not meter.add(shard_id, count_records(records)):
                    is_over.set()

        is_over = asyncio.Event()
        tasks = [asyncio.ensure_future(read_shard(name)) for name in shard_ids(target.workload)]
        over = asyncio.ensure_future(is_over.wait())
        await asyncio.wait([*tasks, over], return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, over):
            task.cancel()
        await asyncio.wait([*tasks, over])


async def aiobotocore_http2(target: Target, meter: Meter) -> None:
    """The same over HTTP/2, which takes three changes to aiobotocore.

    Its session for httpx is made to offer HTTP/2, and its event stream, which reads a response of
    aiohttp, to read one of httpx. Each subscription gets a connection: on the one that httpx would
    share, those that come first use up the receive window, and of 32 most never get an event.
    """
    import httpx
    from aiobotocore.eventstream import AioEventStream
    from aiobotocore.httpxsession import HttpxSession
    from botocore.eventstream import EventStreamBuffer

    class Http2Session(HttpxSession):
        async def _get_session(self, _request_url: str) -> httpx.AsyncClient:
            client = httpx.AsyncClient(
                timeout=self._timeout,
                limits=self._limits,
                verify=self._verify,
                http2=True,
                trust_env=False,
            )
            opened: httpx.AsyncClient = await self._exit_stack.enter_async_context(client)
            return opened

    async def read_httpx(stream: Any) -> AsyncIterator[Any]:
        buffer = EventStreamBuffer()
        async for chunk in stream._raw_stream.aiter_raw():
            buffer.add_data(chunk)
            for event in buffer:
                yield event

    # It warns that another package will replace httpx.
    warnings.simplefilter("ignore", DeprecationWarning)
    AioEventStream._create_raw_event_generator = read_httpx
    await aiobotocore_subscribers(target, meter, Http2Session)


SUBSCRIBERS: dict[str, Subscriber] = {
    "ours": ours,
    "aiobotocore": aiobotocore_subscribers,
    "aiobotocore-http2": aiobotocore_http2,
}
"""Every client, by the name it has in the results."""


async def _measure(subscriber: Subscriber, target: Target, seconds: float) -> dict[str, Any]:
    meter = Meter(target.workload.shards, seconds)
    await subscriber(target, meter)
    if meter.result is None:
        raise AssertionError("the client ended before it was told to")
    return meter.result


def main() -> None:
    """Run one client and print what it cost."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("client", choices=SUBSCRIBERS)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--ca-bundle")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    workload = Workload.parse(arguments.stream)
    if workload is None:
        sys.exit(f"{arguments.stream!r} does not describe a workload")
    logging.basicConfig(level=logging.WARNING)
    target = Target(arguments.endpoint, arguments.ca_bundle, workload)
    measured = _measure(SUBSCRIBERS[arguments.client], target, arguments.seconds)
    print(json.dumps(asyncio.run(measured)), flush=True)


if __name__ == "__main__":
    main()
