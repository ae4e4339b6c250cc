"""The rows of an application in a table of SQL, and the statements about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa
from attrs import asdict
from sqlalchemy.exc import NoSuchTableError

from kinesis_publishers.checkpoints.stored_form import fields_of, stored_version
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal
from kinesis_publishers.config import SqlCheckpointConfig
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import Checkpoint, ShardKey

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


def checkpoint_table(name: str) -> sa.Table:
    """Return the table of this name, or ``schema.name``."""
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
        sqlite_with_rowid=False,
    )


def upsert_of(table: sa.Table, dialect: str) -> Any:
    """Return the one statement that a driver sends for many rows at once on every database."""
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    new = insert.inserted if dialect == "mysql" else insert.excluded
    # Databases that are spread over servers by a key do not let it be set.
    fields = {name: new[name] for name in (*_REQUIRED, *_OPTIONAL)}
    if dialect == "mysql":
        return insert.on_duplicate_key_update(fields)
    return insert.on_conflict_do_update(index_elements=list(_KEYS), set_=fields)


def provide_table(
    where: str, config: SqlCheckpointConfig, table: sa.Table, connection: sa.Connection
) -> None:
    """Create the table if it is missing, as far as that is allowed.

    Raises:
        CheckpointError: there is none, or one of something else.
    """
    create = sa.schema.CreateTable(table)
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
    if found["constrained_columns"] != list(_KEYS):
        raise CheckpointError(
            f"{where} does not hold checkpoints: its primary key is "
            f"{', '.join(found['constrained_columns']) or 'missing'}, not {', '.join(_KEYS)}. "
            "Set kinesis.checkpoint.sql.table to another."
        )


class SqlRows:
    """The rows of an application in a table, and how they are read and changed."""

    def __init__(self, table: sa.Table, application: str, dialect: str) -> None:
        self._table, self._application = table, application
        self._select = sa.select(table).where(table.c.application == application)
        self._insert, self._upsert = table.insert(), upsert_of(table, dialect)
        self._delete = table.delete().where(
            *(table.c[name] == sa.bindparam(name) for name in _KEYS)
        )

    def load(self, connection: sa.Connection) -> dict[ShardKey, dict[str, Any]]:
        return self._found(connection, self._select)

    def _found(
        self, connection: sa.Connection, query: sa.Select[Any]
    ) -> dict[ShardKey, dict[str, Any]]:
        rows = connection.execute(query).mappings()
        return {ShardKey(row["stream_arn"], row["shard_id"]): dict(row) for row in rows}

    def write(
        self, connection: sa.Connection, changes: Sequence[Change], now: datetime
    ) -> list[Refusal]:
        """Make changes whose rows still have the expected version; return what was refused."""
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
                fields = _values(attempt, checkpoint, now)
                rows[statement].append(self._key(attempt.shard) | fields)
        for statement, values in rows.items():
            connection.execute(statement, values)
        return refusals

    def update(self, attempt: Attempt, checkpoint: Checkpoint, now: datetime) -> sa.Update:
        """Return the statement that makes a write, on the condition of ``attempt.replaces``."""
        number, writer, known = self._table.c.version, self._table.c.writer, attempt.expected
        own = number.between(attempt.first_unanswered, attempt.version.number)
        condition = sa.and_(own, writer == attempt.version.writer)
        if known is not None:
            is_known = sa.and_(number == known.number, writer == known.writer)
            condition = sa.or_(is_known, condition)
        fields = _values(attempt, checkpoint, now)
        return self._table.update().where(*self._is_row(attempt.shard), condition).values(**fields)

    def writer(self, shard: ShardKey) -> sa.Select[Any]:
        """Return the query of the writer of a row, which stays until the transaction ends."""
        found = sa.select(self._table.c.writer).where(*self._is_row(shard))
        return found.with_for_update(read=True)

    def _is_row(self, shard: ShardKey) -> list[sa.ColumnElement[bool]]:
        return [self._table.c[name] == value for name, value in self._key(shard).items()]

    def _key(self, shard: ShardKey) -> dict[str, Any]:
        return {"application": self._application, **asdict(shard)}

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
        return self._found(connection, query.with_for_update())


def _values(attempt: Attempt, checkpoint: Checkpoint, now: datetime) -> dict[str, Any]:
    return {**dict.fromkeys(_OPTIONAL), **fields_of(checkpoint, attempt.version, now)}
