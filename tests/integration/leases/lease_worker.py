"""A worker of an application: it reads by the public API, and appends what it does to a file.

Its arguments are its name, how it reads (``read``, ``scan`` or ``batches``), the file and the
properties. The data of a record may tell the worker of a name to ``wait`` (the event loop goes on)
or to ``block`` (it does not, except in a scan), for so many seconds: ``17 block first 3``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from threading import Thread
from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers import KinesisDataFetcher, Record, read, scan
from kinesis_publishers.events import (
    LeaseLost,
    LeaseReleased,
    LeasesCounted,
    LeaseTaken,
    ShardStarted,
    ShardStopped,
)

if TYPE_CHECKING:
    from kinesis_publishers import Event, RecordBatch, Shard
    from kinesis_publishers.model import ShardKey

_TOLD_EVENTS = (LeaseLost, LeaseReleased, LeaseTaken, ShardStarted, ShardStopped)


@frozen
class WorkerLog:
    """A file in which every line is one write: what was noted survives a kill."""

    name: str
    descriptor: int

    def note(self, what: str, shard_id: str, detail: str = "") -> None:
        # The monotonic clock is that of the whole machine.
        line = f"{time.monotonic():.6f} {what} {shard_id} {detail}\n"
        os.write(self.descriptor, line.encode())

    def take_event(self, event: Event) -> None:
        if isinstance(event, LeasesCounted):
            self.note("look", "-")
        elif isinstance(event, _TOLD_EVENTS):
            self.note(type(event).__name__, event.shard.shard_id)

    def take(self, record: Record) -> tuple[str, float]:
        """Note a record; return what it tells this worker to do, and for how long."""
        self.note("record", record.shard_id, record.sequence_number)
        words = record.data.decode().split()
        if len(words) == 4 and words[2] == self.name:
            return words[1], float(words[3])
        return "", 0.0

    async def process(self, record: Record) -> None:
        what, seconds = self.take(record)
        if what == "wait":
            await asyncio.sleep(seconds)
        elif what == "block":
            time.sleep(seconds)  # noqa: ASYNC251 - what a bad program does
        if what:
            self.note("done", record.shard_id, record.sequence_number)

    def process_in_thread(self, record: Record) -> None:
        what, seconds = self.take(record)
        time.sleep(seconds)
        if what:
            self.note("done", record.shard_id, record.sequence_number)

    async def process_batch(self, shard: Shard, batch: RecordBatch) -> None:
        self.note("batch", shard.shard_id)
        for record in batch:
            await self.process(record)

    async def note_lost(self, shard: ShardKey) -> None:
        self.note("lost", shard.shard_id)


async def read_records(properties: dict[str, str], log: WorkerLog) -> None:
    stream = read(properties, on_shard_lost=log.note_lost, events=log.take_event)
    async with stream as records:
        async for record in records:
            await log.process(record)


async def read_batches(properties: dict[str, str], log: WorkerLog) -> None:
    opened = KinesisDataFetcher.from_properties(
        properties, log.process_batch, events=log.take_event
    )
    async with opened as fetcher:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fetcher.stop)
        await fetcher.run()


def main() -> None:
    name, how, path, properties = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log = WorkerLog(name, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    # It does not outlive the test's process.
    Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    log.note("started", "-")
    if how == "scan":
        scan(
            properties,
            log.process_in_thread,
            workers=4,
            on_shard_lost=lambda shard: log.note("lost", shard.shard_id),
            events=log.take_event,
        )
    else:
        asyncio.run((read_records if how == "read" else read_batches)(properties, log))
    log.note("stopped", "-")


if __name__ == "__main__":
    main()
