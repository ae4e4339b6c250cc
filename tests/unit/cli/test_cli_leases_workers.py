"""``leases`` while real workers read, and what they read after it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import KinesisDataFetcher, Properties
from tests.unit.cli.lease_support import BEGINNING, WITH_LEASES, Application, after

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_publishers import RecordBatch, Shard


class Worker:
    """A process that shares the shards of the application, as a thread."""

    def __init__(self, application: Application) -> None:
        pairs = dict(pair.split("=") for pair in WITH_LEASES if pair != "-P")
        self._properties = Properties.from_file(application.run.path).to_dict() | pairs
        self.found: list[bytes] = []
        self._changed = Condition()

    def wait_for(self, count: int, payload: bytes | None = None) -> list[bytes]:
        """Return what has been read once it is so much, or has ``payload`` so often."""

        def is_read() -> bool:
            return count <= (len(self.found) if payload is None else self.found.count(payload))

        with self._changed:
            assert self._changed.wait_for(is_read, 10), self.found
        return self.found

    @contextmanager
    def running(self) -> Iterator[Worker]:
        """Read until the end of the body."""
        loop = asyncio.new_event_loop()
        fetcher: list[KinesisDataFetcher] = []

        async def on_batch(_: Shard, batch: RecordBatch) -> None:
            with self._changed:
                self.found += [record.data for record in batch]
                self._changed.notify_all()

        async def read() -> None:
            opened = KinesisDataFetcher.from_properties(self._properties, on_batch)
            async with opened as one:
                fetcher.append(one)
                await one.run()

        thread = Thread(target=loop.run_until_complete, args=(read(),))
        thread.start()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(lambda: fetcher[0].stop())
            thread.join()
            loop.close()


@pytest.fixture
def worker(application: Application) -> Iterator[Worker]:
    """A worker that has read ten records of each shard's beginning."""
    application.server.put_many("orders", [(f"key-{n}", b"%d" % n) for n in range(10)])
    with Worker(application).running() as worker:
        worker.wait_for(10)
        yield worker


def test_after_a_forced_reset_a_worker_reads_again(
    application: Application, worker: Worker
) -> None:
    to = ("--to", "TRIM_HORIZON", "--yes", "--force")
    result = application("reset", "--all", *to, *WITH_LEASES)
    assert result.exit_code == 0, result.stderr
    assert sorted(worker.wait_for(20)) == sorted(2 * [b"%d" % n for n in range(10)])


def test_a_released_shard_is_read_on_by_some_worker(
    application: Application, worker: Worker
) -> None:
    result = application("release", "--all", "--yes", *WITH_LEASES)
    assert result.exit_code == 0, result.stderr
    application.server.put_many("orders", [(f"key-{n}", b"later") for n in range(10)])
    # It may read again what it had not stored.
    worker.wait_for(10, b"later")


def test_workers_go_on_at_imported_positions(application: Application) -> None:
    records = [(f"key-{n}", b"%d" % n) for n in range(20)]
    places = application.server.put_many("orders", records)
    # Of both shards half of the records.
    half: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for (shard, number), (_, data) in zip(places, records, strict=True):
        half[shard].append((number, data))
    application.save(
        *(
            application.checkpoint(shard, after(found[len(found) // 2 - 1][0]))
            for shard, found in half.items()
        ),
        application.checkpoint("*", BEGINNING.ended()),
    )
    listed = application("list", "--json").stdout
    new = ("--application", "reports", *WITH_LEASES)
    result = application("import", "-", *new, stdin=listed)
    assert result.exit_code == 0, result.stderr
    text = application.run.path.read_text()
    application.run.path.write_text(text.replace("=billing", "=reports"))
    expected = [data for found in half.values() for _, data in found[len(found) // 2 :]]
    with Worker(application).running() as worker:
        assert sorted(worker.wait_for(len(expected))) == sorted(expected)
