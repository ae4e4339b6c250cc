"""Checkpoints in a table of PostgreSQL, MySQL, MariaDB or SQLite: needs an extra."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Self, TypeVar

import sqlalchemy as sa
from attrs import asdict
from sqlalchemy.exc import DBAPIError, NoSuchTableError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from kinesis_publishers.abc import CheckpointStoreContext, JoinedWrite
from kinesis_publishers.checkpoints.sql_database import WRITES, engine_of, failure_in
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields, stored_version
from kinesis_publishers.checkpoints.versions import (
    Attempt,
    Change,
    Refusal,
    VersionedStore,
    place_of,
)
from kinesis_publishers.config import Properties, SqlCheckpointConfig
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import CheckpointWrite, ShardKey, StoredCheckpoint

_T = TypeVar("_T")

_TRANSACTIONS: Final = (sa.Connection, Session, AsyncConnection, AsyncSession)

# A slower heartbeat would not keep a lease.
_TRANSACTION_SECONDS: Final = 10.0

_KEYS: Final = {"application": 128, "stream_arn": 256, "shard_id": 128}
_INSTANT: Final = sa.String(32)
_REQUIRED: Final[dict[str, sa.types.TypeEngine[Any]]] = {
    "version": sa.BigInteger(),
    "writer": sa.String(320),
    "written_at": _INSTANT,
    "stream_created_at": _INSTANT,
    "position": sa.String(32),
    "is_ended": sa.SmallInteger(),
}
_OPTIONAL: Final[dict[str, sa.types.TypeEngine[Any]]] = {
    "sequence_number": sa.String(128),
    "sub_sequence_number": sa.BigInteger(),
    "timestamp": _INSTANT,
    "as_of": _INSTANT,
    "lease": sa.Text(),
}


def _table(name: str) -> sa.Table:
    schema, _, bare = name.rpartition(".")
    return sa.Table(
        bare,
        sa.MetaData(),
        *(sa.Column(key, sa.String(size), primary_key=True) for key, size in _KEYS.items()),
        *(sa.Column(field, kind, nullable=False) for field, kind in _REQUIRED.items()),
        *(sa.Column(field, kind) for field, kind in _OPTIONAL.items()),
        schema=schema or None,
        # The usual collations of MySQL take Billing and billing for the same application.
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def _upsert(table: sa.Table, dialect: str) -> Any:
    """Return the one statement that a driver sends for many rows at once on every database."""
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    new = insert.inserted if dialect == "mysql" else insert.excluded
    # Databases that are spread over servers by a key do not let it be set.
    fields = {name: new[name] for name in (*_REQUIRED, *_OPTIONAL)}
    if dialect == "mysql":
        return insert.on_duplicate_key_update(fields)
    return insert.on_conflict_do_update(index_elements=list(_KEYS), set_=fields)


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> dict[ShardKey, dict[str, Any]]:
    rows = connection.execute(query).mappings()
    return {ShardKey(row["stream_arn"], row["shard_id"]): dict(row) for row in rows}


class SqlCheckpointStore(VersionedStore):
    """Keeps checkpoints as rows of a table, one per shard, which applications may share.

    A batch is one transaction per 500 rows. It locks rows in the order of their keys, so that no
    two writers wait for each other, and writes those that still have the expected version. Missing
    rows cannot be locked: if another writer creates one meanwhile, the transaction is repeated.
    """

    def __init__(self, context: CheckpointStoreContext, config: SqlCheckpointConfig) -> None:
        super().__init__(context, self._disconnect)
        self._config = config
        # SQLite is used in a thread, and servers on the event loop.
        self._engine = engine_of(config.url or "")
        # One thread: a transaction whose caller was cancelled is over before the next one begins.
        self._thread: ThreadPoolExecutor | None = None
        self._table = _table(config.table)
        self._select = sa.select(self._table).where(
            self._table.c.application == context.application
        )
        self._insert = self._table.insert()
        self._upsert = _upsert(self._table, self._engine.dialect.name)
        self._delete = self._table.delete().where(
            *(self._table.c[name] == sa.bindparam(name) for name in _KEYS)
        )

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(context, SqlCheckpointConfig.from_properties(properties))

    def __str__(self) -> str:
        return f"the table {self._config.table} in {place_of(self._config.url or '')}"

    async def open(self) -> None:
        await super().open()
        await self._call(self._provide_table)

    async def _disconnect(self) -> None:
        # A server that has vanished does not say goodbye.
        with suppress(OSError, SQLAlchemyError):
            async with self._context.clock.timeout(_TRANSACTION_SECONDS):
                if isinstance(self._engine, AsyncEngine):
                    await self._engine.dispose()
                    return
                thread, self._thread = self._thread, None
                if thread is not None:
                    await asyncio.to_thread(thread.shutdown, cancel_futures=True)
                self._engine.dispose()

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found = await self._call(lambda one: _rows(one, self._select), writes=False)
        return {key: stored_from_fields(key, row, where=self) for key, row in found.items()}

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        return await self._call(lambda connection: self._write(changes, connection))

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
        fields = fields_of(write.checkpoint, attempt.version, self._context.clock.now())
        update = (
            self._table.update()
            .where(*self._is_row(write.shard), self._is_replaced_by(attempt))
            .values(**dict.fromkeys(_OPTIONAL) | fields)
        )

        def execute(session: Any) -> bool:
            connection = session.connection() if isinstance(session, Session) else session
            self._check_transaction(connection)
            try:
                if owner is not None:
                    # Until the end of the transaction, no other reader takes the stream over.
                    found = sa.select(self._table.c.writer).where(*self._is_row(owner))
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
                    "of kinesis.checkpoint.sql.url, whose user may read and write that table."
                ) from error
            return changed == 1

        def run() -> bool | Awaitable[bool]:
            if isinstance(transaction, AsyncConnection | AsyncSession):
                return transaction.run_sync(execute)
            return execute(transaction)

        return JoinedWrite(version=attempt.version, execute=run)

    def _is_row(self, shard: ShardKey) -> list[sa.ColumnElement[bool]]:
        key = {"application": self._context.application, **asdict(shard)}
        return [self._table.c[name] == value for name, value in key.items()]

    def _is_replaced_by(self, attempt: Attempt) -> sa.ColumnElement[bool]:
        """Return ``attempt.replaces`` as a condition."""
        number, writer, known = self._table.c.version, self._table.c.writer, attempt.expected
        own = number.between(attempt.first_unanswered, attempt.version.number)
        repeated = sa.and_(own, writer == attempt.version.writer)
        if known is None:
            return repeated
        return sa.or_(sa.and_(number == known.number, writer == known.writer), repeated)

    def _check_transaction(self, connection: sa.Connection) -> None:
        dialect, ours = connection.dialect.name, self._engine.dialect.name
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

    async def _call(self, work: Callable[[sa.Connection], _T], *, writes: bool = True) -> _T:
        """Run ``work`` in a transaction, with retries of the whole."""

        async def attempt() -> _T:
            try:
                async with self._context.clock.timeout(_TRANSACTION_SECONDS):
                    return await self._run(work, writes=writes)
            except (DBAPIError, OSError, TypeError, ValueError) as error:
                raise failure_in(self, error) from error

        return await self._calls.make(attempt)

    async def _run(self, work: Callable[[sa.Connection], _T], *, writes: bool) -> _T:
        engine = self._engine
        if isinstance(engine, AsyncEngine):
            async with engine.begin() as connection:
                return await connection.run_sync(work)

        def run() -> _T:
            with engine.execution_options(**{WRITES: writes}).begin() as connection:
                return work(connection)

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="kinesis-checkpoints")
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _write(self, changes: Sequence[Change], connection: sa.Connection) -> list[Refusal]:
        now = self._context.clock.now()
        found = self._lock(connection, [attempt.shard for attempt, _ in changes])
        refusals: list[Refusal] = []
        rows: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
        for attempt, checkpoint in changes:
            stored = found.get(attempt.shard)
            key = {"application": self._context.application, **asdict(attempt.shard)}
            if refusal := attempt.refusal(*stored_version(stored)):
                refusals.append(refusal)
            elif checkpoint is None:
                rows[self._delete].append(key)
            else:
                fields = fields_of(checkpoint, attempt.version, now)
                statement = self._insert if stored is None else self._upsert
                rows[statement].append(key | dict.fromkeys(_OPTIONAL) | fields)
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

    def _provide_table(self, connection: sa.Connection) -> None:
        table, create = self._table, sa.schema.CreateTable(self._table)
        try:
            found = sa.inspect(connection).get_pk_constraint(table.name, table.schema)
        except NoSuchTableError:
            if self._config.create_table:
                connection.execute(create)
                return
            ddl = " ".join(str(create.compile(dialect=connection.dialect)).split())
            raise CheckpointError(
                f"{self} does not exist. The first reader creates it with "
                f"kinesis.checkpoint.sql.createtable = true; or create it with {ddl!r}. If it was "
                "removed while it was in use, its checkpoints are gone."
            ) from None
        if found["constrained_columns"] != list(_KEYS):
            raise CheckpointError(
                f"{self} does not hold checkpoints: its primary key is "
                f"{', '.join(found['constrained_columns']) or 'missing'}, not {', '.join(_KEYS)}. "
                "Set kinesis.checkpoint.sql.table to another."
            )
