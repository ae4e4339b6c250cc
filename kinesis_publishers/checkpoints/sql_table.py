"""The table of the SQL store: its columns, and how it is created, or checked, at the beginning."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError

from kinesis_publishers.config import SqlCheckpointConfig
from kinesis_publishers.errors import CheckpointError

# Of the file of the store sqlite: the second one has a column for leases.
_SCHEMA_VERSION: Final = 2
_WITHOUT_LEASES: Final = 1
# "KiPu": tells that file from the database of another program.
_APPLICATION_ID: Final = 0x4B695075
_LOOK: Final = (
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
    " FROM pragma_application_id, pragma_user_version"
)


def checkpoint_table(name: str) -> sa.Table:
    """Return the table of this name, or ``schema.name``."""
    schema, _, bare = name.rpartition(".")
    instant = sa.String(32)
    return sa.Table(
        bare,
        sa.MetaData(),
        sa.Column("application", sa.String(128), primary_key=True),
        sa.Column("stream_arn", sa.String(256), primary_key=True),
        sa.Column("shard_id", sa.String(128), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("writer", sa.String(320), nullable=False),
        sa.Column("written_at", instant, nullable=False),
        sa.Column("stream_created_at", instant, nullable=False),
        sa.Column("position", sa.String(32), nullable=False),
        sa.Column("is_ended", sa.SmallInteger, nullable=False),
        sa.Column("sequence_number", sa.String(128)),
        sa.Column("sub_sequence_number", sa.BigInteger),
        sa.Column("timestamp", instant),
        sa.Column("as_of", instant),
        sa.Column("lease", sa.Text),
        schema=schema or None,
        # The usual collations of MySQL take Billing and billing for the same application.
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        sqlite_with_rowid=False,
    )


def upsert_of(table: sa.Table, dialect: str) -> Any:
    """Return the one statement that a driver sends for many rows at once on every database."""
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    new = insert.inserted if dialect == "mysql" else insert.excluded
    # Databases that are spread over servers by a key do not let it be set.
    fields = {one.name: new[one.name] for one in table.c if not one.primary_key}
    if dialect == "mysql":
        return insert.on_duplicate_key_update(fields)
    return insert.on_conflict_do_update(index_elements=table.primary_key, set_=fields)


def provide_table(
    where: str, config: SqlCheckpointConfig, table: sa.Table, connection: sa.Connection
) -> None:
    """Create the table if it is missing, as far as that is allowed.

    Raises:
        CheckpointError: there is none, or one of something else.
    """
    create, keys = sa.schema.CreateTable(table), table.primary_key.columns.keys()
    try:
        found = sa.inspect(connection).get_pk_constraint(table.name, table.schema)
    except NoSuchTableError:
        if config.create_table:
            connection.execute(create)
            return
        ddl = " ".join(str(create.compile(dialect=connection.dialect)).split())
        raise CheckpointError(
            f"{where} does not exist. The first reader creates it with "
            f"kinesis.checkpoint.sql.createtable = true; or create it with {ddl!r}. If it was "
            "removed while it was in use, its checkpoints are gone."
        ) from None
    if found["constrained_columns"] != keys:
        raise CheckpointError(
            f"{where} does not hold checkpoints: its primary key is "
            f"{', '.join(found['constrained_columns']) or 'missing'}, not {', '.join(keys)}. "
            "Set kinesis.checkpoint.sql.table to another."
        )


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
