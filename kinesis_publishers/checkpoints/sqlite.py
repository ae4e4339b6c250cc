"""Checkpoints in a file of this machine: the embedded default."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.checkpoints.sqlite_file import CheckpointFile
from kinesis_publishers.checkpoints.stored_form import (
    FIELDS,
    checkpoint_from_fields,
    fields_of,
    instant_text,
    version_from_fields,
)
from kinesis_publishers.checkpoints.versions import Attempt, Refusal, WriteBook, raise_refused
from kinesis_publishers.config import SqliteCheckpointConfig
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.model import CheckpointVersion, ShardKey, StoredCheckpoint
from kinesis_publishers.retry import call_with_retries

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kinesis_publishers.abc import CheckpointStoreContext
    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import Checkpoint, CheckpointWrite

__all__ = ["SqliteCheckpointStore"]

_T = TypeVar("_T")

_COLUMNS = ("application", "stream_arn", "shard_id", "version", "writer", "written_at", *FIELDS)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM checkpoint WHERE application = ?"
_FIND = (
    "SELECT version, writer, written_at FROM checkpoint "
    "WHERE application = ? AND stream_arn = ? AND shard_id = ?"
)
_REPLACE = f"REPLACE INTO checkpoint VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
_DELETE = "DELETE FROM checkpoint WHERE application = ? AND stream_arn = ? AND shard_id = ?"


class SqliteCheckpointStore(CheckpointStore):
    """Keeps checkpoints in a SQLite file, which any number of processes and applications share.

    A batch is one transaction, with one wait for the disk.

    Args:
        context: the application, the clock, and how often a locked file is tried again.
        path: the file; it and its directory are made if need be.
    """

    def __init__(self, context: CheckpointStoreContext, path: Path) -> None:
        self._context = context
        self._file = CheckpointFile(path)
        self._book = WriteBook()
        # One thread: a transaction whose caller was cancelled is over before the next one begins.
        self._executor: ThreadPoolExecutor | None = None

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(context, SqliteCheckpointConfig.from_properties(properties).path)

    def __str__(self) -> str:
        return str(self._file)

    async def open(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kinesis-checkpoints")
        await self._call(self._file.create)

    async def close(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            # A transaction in flight takes a second at most, the wait for a lock included.
            await asyncio.to_thread(executor.shutdown, cancel_futures=True)

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        return await self._call(self._load)

    async def save(self, writes: Sequence[CheckpointWrite]) -> dict[ShardKey, CheckpointVersion]:
        if not writes:
            return {}
        attempts = [self._book.attempt(write.shard, write.expected) for write in writes]
        checkpoints = [write.checkpoint for write in writes]
        refusals = await self._call(lambda: self._save(attempts, checkpoints))
        raise_refused(refusals, application=self._context.application, where=self)
        return self._book.confirm(attempts)

    async def remove(self, versions: Mapping[ShardKey, CheckpointVersion]) -> None:
        if not versions:
            return
        attempts = [self._book.attempt(shard, version) for shard, version in versions.items()]
        refusals = await self._call(lambda: self._remove(attempts))
        raise_refused(refusals, application=self._context.application, where=self)
        self._book.confirm(attempts)

    async def _call(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` in the thread, again and again while another process holds the lock."""

        async def attempt() -> _T:
            if self._executor is None:
                raise ClosedError(f"The store of checkpoints in {self} is not open.")
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)

        return await call_with_retries(
            attempt,
            policy=self._context.retry,
            clock=self._context.clock,
            events=self._context.events,
        )

    def _load(self) -> dict[ShardKey, StoredCheckpoint]:
        with self._file.transaction() as connection:
            rows = connection.execute(_SELECT, (self._context.application,)).fetchall()
        found = [self._stored(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
        return {stored.checkpoint.shard: stored for stored in found}

    def _stored(self, row: dict[str, Any]) -> StoredCheckpoint:
        shard = ShardKey(row["stream_arn"], row["shard_id"])
        return StoredCheckpoint(
            checkpoint=checkpoint_from_fields(shard, row, where=self),
            version=version_from_fields(shard, row, where=self),
        )

    def _save(self, attempts: list[Attempt], checkpoints: list[Checkpoint]) -> list[Refusal]:
        written_at = instant_text(self._context.clock.now())
        refusals = []
        with self._file.transaction() as connection:
            for attempt, checkpoint in zip(attempts, checkpoints, strict=True):
                refusal = self._refusal(connection, attempt)
                if refusal is not None:
                    refusals.append(refusal)
                else:
                    connection.execute(_REPLACE, self._row(attempt, checkpoint, written_at))
        return refusals

    def _remove(self, attempts: list[Attempt]) -> list[Refusal]:
        refusals = []
        with self._file.transaction() as connection:
            for attempt in attempts:
                refusal = self._refusal(connection, attempt)
                if refusal is None:
                    connection.execute(_DELETE, self._key(attempt.shard))
                elif refusal.stored is not None:
                    refusals.append(refusal)
        return refusals

    def _refusal(self, connection: sqlite3.Connection, attempt: Attempt) -> Refusal | None:
        row = connection.execute(_FIND, self._key(attempt.shard)).fetchone()
        stored = None if row is None else CheckpointVersion(number=row[0], writer=row[1])
        if attempt.replaces(stored):
            return None
        return Refusal(attempt=attempt, stored=stored, written_at=None if row is None else row[2])

    def _key(self, shard: ShardKey) -> tuple[str, str, str]:
        return self._context.application, shard.stream_arn, shard.shard_id

    def _row(self, attempt: Attempt, checkpoint: Checkpoint, written_at: str) -> dict[str, Any]:
        shard = checkpoint.shard
        return {
            "application": self._context.application,
            "stream_arn": shard.stream_arn,
            "shard_id": shard.shard_id,
            "version": attempt.version.number,
            "writer": attempt.version.writer,
            "written_at": written_at,
            **fields_of(checkpoint),
        }
