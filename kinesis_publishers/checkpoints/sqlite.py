"""Checkpoints in a file of this machine: the embedded default."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from attrs import asdict

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields, stored_version
from kinesis_publishers.checkpoints.versions import (
    Change,
    Meaning,
    Refusal,
    VersionedStore,
    failure_of,
)
from kinesis_publishers.config import Properties, SqliteCheckpointConfig
from kinesis_publishers.errors import CheckpointError, InternalServiceError, ResourceInUseError
from kinesis_publishers.model import ShardKey, StoredCheckpoint

_T = TypeVar("_T")

_SCHEMA_VERSION: Final = 1
# It has a column for leases, which a file gets with its first lease: until then, earlier versions
# of this package can use the file, too.
_WITH_LEASES: Final = 2
# "KiPu": tells the file from the database of another program.
_APPLICATION_ID: Final = 0x4B695075
_SCHEMA: Final = """\
CREATE TABLE checkpoint (
    application TEXT NOT NULL,
    stream_arn TEXT NOT NULL,
    shard_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    writer TEXT NOT NULL,
    written_at TEXT NOT NULL,
    stream_created_at TEXT NOT NULL,
    position TEXT NOT NULL,
    sequence_number TEXT,
    sub_sequence_number INTEGER,
    timestamp TEXT,
    as_of TEXT,
    is_ended INTEGER NOT NULL,
    PRIMARY KEY (application, stream_arn, shard_id)
) WITHOUT ROWID"""

_LOOK: Final = (
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
    " FROM pragma_application_id, pragma_user_version"
)
_SELECT: Final = "SELECT * FROM checkpoint WHERE application = ?"
_OF_SHARD: Final = (
    "FROM checkpoint WHERE application = :application AND stream_arn = :stream_arn"
    " AND shard_id = :shard_id"
)
_FIND: Final = f"SELECT version, writer, written_at {_OF_SHARD}"
_DELETE: Final = f"DELETE {_OF_SHARD}"

# How long a call waits for the lock of another process before the retry policy repeats it.
_LOCK_SECONDS: Final = 1.0

SQLITE_MEANINGS: Final[tuple[Meaning, ...]] = (
    # PROTOCOL is a race for the lock that has lasted too long.
    ("SQLITE_(BUSY|LOCKED|PROTOCOL)", ResourceInUseError, "another process has locked it"),
    ("SQLITE_(FULL|IOERR|NOMEM)", InternalServiceError, "see to its disk, and make room there"),
    (
        "SQLITE_(CORRUPT|NOTADB)",
        CheckpointError,
        "it is damaged or no database of checkpoints: restore it from a backup, or name another",
    ),
)
_MEANINGS: Final[tuple[Meaning, ...]] = (
    *SQLITE_MEANINGS,
    (
        "",
        CheckpointError,
        "check that the file is there, its directory can be written, and the disk has room",
    ),
)


def _create(path: Path) -> None:
    """Create the file, its directory and its schema where they are missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"The directory of the checkpoints, {path.parent}, cannot be made ({error}): set "
            "kinesis.checkpoint.sqlite.path to a place that can be written."
        ) from error
    with suppress(OSError):
        # Not opened if it is there: closing it would drop the locks that this process has.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if path.is_symlink():
        raise CheckpointError(
            f"{path} is a symbolic link, which is not followed: set "
            f"kinesis.checkpoint.sqlite.path to the file itself, {path.resolve()}."
        )
    with _transaction(path) as connection:
        _provide_schema(path, connection)


def _provide_schema(path: Path, connection: sqlite3.Connection) -> None:
    application_id, version, tables = connection.execute(_LOOK).fetchone()
    if application_id == version == tables == 0:
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    elif application_id != _APPLICATION_ID:
        raise CheckpointError(
            f"{path} is a database of another program, not of checkpoints: set "
            "kinesis.checkpoint.sqlite.path to another file."
        )
    elif version not in {_SCHEMA_VERSION, _WITH_LEASES}:
        raise CheckpointError(
            f"{path} has checkpoints in version {version} of the schema, but this version "
            f"of kinesis-publishers reads versions {_SCHEMA_VERSION} and {_WITH_LEASES}: "
            "install the version that wrote them, or a newer one."
        )


@contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection inside of a transaction that holds the lock for writing.

    Every transaction has its own connection, which takes a fraction of a millisecond: threads and
    forked processes share nothing. The file is not made again: if it is removed while in use, its
    checkpoints are gone.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connect = partial(sqlite3.connect, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        # The inner one commits, or rolls back after an error.
        with closing(connect(uri)) as connection, connection:
            connection.row_factory = sqlite3.Row
            # A written checkpoint survives a power failure.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
    except sqlite3.Error as error:
        # Errors of the module sqlite3 itself have no code.
        code = getattr(error, "sqlite_errorname", None)
        raise failure_of(path, error, code, _MEANINGS) from error


class SqliteCheckpointStore(VersionedStore):
    """Keeps checkpoints in a SQLite file, which any number of processes and applications share.

    A batch is one transaction per 500 rows, with one wait for the disk. Writers take turns, for a
    few milliseconds each. The file and its directory are created if they are missing.

    It has a rollback journal: a write-ahead log does not work on network file systems, and leaves
    two more files whose loss loses checkpoints.
    """

    def __init__(self, context: CheckpointStoreContext, path: Path) -> None:
        super().__init__(context)
        self._path = path
        # One thread: a transaction whose caller was cancelled is over before the next one begins.
        self._executor: ThreadPoolExecutor | None = None

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(context, SqliteCheckpointConfig.from_properties(properties).path)

    def __str__(self) -> str:
        return str(self._path)

    async def open(self) -> None:
        await super().open()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kinesis-checkpoints")
        await self._call(lambda: _create(self._path))

    async def close(self) -> None:
        await super().close()
        if self._executor is not None:
            # A transaction in flight takes a second at most, the wait for a lock included.
            await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        return await self._call(self._load)

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        return await self._call(lambda: self._transact(changes))

    async def _call(self, work: Callable[[], _T]) -> _T:
        run = asyncio.get_running_loop().run_in_executor
        return await self._calls.make(lambda: run(self._executor, work))

    def _load(self) -> dict[ShardKey, StoredCheckpoint]:
        with _transaction(self._path) as connection:
            rows = connection.execute(_SELECT, [self._context.application]).fetchall()
        found = {ShardKey(row["stream_arn"], row["shard_id"]): dict(row) for row in rows}
        return {key: stored_from_fields(key, row, where=self) for key, row in found.items()}

    def _transact(self, changes: Sequence[Change]) -> list[Refusal]:
        now = self._context.clock.now()
        refusals = []
        with _transaction(self._path) as connection:
            if any(one and one.lease for _, one in changes):
                _provide_leases(connection)
            for attempt, checkpoint in changes:
                key = {"application": self._context.application, **asdict(attempt.shard)}
                found = connection.execute(_FIND, key).fetchone()
                if refusal := attempt.refusal(*stored_version(found and dict(found))):
                    refusals.append(refusal)
                elif checkpoint is None:
                    connection.execute(_DELETE, key)
                else:
                    row = key | fields_of(checkpoint, attempt.version, now)
                    values = ", ".join(f":{name}" for name in row)
                    connection.execute(
                        f"REPLACE INTO checkpoint ({', '.join(row)}) VALUES ({values})", row
                    )
        return refusals


def _provide_leases(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] != _WITH_LEASES:
        connection.execute("ALTER TABLE checkpoint ADD COLUMN lease TEXT")
        connection.execute(f"PRAGMA user_version = {_WITH_LEASES}")
