"""The file of the store ``sqlite``: who may use it, and its schema; the engine of any file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from kinesis_publishers.checkpoints.sql_database import WRITES
from kinesis_publishers.errors import CheckpointError

# The second one has a column for leases.
_SCHEMA_VERSION: Final = 2
_WITHOUT_LEASES: Final = 1
# "KiPu": tells the file from the database of another program.
_APPLICATION_ID: Final = 0x4B695075
_LOOK: Final = (
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
    " FROM pragma_application_id, pragma_user_version"
)
# How long a call waits for the lock of another process before the retry policy repeats it.
_LOCK_SECONDS: Final = 1.0


def file_engine(path: Path, mode: str) -> sa.Engine:
    """Return the engine of a file, which the ``mode`` rwc creates, and rw does not.

    Every transaction has its own connection, which takes a fraction of a millisecond: threads and
    forked processes share nothing.

    The file has a rollback journal: a write-ahead log does not work on network file systems, and
    leaves two more files whose loss loses checkpoints.
    """
    engine = sa.create_engine(
        "sqlite://", creator=partial(_connect, path, mode), poolclass=sa.NullPool
    )
    sa.event.listen(engine, "begin", _begin)
    return engine


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    # The driver would begin a transaction with the first write, which may be refused then.
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
    # A written checkpoint survives a power failure.
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _begin(connection: sa.Connection) -> None:
    # One that reads does not wait for a transaction of the application that has not ended.
    is_writing = connection.get_execution_options().get(WRITES, True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def create_file(path: Path) -> None:
    """Create the file and its directory where they are missing, for their owner alone.

    Raises:
        CheckpointError: it is a symbolic link, or the directory cannot be made.
    """
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


def provide_schema(path: Path, table: sa.Table, connection: sa.Connection) -> None:
    """Create the schema in a new file, or the column for leases in one of the first version.

    Raises:
        CheckpointError: it is the file of another program, or was written by a newer version.
    """
    application_id, version, tables = connection.exec_driver_sql(_LOOK).one()
    if application_id == version == tables == 0:
        connection.execute(sa.schema.CreateTable(table))
        connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")
    elif application_id != _APPLICATION_ID:
        raise CheckpointError(
            f"{path} is a database of another program, not of checkpoints: set "
            "kinesis.checkpoint.sqlite.path to another file; or kinesis.checkpoint.store to sql, "
            f"and kinesis.checkpoint.sql.url to sqlite:///{path}, for a table in this one."
        )
    elif version == _WITHOUT_LEASES:
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN lease TEXT")
    elif version != _SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has checkpoints in version {version} of the schema, but this version "
            f"of kinesis-publishers reads versions {_WITHOUT_LEASES} and {_SCHEMA_VERSION}: "
            "install the version that wrote them, or a newer one."
        )
    if version != _SCHEMA_VERSION:
        connection.exec_driver_sql(f"PRAGMA user_version = {_SCHEMA_VERSION}")
