"""The database of the SQL store: its engine, its transactions, and what its errors mean."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa
from attrs import define, field
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from kinesis_publishers.checkpoints.versions import (
    Meaning,
    Storage,
    StoreCalls,
    failure_of,
    place_of,
)
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import SqlCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    ConnectionFailedError,
    InternalServiceError,
    InvalidOptionError,
    KinesisPublishersError,
    PluginLoadError,
    ResourceInUseError,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_T = TypeVar("_T")

_URL_KEY: Final = SqlCheckpointConfig.url.full_key
_TABLE_KEY: Final = SqlCheckpointConfig.table.full_key
# By the scheme of a URL: SQLAlchemy's name of the driver, and our extra.
_DRIVERS: Final = {
    "postgresql": ("postgresql+asyncpg", "postgres"),
    "postgres": ("postgresql+asyncpg", "postgres"),
    "mysql": ("mysql+asyncmy", "mysql"),
    "mariadb": ("mysql+asyncmy", "mysql"),
}
# By extra: a process that hangs in a transaction loses its locks after a second. MySQL has no such
# limit, and reads the second one as a comment.
_LIMITS: Final = {
    "postgres": "SET idle_in_transaction_session_timeout = 1000",
    "mysql": "SET @limits = 1 /*M!100300 , SESSION idle_transaction_timeout = 1 */",
}
# How long SQLite waits for the lock of another process before the retry policy repeats the call.
_LOCK_SECONDS: Final = 1.0
# A slower heartbeat would not keep a lease.
_TRANSACTION_SECONDS: Final = 10.0
# By name of SQLite, SQLSTATE of PostgreSQL, or number of MySQL and MariaDB.
_MEANINGS: Final[tuple[Meaning, ...]] = (
    # PROTOCOL is a race for the lock that has lasted too long.
    ("^SQLITE_(BUSY|LOCKED|PROTOCOL)", ResourceInUseError, "another process has locked it"),
    ("^SQLITE_(FULL|IOERR|NOMEM)", InternalServiceError, "see to its disk, and make room there"),
    (
        "^SQLITE_(CORRUPT|NOTADB)",
        CheckpointError,
        "it is damaged or no database of checkpoints: restore it from a backup, or name another",
    ),
    (
        "^SQLITE_",
        CheckpointError,
        "check that the file is there, its directory can be written, and the disk has room",
    ),
    (
        # Gone, going down, not up yet, or a refused certificate. asyncpg has an error of its own
        # for a call to a server that has said goodbye and not hung up yet.
        (
            "^(08|25P0[34]|57P|1053|1077|1079|1080|1152|1158|1159|1160|1161|1184|1927|2002|2003|"
            "2006|2013|2055|3032|3168|3169|4031)|OSError|InternalClientError"
        ),
        ConnectionFailedError,
        f"check that the server is up, and {_URL_KEY}",
    ),
    (
        # Deadlock, timeout of a lock or a statement, serialization failure, too many connections;
        # a row or a table that another writer has just made; a Galera node that is not ready yet.
        (
            "^(53[34]00|40[0-9P]{3}|55006|55P03|57014|23505|42710|42P07|1020|1040|1047|1050|1062|"
            "1203|1205|1206|1213|1226|1317|1412|1637|1969|3024|3101|3572)"
        ),
        ResourceInUseError,
        "others use it",
    ),
    (
        # A standby before its promotion, or a former primary.
        "^(25006|1290|1792|1836)",
        InternalServiceError,
        f"the server takes no writes: after a failover that passes; name the primary in {_URL_KEY}",
    ),
    (
        # A full disk, no memory, files that cannot be read or written.
        "^(53[0-9]{3}|58000|58030|1021|1026|1030|1037|1038|1041|1114|1135|1180)",
        InternalServiceError,
        "see to its disk and its memory",
    ),
    (
        "^(28000|28P01|1044|1045|1698)",
        AccessDeniedError,
        f"check user and password in {_URL_KEY}, and that the user may use the database",
    ),
    (
        "^(42501|1142|1143|1227|1370)",
        AccessDeniedError,
        "grant SELECT, INSERT, UPDATE and DELETE on the table, and CREATE if it is missing",
    ),
    (
        "^(3D000|3F000|1049)",
        CheckpointError,
        f"create the database or the schema, or name another one in {_URL_KEY} or {_TABLE_KEY}",
    ),
    (
        "^(42P01|1146)",
        CheckpointError,
        "if the table was removed while it was in use, its checkpoints are gone",
    ),
    (
        "^(42703|1054)",
        CheckpointError,
        f"it is not a table of checkpoints: set {_TABLE_KEY} to another",
    ),
    # From the driver, which gets all parameters of the URL.
    ("TypeError|ValueError", InvalidOptionError, f"remove or correct the parameter in {_URL_KEY}"),
    ("", CheckpointError, f"check {_URL_KEY}, and the log of the server"),
)


@define(eq=False)
class SqlDatabase(Storage):
    """A database in which work is done in transactions, each with retries of the whole.

    Attributes:
        key: the option that names it.
        engine: asynchronous, except for SQLite, whose transactions are made in a thread.
        provide: checks the table, or creates it, in a transaction.
        prepare: is called before the first connection, in a thread.
    """

    _name: str
    key: str
    _clock: Clock
    engine: AsyncEngine | sa.Engine
    _provide: Callable[[sa.Connection], None]
    _prepare: Callable[[], None] = lambda: None
    _calls: StoreCalls = field(init=False)
    # One thread: a transaction whose caller was cancelled is over before the next one begins.
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)

    def __str__(self) -> str:
        return self._name

    async def open(self, calls: StoreCalls) -> None:
        self._calls = calls
        await asyncio.to_thread(self._prepare)
        await self.call(self._provide)

    async def disconnect(self) -> None:
        # A server that has vanished does not say goodbye.
        with suppress(OSError, SQLAlchemyError):
            async with self._clock.timeout(_TRANSACTION_SECONDS):
                if not isinstance(self.engine, sa.Engine):
                    await self.engine.dispose()
                thread, self._thread = self._thread, None
                if thread is not None:
                    await asyncio.to_thread(thread.shutdown, cancel_futures=True)

    async def call(self, work: Callable[[sa.Connection], _T], *, writes: bool = True) -> _T:
        """Do ``work`` in a transaction, and return what it returns."""

        async def attempt() -> _T:
            try:
                async with self._clock.timeout(_TRANSACTION_SECONDS):
                    return await self._run(work, writes=writes)
            except (DBAPIError, OSError, TypeError, ValueError) as error:
                is_file = isinstance(self.engine, sa.Engine)
                raise failure_in(self, error, is_file=is_file) from error

        return await self._calls.make(attempt)

    async def _run(self, work: Callable[[sa.Connection], _T], *, writes: bool) -> _T:
        engine = self.engine
        if not isinstance(engine, sa.Engine):
            async with engine.begin() as connection:
                return await connection.run_sync(work)

        def run() -> _T:
            with engine.begin() as connection:
                # Nothing waits for a transaction of the application to read.
                if writes:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                return work(connection)

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="kinesis-checkpoints")
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


def file_engine(path: Path, mode: str) -> sa.Engine:
    """Return the engine of a file, which the ``mode`` rwc creates, and rw does not.

    Every transaction has its own connection, which takes a fraction of a millisecond: threads and
    forked processes share nothing.

    The file has a rollback journal: a write-ahead log does not work on network file systems, and
    leaves two more files whose loss loses checkpoints.
    """
    return sa.create_engine(
        "sqlite://", creator=partial(_open_file, path, mode), poolclass=sa.NullPool
    )


def _open_file(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    # The driver would begin a transaction with the first write, which may be refused then.
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
    # A written checkpoint survives a power failure.
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def server_engine(text: str) -> AsyncEngine:
    """Return the engine of the URL of a server; nothing is connected yet.

    Raises:
        PluginLoadError: the driver is not installed.
        InvalidOptionError: a parameter of the URL cannot be used.
    """
    url = sa.make_url(text)
    driver, extra = _DRIVERS[url.drivername]
    if extra == "postgres" and (mode := url.query.get("sslmode")) is not None:
        # The name that libpq, and so everybody else, uses.
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})
    try:
        # It needs greenlet, which the extras of servers install.
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(
            url.set(drivername=driver),
            # MySQL's default locks gaps between rows, in which others could not create theirs.
            isolation_level="READ COMMITTED",
            # More connections are opened only while a cancelled call ends.
            pool_size=1,
            hide_parameters=True,
        )
    except ImportError as error:
        raise PluginLoadError(
            f"{_URL_KEY} begins with {url.drivername}://, which needs "
            f"{error.name or 'greenlet'!r}: pip install 'kinesis-publishers[{extra}]'"
        ) from error
    except (TypeError, ValueError) as error:
        raise failure_in(place_of(text), error) from error
    sa.event.listen(engine.sync_engine, "connect", partial(_limit, _LIMITS[extra]))
    return engine


def _limit(statement: str, connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()


def failure_in(where: object, error: Exception, *, is_file: bool = False) -> KinesisPublishersError:
    """Return our error for one of the driver, whose text does not have the URL."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        code = "08"
    elif isinstance(error, DBAPIError) and cause.args and isinstance(cause.args[0], int):
        code = cause.args[0]
    elif code is None and is_file:
        code = "SQLITE_IOERR" if isinstance(error, TimeoutError) else "SQLITE_ERROR"
    return failure_of(where, cause, code, _MEANINGS)
