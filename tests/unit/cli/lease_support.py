"""An application with rows in a file, for the commands that show and change them."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import KinesisDataFetcher, Properties, SequenceNumber, StartingPosition
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import SqliteCheckpointConfig
from kinesis_publishers.model import Checkpoint, CheckpointWrite, Lease, ShardKey, ShardProgress
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.unit.cli.cli_support import ORDERS, RunCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from click.testing import Result

    from kinesis_publishers import RecordBatch, Shard
    from kinesis_publishers.model import CheckpointVersion, StoredCheckpoint, StreamIdentity

__all__ = [
    "BEGINNING",
    "WITH_LEASES",
    "Application",
    "after",
    "application",
    "before_writes",
    "shard_name",
]

BEGINNING = ShardProgress(position=StartingPosition.trim_horizon())
_FAILOVER_SECONDS = 1.0
WITH_LEASES = (
    *("-P", "kinesis.lease.enabled=true"),
    *("-P", f"kinesis.lease.failovermillis={_FAILOVER_SECONDS * 1000:g}"),
)


def shard_name(number: int) -> str:
    return f"shardId-{number:012}"


def after(number: int | str) -> ShardProgress:
    return ShardProgress(position=StartingPosition.after(SequenceNumber(str(number))))


class Application:
    """The application ``billing``, with its rows in a file.

    Args:
        run: runs commands; their properties name the application from now on.
        directory: where to keep the file.
    """

    def __init__(self, run: RunCommand, directory: Path) -> None:
        self.run = run
        self.server = run.server
        self.path = directory / "checkpoints.sqlite3"
        with run.path.open("a") as file:
            file.write(
                "kinesis.checkpoint.application=billing\n"
                f"kinesis.checkpoint.sqlite.path={self.path}\n"
                "kinesis.stream.initpos=TRIM_HORIZON\n"
                "kinesis.shard.getrecords.intervalmillis=20\n"
            )

    def __call__(self, command: str, *arguments: str, stdin: str | None = None) -> Result:
        """Run a command of ``leases``."""
        return self.run(f"leases {command}", *arguments, stdin=stdin)

    @property
    def identity(self) -> StreamIdentity:
        """The stream ``orders``."""
        return asyncio.run(self.server.control_plane().describe_stream(ORDERS)).identity

    def key(self, number: int | str) -> ShardKey:
        shard_id = number if isinstance(number, str) else shard_name(number)
        return ShardKey(self.identity.arn, shard_id)

    def checkpoint(
        self, number: int | str, progress: ShardProgress = BEGINNING, lease: Lease | None = None
    ) -> Checkpoint:
        return Checkpoint(
            shard=self.key(number),
            stream_created_at=self.identity.created_at,
            progress=progress,
            lease=lease,
        )

    def save(self, *checkpoints: Checkpoint) -> None:
        """Write rows over those that are there."""

        async def write() -> None:
            async with self._store() as store:
                rows = await store.load()
                await store.save([CheckpointWrite.over(rows, one) for one in checkpoints])

        asyncio.run(write())

    def rows(self) -> Mapping[ShardKey, StoredCheckpoint]:
        """Return what is stored."""

        async def load() -> Mapping[ShardKey, StoredCheckpoint]:
            async with self._store() as store:
                return await store.load()

        return asyncio.run(load())

    def row(self, number: int | str) -> Checkpoint:
        """Return what is stored of one shard."""
        return self.rows()[self.key(number)].checkpoint

    @contextmanager
    def worker(self, number: int) -> Iterator[None]:
        """Renew the lease of a shard, as a worker does, whenever a command waits for that."""

        async def renew(_: SystemClock, seconds: float) -> None:
            await asyncio.to_thread(lambda: self.save(self.row(number)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SystemClock, "sleep", renew)
            yield

    def read(self, expected: int) -> list[bytes]:
        """Read on as the application until ``expected`` records have come; return their data."""
        found: list[bytes] = []

        async def read() -> None:
            async def on_batch(_: Shard, batch: RecordBatch) -> None:
                found.extend(record.data for record in batch)
                if len(found) >= expected:
                    fetcher.stop()

            properties = Properties.from_file(self.run.path)
            async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
                async with asyncio.timeout(30):
                    await fetcher.run()

        asyncio.run(read())
        return found

    def own(self, number: int, owner: str | None, **lease: object) -> None:
        """Give a shard an owner, in a row that keeps its progress."""
        row = self.row(number)
        self.save(evolve(row, lease=Lease(owner=owner, **lease)))  # type: ignore[arg-type]

    def _store(self) -> SqlCheckpointStore:
        return SqlCheckpointStore(store_context("billing"), SqliteCheckpointConfig(path=self.path))


@pytest.fixture
def application(run: RunCommand, tmp_path: Path) -> Application:
    """An application without rows, and a stream of two shards."""
    return Application(run, tmp_path)


@pytest.fixture
def before_writes(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What others do, each before one of the next writes to a file."""
    pending: list[Callable[[], None]] = []
    save = SqlCheckpointStore.save

    async def save_later(
        store: SqlCheckpointStore, writes: Sequence[CheckpointWrite]
    ) -> Mapping[ShardKey, CheckpointVersion]:
        # The others' own writes come from another thread.
        if pending and current_thread() is main_thread():
            await asyncio.to_thread(pending.pop(0))
        return await save(store, writes)

    monkeypatch.setattr(SqlCheckpointStore, "save", save_later)
    return pending
