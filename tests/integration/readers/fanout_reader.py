"""Reads by enhanced fan-out from a local server over each protocol, and remembers what came."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kinesis_publishers import KinesisDataFetcher, RecordBatch, Shard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kinesis_publishers import StreamProgress
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = ["EFO", "PROTOCOLS", "STREAM", "FanOutReader", "numbered", "until"]

STREAM = "orders"
#: What each protocol needs: whether the server has TLS, and the options of the client.
PROTOCOLS: dict[str, tuple[bool, dict[str, str]]] = {
    "HTTP/1.1": (False, {}),
    "HTTP/1.1 over TLS": (True, {"kinesis.stream.efo.http-version": "1.1"}),
    "HTTP/2": (True, {}),
}
EFO = {
    "kinesis.stream.recordpublisher": "EFO",
    "kinesis.stream.efo.consumername": "reports",
    "kinesis.stream.initpos": "TRIM_HORIZON",
    "kinesis.shard.discovery.intervalmillis": "500",
    # Delays are random below these; the five seconds between subscriptions are the service's.
    "kinesis.stream.registerstreamconsumer.backoff.base": "10",
    "kinesis.stream.describestreamconsumer.backoff.base": "10",
}
_KEYS = 50


def numbered(start: int, stop: int, *, size: int = 20) -> list[tuple[str, bytes]]:
    """Return records of 50 partition keys that say their number."""
    return [(f"key-{n % _KEYS}", str(n).encode().ljust(size, b".")) for n in range(start, stop)]


async def until(condition: Callable[[], bool], task: asyncio.Task[None] | None = None) -> None:
    """Wait until ``condition`` holds; a ``task`` that fails meanwhile raises here."""
    async with asyncio.timeout(90):
        while not condition():
            if task is not None and task.done():
                task.result()
            await asyncio.sleep(0.01)


class FanOutReader:
    """Reads one stream; :attr:`task` runs while the context of :meth:`reading` lasts."""

    def __init__(self, server: LocalKinesis, properties: Mapping[str, str] | None = None) -> None:
        self._properties = {**server.properties(STREAM), **EFO, **(properties or {})}
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.count = 0
        self.progress: dict[str, StreamProgress] = {}
        self._gate = asyncio.Event()
        self._gate.set()

    def block(self) -> None:
        self._gate.clear()

    def unblock(self) -> None:
        self._gate.set()

    async def _on_batch(self, _: Shard, batch: RecordBatch) -> None:
        await self._gate.wait()
        for record in batch:
            self.by_key[record.partition_key].append(int(record.data.rstrip(b".")))
        self.count += len(batch)

    @asynccontextmanager
    async def reading(
        self, resume: Mapping[str, StreamProgress] | None = None
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Read until the context is left; the progress of the end is kept."""
        async with KinesisDataFetcher.from_properties(
            self._properties, self._on_batch, resume=resume
        ) as fetcher:
            task = asyncio.create_task(fetcher.run())
            try:
                yield task
            finally:
                fetcher.stop()
                await asyncio.gather(task, return_exceptions=True)
                self.progress = fetcher.progress
        if not task.cancelled():
            task.result()

    async def read(self, count: int, resume: Mapping[str, StreamProgress] | None = None) -> None:
        """Read until so many records have come in all."""
        async with self.reading(resume) as task:
            await until(lambda: self.count >= count, task)

    def assert_complete(self, count: int) -> None:
        """Check that each record has come once, and those of a partition key in order."""
        assert self.count == count
        for index in range(min(count, _KEYS)):
            assert self.by_key[f"key-{index}"] == list(range(index, count, _KEYS))
