"""Checkpoints in a table of SQLite, PostgreSQL, MySQL or MariaDB: servers need an extra."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from kinesis_publishers.abc import CheckpointStoreContext, JoinedWrite
from kinesis_publishers.checkpoints.sql_database import SqlDatabase, server_engine
from kinesis_publishers.checkpoints.sql_rows import SqlRows, checkpoint_table, provide_table
from kinesis_publishers.checkpoints.sqlite import create_file, file_engine, provide_schema
from kinesis_publishers.checkpoints.stored_form import stored_from_fields
from kinesis_publishers.checkpoints.versions import Change, Refusal, VersionedStore, place_of
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import (
    CheckpointConfig,
    Properties,
    SqlCheckpointConfig,
    SqliteCheckpointConfig,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import CheckpointWrite, ShardKey, StoredCheckpoint

_TRANSACTIONS: Final = (sa.Connection, Session, AsyncConnection, AsyncSession)


class SqlCheckpointStore(VersionedStore):
    """Keeps checkpoints as rows of a table, one per shard, which applications may share.

    A batch is one transaction per 500 rows. It locks rows in the order of their keys, so that no
    two writers wait for each other, and writes those that still have the expected version. Missing
    rows cannot be locked: if another writer creates one meanwhile, the transaction is repeated.

    The stores ``sqlite`` and ``sql`` differ in their table: ``sqlite`` creates its file, with a
    directory, and has it for itself.
    """

    storage: SqlDatabase

    def __init__(
        self, context: CheckpointStoreContext, config: SqlCheckpointConfig | SqliteCheckpointConfig
    ) -> None:
        if isinstance(config, SqliteCheckpointConfig):
            table = checkpoint_table("checkpoint")
            database = _own_file(config.path, table, context.clock)
        else:
            table = checkpoint_table(config.table)
            database = _configured(config, table, context.clock)
        super().__init__(context, database)
        self._rows = SqlRows(table, context.application, database.engine.dialect.name)

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        if CheckpointConfig.from_properties(properties).store == "sqlite":
            return cls(context, SqliteCheckpointConfig.from_properties(properties))
        return cls(context, SqlCheckpointConfig.from_properties(properties))

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found = await self.storage.call(self._rows.load, writes=False)
        return {key: stored_from_fields(key, row, where=self) for key, row in found.items()}

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        now = self._context.clock.now()
        return await self.storage.call(lambda one: self._rows.write(one, changes, now))

    def join(
        self,
        transaction: Any,
        write: CheckpointWrite,
        owner: ShardKey | None,
        request: Mapping[str, Any],
    ) -> JoinedWrite:
        if request or not isinstance(transaction, _TRANSACTIONS):
            raise TypeError(
                f"The checkpoint goes into a transaction of {self}: give a Connection, Session, "
                f"AsyncConnection or AsyncSession of SQLAlchemy alone, not {transaction!r:.200}."
            )
        attempt = self._book.attempt_joined(write.shard, write.expected)
        update = self._rows.update(attempt, write.checkpoint, self._context.clock.now())

        def execute(session: Any) -> bool:
            connection = session.connection() if isinstance(session, Session) else session
            self._check_transaction(connection)
            try:
                if owner is not None:
                    # Until the end of the transaction, no other reader takes the stream over.
                    found = connection.scalar(self._rows.writer(owner))
                    if found != self._book.writer:
                        return False
                changed: int = connection.execute(update).rowcount
            except DBAPIError as error:
                # SQLite has one class of errors for this and for a lock.
                is_no_table = isinstance(error, ProgrammingError) or "no such table" in str(error)
                if not is_no_table:
                    raise
                raise CheckpointError(
                    f"The transaction cannot write to {self}: give it a connection to the database "
                    f"of {self.storage.key}, whose user may read and write that table."
                ) from error
            return changed == 1

        def run() -> bool | Awaitable[bool]:
            if isinstance(transaction, AsyncConnection | AsyncSession):
                return transaction.run_sync(execute)
            return execute(transaction)

        return JoinedWrite(version=attempt.version, execute=run)

    def _check_transaction(self, connection: sa.Connection) -> None:
        dialect, ours = connection.dialect.name, self.storage.engine.dialect.name
        if {dialect, ours} not in ({ours}, {"mysql", "mariadb"}):
            raise CheckpointError(
                f"The transaction is of {dialect}, and the checkpoints are in {self}"
            )
        # SQLite's driver begins transactions itself, or lets SQLAlchemy begin them.
        if dialect != "sqlite" and connection.dialect.detect_autocommit_setting(
            connection.connection.dbapi_connection  # type: ignore[arg-type]
        ):
            raise CheckpointError(
                "The connection commits each statement by itself (AUTOCOMMIT), and has no "
                "transaction for the checkpoint: give it another isolation_level."
            )


def _configured(config: SqlCheckpointConfig, table: sa.Table, clock: Clock) -> SqlDatabase:
    text = config.url or ""
    name = f"the table {config.table} in {place_of(text)}"
    url = sa.make_url(text)
    is_file = url.drivername == "sqlite"
    engine = file_engine(Path(url.database or ""), "rwc") if is_file else server_engine(text)
    provide = partial(provide_table, name, config, table)
    return SqlDatabase(name, SqlCheckpointConfig.url.full_key, clock, engine, provide)


def _own_file(path: Path, table: sa.Table, clock: Clock) -> SqlDatabase:
    # If it is removed while in use, its checkpoints are gone: it is not made again.
    engine = file_engine(path, "rw")
    key = SqliteCheckpointConfig.written_path.full_key
    provide, prepare = partial(provide_schema, path, table), partial(create_file, path)
    return SqlDatabase(str(path), key, clock, engine, provide, prepare)
