"""The file of the sqlite store: its schema, what it must be, and what its errors mean. Blocking."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from attrs import frozen

from kinesis_publishers.errors import CheckpointError, ResourceInUseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SCHEMA_VERSION", "CheckpointFile"]

SCHEMA_VERSION: Final = 1
# "KiPu": so that the file of another program is not taken for one of ours.
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

# How long a call waits for the lock of another process before the retry policy goes on.
_LOCK_SECONDS: Final = 1.0
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@frozen
class CheckpointFile:
    """A database file with checkpoints.

    It has a rollback journal, not a write-ahead log: that one does not work on network file
    systems, and leaves two more files whose loss loses checkpoints. Writers take turns, for a few
    milliseconds each.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def create(self) -> None:
        """Make the file, its directory and its schema, as far as they are missing.

        Raises:
            CheckpointError: something else is there, or a newer version wrote it.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"The directory of the checkpoints, {self.path.parent}, cannot be made ({error}): "
                "set kinesis.checkpoint.sqlite.path to a place that can be written."
            ) from error
        self._make_own_file()
        with self.transaction() as connection:
            self._check(connection)

    def _make_own_file(self) -> None:
        with suppress(OSError):
            # Not opened if it is there: closing it would drop the locks that this process has.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if self.path.is_symlink():
            raise CheckpointError(
                f"{self.path} is a symbolic link, which is not followed: set "
                f"kinesis.checkpoint.sqlite.path to the file itself, {self.path.resolve()}."
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside of a transaction that holds the lock for writing.

        Every transaction has a connection of its own: one takes a fraction of a millisecond, and
        nothing is shared between threads or inherited by a forked process. The file is not made
        again: if it was removed while it is in use, its checkpoints are gone.

        Raises:
            ResourceInUseError: another process holds the lock; the call may be repeated.
            CheckpointError: the file cannot be used.
        """
        with self._connection() as connection, _transaction(connection):
            yield connection

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode=rw",
                    uri=True,
                    timeout=_LOCK_SECONDS,
                    isolation_level=None,
                )
            ) as connection:
                # A checkpoint that was written is there after a power failure, too.
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except sqlite3.Error as error:
            raise self._mapped(error) from error

    def _check(self, connection: sqlite3.Connection) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id == 0 and version == 0 and tables == 0:
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif application_id != _APPLICATION_ID:
            raise CheckpointError(
                f"{self.path} is a database of another program, not of checkpoints: set "
                "kinesis.checkpoint.sqlite.path to another file."
            )
        elif version != SCHEMA_VERSION:
            raise CheckpointError(
                f"{self.path} has checkpoints in version {version} of the schema, but this version "
                f"of kinesis-publishers reads version {SCHEMA_VERSION}: install the version that "
                "wrote them, or a newer one."
            )

    def _mapped(self, error: sqlite3.Error) -> ResourceInUseError | CheckpointError:
        # The errors that sqlite3 itself makes have no code; the lower byte is the kind.
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        if code in _BUSY:
            return ResourceInUseError(
                f"{self.path} is locked by another process ({name})",
                operation="the transaction on the checkpoints",
                code=name,
            )
        if code in _DAMAGED:
            return CheckpointError(
                f"{self.path} is damaged, or no database of checkpoints ({name}: {error}): restore "
                "it from a backup, or set kinesis.checkpoint.sqlite.path to another file."
            )
        return CheckpointError(
            f"The checkpoints in {self.path} cannot be used ({name}: {error}): check that the file "
            "is there and its directory can be written, and that the disk has room."
        )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # Some errors of sqlite have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
