"""Checkpoints in a table of SQLite, PostgreSQL, MySQL or MariaDB: servers need an extra."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from attrs import asdict
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.orm import Session

from kinesis_publishers.abc import CheckpointStoreContext, JoinedWrite, OpenTransaction
from kinesis_publishers.checkpoints.sql_database import SqlDatabase, file_engine, server_engine
from kinesis_publishers.checkpoints.sql_table import (
    checkpoint_table,
    create_file,
    provide_schema,
    provide_table,
    upsert_of,
)
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields, stored_version
from kinesis_publishers.checkpoints.versions import (
    Attempt,
    Change,
    Refusal,
    VersionedStore,
    place_of,
)
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import (
    CheckpointConfig,
    Properties,
    SqlCheckpointConfig,
    SqliteCheckpointConfig,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import Checkpoint, CheckpointWrite, ShardKey, StoredCheckpoint


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
            self._table = table = checkpoint_table("checkpoint")
            database = _own_file(config.path, table, context.clock)
        else:
            self._table = table = checkpoint_table(config.table)
            database = _configured(config, table, context.clock)
        super().__init__(context, database)
        self._select = sa.select(table).where(table.c.application == context.application)
        self._insert = table.insert()
        self._upsert = upsert_of(table, database.engine.dialect.name)
        self._delete = table.delete().where(
            *(one == sa.bindparam(one.name) for one in table.primary_key)
        )

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        if CheckpointConfig.from_properties(properties).store == "sqlite":
            return cls(context, SqliteCheckpointConfig.from_properties(properties))
        return cls(context, SqlCheckpointConfig.from_properties(properties))

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found = await self.storage.call(lambda one: _rows(one, self._select), writes=False)
        return {key: stored_from_fields(key, row, where=self) for key, row in found.items()}

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        return await self.storage.call(lambda connection: self._write(changes, connection))

    def _write(self, changes: Sequence[Change], connection: sa.Connection) -> list[Refusal]:
        found = self._lock(connection, [attempt.shard for attempt, _ in changes])
        refusals: list[Refusal] = []
        rows: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
        for attempt, checkpoint in changes:
            stored = found.get(attempt.shard)
            if refusal := attempt.refusal(*stored_version(stored)):
                refusals.append(refusal)
            elif checkpoint is None:
                rows[self._delete].append(self._key(attempt.shard))
            else:
                statement = self._insert if stored is None else self._upsert
                fields = self._values(attempt, checkpoint)
                rows[statement].append(self._key(attempt.shard) | fields)
        for statement, values in rows.items():
            connection.execute(statement, values)
        return refusals

    def _lock(
        self, connection: sa.Connection, shards: Sequence[ShardKey]
    ) -> dict[ShardKey, dict[str, Any]]:
        columns = self._table.c
        # Not pairs of both columns: for those, some servers examine and lock every row.
        wanted = sa.or_(
            *(
                (columns.stream_arn == arn) & columns.shard_id.in_([one.shard_id for one in group])
                for arn, group in groupby(shards, key=attrgetter("stream_arn"))
            )
        )
        query = self._select.where(wanted).order_by(columns.stream_arn, columns.shard_id)
        return _rows(connection, query.with_for_update())

    def _key(self, shard: ShardKey) -> dict[str, Any]:
        return {"application": self._context.application, **asdict(shard)}

    def _values(self, attempt: Attempt, checkpoint: Checkpoint) -> dict[str, Any]:
        fields = fields_of(checkpoint, attempt.version, self._context.clock.now())
        return {one.name: None for one in self._table.c if one.nullable} | fields

    def join(self, write: CheckpointWrite, transaction: OpenTransaction) -> JoinedWrite:
        handle, owner = transaction.handle, transaction.owner
        asynchronous = _asynchronous_kinds()
        if transaction.request or not isinstance(handle, (sa.Connection, Session, *asynchronous)):
            raise TypeError(
                f"The checkpoint goes into a transaction of {self}: give a Connection, Session, "
                f"AsyncConnection or AsyncSession of SQLAlchemy alone, not {handle!r:.200}."
            )
        attempt = self._book.attempt_joined(write.shard, write.expected)
        values = self._values(attempt, write.checkpoint)
        condition = _is_row(self._table, self._key(write.shard)) & _replaced(self._table, attempt)
        update = self._table.update().where(condition).values(**values)

        def execute(session: Any) -> bool:
            connection = session.connection() if isinstance(session, Session) else session
            _check_transaction(connection, self.storage)
            try:
                if owner is not None:
                    # Until the end of the transaction, no other reader takes the stream over.
                    found = sa.select(self._table.c.writer).where(
                        _is_row(self._table, self._key(owner))
                    )
                    if connection.scalar(found.with_for_update(read=True)) != self._book.writer:
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
            if isinstance(handle, asynchronous):
                making: Awaitable[bool] = handle.run_sync(execute)
                return making
            return execute(handle)

        return JoinedWrite(version=attempt.version, execute=run)


def _asynchronous_kinds() -> tuple[type[Any], ...]:
    # Its import needs greenlet, and a program with such a transaction has imported it.
    module = sys.modules.get("sqlalchemy.ext.asyncio")
    return (module.AsyncConnection, module.AsyncSession) if module else ()


def _check_transaction(connection: sa.Connection, database: SqlDatabase) -> None:
    dialect, ours = connection.dialect.name, database.engine.dialect.name
    if {dialect, ours} not in ({ours}, {"mysql", "mariadb"}):
        raise CheckpointError(
            f"The transaction is of {dialect}, and the checkpoints are in {database}"
        )
    # SQLite's driver begins transactions itself, or lets SQLAlchemy begin them.
    if dialect != "sqlite" and connection.dialect.detect_autocommit_setting(
        connection.connection.dbapi_connection  # type: ignore[arg-type]
    ):
        raise CheckpointError(
            "The connection commits each statement by itself (AUTOCOMMIT), and has no "
            "transaction for the checkpoint: give it another isolation_level."
        )


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> dict[ShardKey, dict[str, Any]]:
    rows = connection.execute(query).mappings()
    return {ShardKey(row["stream_arn"], row["shard_id"]): dict(row) for row in rows}


def _is_row(table: sa.Table, key: Mapping[str, str]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == value for name, value in key.items()))


def _replaced(table: sa.Table, attempt: Attempt) -> sa.ColumnElement[bool]:
    """Return ``attempt.replaces`` as a condition."""
    number, writer, known = table.c.version, table.c.writer, attempt.expected
    own = number.between(attempt.first_unanswered, attempt.version.number)
    repeated = sa.and_(own, writer == attempt.version.writer)
    if known is None:
        return repeated
    return sa.or_(sa.and_(number == known.number, writer == known.writer), repeated)


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
