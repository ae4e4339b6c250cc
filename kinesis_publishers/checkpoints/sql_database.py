"""The database of the SQL store: its URL, its connections, and what its errors mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import SqlCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    ConnectionFailedError,
    InvalidOptionError,
    KinesisPublishersError,
    PluginLoadError,
    ResourceInUseError,
    ServiceError,
)

_URL_KEY: Final = SqlCheckpointConfig.url.full_key
_OPERATION: Final = "the transaction on the checkpoints"
# The heartbeat of a lease is worth nothing if it takes longer.
_TRANSACTION_SECONDS: Final = 10.0
_SQLITE_LOCK_SECONDS: Final = 1.0


@frozen
class _Driver:
    """A kind of database: SQLAlchemy's name of it and of its driver, and our extra."""

    dialect: str
    module: str
    extra: str


_POSTGRES: Final = _Driver("postgresql", "asyncpg", "postgres")
_MYSQL: Final = _Driver("mysql", "asyncmy", "mysql")
_DRIVERS: Final = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlite": _Driver("sqlite", "aiosqlite", "sql"),
}

_Code: TypeAlias = str | int
"""SQLSTATE of PostgreSQL, number of a MySQL error (from 1000), or kind of a SQLite error."""

_UNREACHABLE: Final = f"check that the server is up, and {_URL_KEY}"
_MEANINGS: Final[tuple[tuple[frozenset[_Code], type[KinesisPublishersError], str], ...]] = (
    (
        # Gone, going down, or not up yet.
        frozenset({"08", "57P01", "57P02", "57P03", "57P05"})
        | {1053, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 4031},
        ConnectionFailedError,
        _UNREACHABLE,
    ),
    (
        # Deadlock, timeout of a lock or a statement, serialization failure, too many connections;
        # a row or a table that another writer has just made.
        frozenset({"53", "40001", "40P01", "55P03", "57014", "23505", "42P07"})
        | {1020, 1040, 1050, 1062, 1203, 1205, 1213, 1226, 1317, 3024}
        | {5, 6, 19},
        ResourceInUseError,
        "others use it",
    ),
    (
        frozenset({"28000", "28P01", 1044, 1045, 1698}),
        AccessDeniedError,
        f"check user and password in {_URL_KEY}, and that the user may use the database",
    ),
    (
        frozenset({"42501", 1142, 1143, 1227, 1370}),
        AccessDeniedError,
        "grant SELECT, INSERT, UPDATE and DELETE on the table, and CREATE if it is missing",
    ),
    (
        frozenset({"3D000", 1049}),
        CheckpointError,
        f"create the database, or name another one in {_URL_KEY}",
    ),
    (
        frozenset({"3F000"}),
        CheckpointError,
        "create the schema, or set kinesis.checkpoint.sql.table to another",
    ),
    (
        frozenset({"42P01", 1146}),
        CheckpointError,
        "if the table was removed while it was in use, its checkpoints are gone",
    ),
    (
        frozenset({"42703", 1054}),
        CheckpointError,
        "it is not a table of checkpoints: set kinesis.checkpoint.sql.table to another",
    ),
    (
        frozenset({"25006", 1290, 1792, 1836}),
        CheckpointError,
        f"the server takes no writes: name the primary in {_URL_KEY}",
    ),
    (
        frozenset({8, 14}),
        CheckpointError,
        "check that the file and its directory can be written",
    ),
    (
        frozenset({11, 26}),
        CheckpointError,
        "the file is damaged, or is not a database: restore it, or name another",
    ),
)


class Database:
    """Opens transactions; its ``str`` shows no password.

    Raises:
        InvalidOptionError: the URL cannot be used.
        PluginLoadError: the driver is not installed.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = _parsed(url)
        self._clock = clock
        self._engine = _engine_of(self._url)

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the kind of database."""
        return self._url.get_backend_name()

    def __str__(self) -> str:
        url = self._url
        port = f":{url.port}" if url.port else ""
        return f"{self.dialect}://{url.host or ''}{port}/{url.database or ''}"

    @asynccontextmanager
    async def transaction(self, where: object) -> AsyncIterator[AsyncConnection]:
        """Yield a connection inside of a transaction about ``where``.

        Raises:
            ConnectionFailedError: the server cannot be reached, or does not answer in time.
            ResourceInUseError: others hold what it needs; the call may be repeated.
            AccessDeniedError: the user may not do this, or the password is wrong.
            CheckpointError: the database cannot be used.
        """
        try:
            async with self._clock.timeout(_TRANSACTION_SECONDS), AsyncExitStack() as stack:
                connection = await self._connect(stack)
                async with connection.begin():
                    yield connection
        except (DBAPIError, OSError) as error:
            raise _mapped(error, where) from error

    async def _connect(self, stack: AsyncExitStack) -> AsyncConnection:
        try:
            return await stack.enter_async_context(self._engine.connect())
        except (TypeError, ValueError) as error:  # of the driver, which gets all parameters
            if isinstance(error, OSError):
                raise  # A certificate that is refused is both.
            raise InvalidOptionError(
                f"{_URL_KEY}: a parameter of the URL cannot be used ({error}): remove or correct it"
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        # A server that has vanished does not say goodbye.
        with suppress(OSError, SQLAlchemyError):
            async with self._clock.timeout(_TRANSACTION_SECONDS):
                await self._engine.dispose()


def _parsed(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        url = None
    driver = None if url is None else _DRIVERS.get(url.drivername)
    # Outside of the handler: a traceback could show the password.
    if url is None or driver is None:
        raise InvalidOptionError(
            f"{_URL_KEY}: got ***, expected {SqlCheckpointConfig.url.parser.accepts}; special "
            "characters of a user or password are written as %40 for @"
        )
    if driver.dialect == "sqlite" and url.database in (None, "", ":memory:"):
        raise InvalidOptionError(f"{_URL_KEY} names no file: write it as sqlite:////path/of/a.file")
    if driver is _POSTGRES and (mode := url.query.get("sslmode")) is not None:
        # As libpq, and so everybody else, calls it.
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})
    return url.set(drivername=f"{driver.dialect}+{driver.module}")


def _engine_of(url: sa.URL) -> AsyncEngine:
    # More connections than one are only opened while a cancelled call is being ended.
    options: dict[str, Any] = {"pool_size": 1, "hide_parameters": True}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": _SQLITE_LOCK_SECONDS}
    else:
        # MySQL's default locks gaps between rows, in which others could not create theirs.
        options["isolation_level"] = "READ COMMITTED"
    try:
        engine = create_async_engine(url, **options)
    except ModuleNotFoundError as error:
        extra = next(one.extra for one in _DRIVERS.values() if one.module == url.get_driver_name())
        raise PluginLoadError(
            f"{_URL_KEY} begins with {url.get_backend_name()}://, which needs {error.name!r}: pip "
            f"install 'kinesis-publishers[{extra}]'"
        ) from error
    if url.get_backend_name() == "sqlite":
        sa.event.listen(engine.sync_engine, "connect", _leave_transactions_to_us)
        sa.event.listen(engine.sync_engine, "begin", _begin_for_writing)
    return engine


def _leave_transactions_to_us(connection: Any, _: object) -> None:
    connection.isolation_level = None


def _begin_for_writing(connection: sa.Connection) -> None:
    # As the store sqlite: a written checkpoint survives a power failure, and no other process
    # writes between our reading and our writing.
    connection.exec_driver_sql("PRAGMA synchronous = EXTRA")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _mapped(error: DBAPIError | OSError, where: object) -> KinesisPublishersError:
    """Return our error for one of the driver, whose text does not have the URL."""
    cause = getattr(error, "orig", None) or error
    code = _code_of(cause)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        code = "08"
    kind, advice = next(
        ((kind, advice) for codes, kind, advice in _MEANINGS if code in codes),
        (CheckpointError, f"check {_URL_KEY}, and the log of the server"),
    )
    name = str(code or type(cause).__name__)
    text = str(cause.args[-1] if cause.args else "no answer in time").rstrip(".")
    message = f"{where} cannot be used ({name}: {text}): {advice}."
    if issubclass(kind, ServiceError):
        return kind(message, operation=_OPERATION, code=name)
    return kind(message)


def _code_of(cause: BaseException) -> _Code | None:
    if isinstance(cause, OSError):
        return "08"
    if (of_sqlite := getattr(cause, "sqlite_errorcode", None)) is not None:
        # The lower byte is the kind.
        return int(of_sqlite) & 0xFF
    if isinstance(first := next(iter(cause.args), None), int):
        return first
    state: str | None = getattr(cause, "sqlstate", None)
    # Of these classes, the rest does not matter.
    return state[:2] if state is not None and state[:2] in {"08", "53"} else state
