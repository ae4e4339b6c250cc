"""The SQL store: its table, its URL, and what is said when a database cannot be used."""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import trustme
from attrs import evolve
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.checkpoints.sql_database import _MEANINGS, server_engine
from kinesis_publishers.checkpoints.sql_table import checkpoint_table, upsert_of
from kinesis_publishers.checkpoints.versions import failure_of
from kinesis_publishers.config import SqlCheckpointConfig
from kinesis_publishers.errors import (
    AccessDeniedError,
    CheckpointError,
    PluginLoadError,
    RetriesExhaustedError,
)
from kinesis_publishers.events import CallRetried
from kinesis_publishers.model import ShardKey
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.servers import DATABASE, PASSWORD, USER, MariaDbServer, PostgresServer
from tests.unit.checkpoints.checkpoint_support import KEY, WRITE, Address, refusal_of

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers import Event
    from tests.servers import Server

_NUMBERS = itertools.count()
# One in a process of xdist: each has its own server.
DATABASES = [
    pytest.param(fixture, marks=pytest.mark.xdist_group(fixture))
    for fixture in ("postgres", "mariadb")
]


@pytest.fixture(params=DATABASES)
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def table() -> str:
    return f"table_{next(_NUMBERS)}"


def store_on(url: str, table: str = "t", application: str = "billing") -> SqlCheckpointStore:
    return SqlCheckpointStore(store_context(application), SqlCheckpointConfig(url=url, table=table))


async def test_a_table_is_created_once_however_many_need_it(server: Server, table: str) -> None:
    # PostgreSQL has several answers for one that comes second, and some are rare.
    for number in range(20):
        async with AsyncExitStack() as opened:
            stores = [store_on(server.url, f"{table}_{number}") for _ in range(6)]
            await asyncio.gather(*map(opened.enter_async_context, stores))
            assert set(await stores[0].save([WRITE])) == {KEY}
            assert set(await stores[1].load()) == {KEY}


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_a_row_is_replaced_without_its_key(dialect: str) -> None:
    # Databases that are spread over servers by a key refuse to set it.
    statement = upsert_of(checkpoint_table("t"), dialect)
    made = str(statement.compile(dialect=import_module(f"sqlalchemy.dialects.{dialect}").dialect()))
    _, _, changed = made.partition(" UPDATE ")
    assert "writer" in changed
    assert "shard_id = " not in changed


async def test_a_table_is_not_created_if_that_is_not_wanted(server: Server, table: str) -> None:
    config = SqlCheckpointConfig(url=server.url, table=table, create_table=False)
    refusal = await refusal_of(SqlCheckpointStore(store_context("a"), config), CheckpointError)
    assert f"the table {table} in" in refusal
    ddl = refusal.partition("create it with '")[2].partition("'. If")[0]
    server.execute(ddl)
    async with SqlCheckpointStore(store_context("a"), config) as store:
        assert set(await store.save([WRITE])) == {KEY}


async def test_a_table_of_something_else_is_refused(server: Server, table: str) -> None:
    server.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
    assert "its primary key is id, not application" in await refusal_of(
        store_on(server.url, table), CheckpointError
    )


async def test_a_table_with_other_columns_is_refused(server: Server, table: str) -> None:
    async with store_on(server.url, table):
        server.execute(f"ALTER TABLE {table} DROP COLUMN lease")
    assert "it is not a table of checkpoints" in await refusal_of(
        store_on(server.url, table), CheckpointError
    )


async def test_a_table_that_is_removed_in_use_is_not_made_again(server: Server, table: str) -> None:
    async with store_on(server.url, table) as store:
        await store.save([WRITE])
        server.execute(f"DROP TABLE {table}")
        with pytest.raises(CheckpointError, match="its checkpoints are gone"):
            await store.load()


async def test_names_that_differ_in_case_alone_are_different(server: Server, table: str) -> None:
    async with (
        store_on(server.url, table, "billing") as lower,
        store_on(server.url, table, "Billing") as upper,
    ):
        await lower.save([WRITE])
        assert await upper.load() == {}
        await upper.save([WRITE])


async def test_many_streams_are_written_at_once(server: Server, table: str) -> None:
    keys = [ShardKey(f"{KEY.stream_arn}-{n % 20}", f"shardId-{n:012}") for n in range(600)]
    writes = [evolve(WRITE, checkpoint=evolve(WRITE.checkpoint, shard=key)) for key in keys]
    async with store_on(server.url, table) as store:
        versions = await store.save(writes)
        again = [evolve(one, expected=versions[one.shard]) for one in writes]
        versions = await store.save(again)
        assert {key: one.version for key, one in (await store.load()).items()} == versions
        await store.remove(versions)
        assert await store.load() == {}


async def test_a_database_that_is_missing_is_said(server: Server) -> None:
    url = server.url.replace(f"/{DATABASE}", "/missing")
    assert "create the database or" in await refusal_of(store_on(url), CheckpointError)


async def test_a_user_without_rights_is_told_which(server: Server, table: str) -> None:
    async with store_on(server.url, table):
        pass
    password = "PASSWORD" if "postgres" in server.url else "IDENTIFIED BY"
    server.execute(f"CREATE USER user_{table} {password} '{PASSWORD}'")
    server.execute(f"GRANT SELECT ON {table} TO user_{table}")
    limited = server.url.replace(USER, f"user_{table}")
    refusal = await refusal_of(store_on(limited, table), AccessDeniedError)
    assert "grant SELECT, INSERT, UPDATE and DELETE on the table" in refusal
    server.execute(f"GRANT INSERT, UPDATE, DELETE ON {table} TO user_{table}")
    async with store_on(limited, table) as store:
        await store.remove(await store.save([WRITE]))
    refusal = await refusal_of(store_on(limited, f"{table}_2"), AccessDeniedError)
    assert "CREATE if it is missing" in refusal


async def test_a_row_that_is_locked_for_too_long_is_tried_again(
    mariadb: MariaDbServer, table: str
) -> None:
    events: asyncio.Queue[Event] = asyncio.Queue()
    context = evolve(store_context("billing"), events=events.put_nowait)
    url = f"{mariadb.url}?init_command=SET innodb_lock_wait_timeout=0"
    other = create_async_engine(mariadb.url.replace("mysql://", "mysql+asyncmy://"))
    async with SqlCheckpointStore(context, SqlCheckpointConfig(url=url, table=table)) as store:
        version = (await store.save([WRITE]))[KEY]
        async with other.begin() as connection:
            await connection.exec_driver_sql(f"SELECT * FROM {table} FOR UPDATE")
            saving = asyncio.create_task(store.save([evolve(WRITE, expected=version)]))
            event = await events.get()
        assert set(await saving) == {KEY}
    await other.dispose()
    assert isinstance(event, CallRetried)
    assert event.code == "1205"


async def test_a_process_that_stands_still_in_a_transaction_does_not_stop_the_others(
    server: Server, table: str
) -> None:
    async with store_on(server.url, table) as store:
        versions = await store.save([WRITE])
        # As a process that was stopped: its connection stays, and does nothing.
        sql = f"SELECT * FROM {table} FOR UPDATE"
        async with server_engine(server.url).connect() as still:
            await still.exec_driver_sql(sql)
            again = await store.save([evolve(WRITE, expected=versions[KEY])])
            assert again.keys() == {KEY}
            with pytest.raises(DBAPIError):
                await still.exec_driver_sql(sql)


async def test_a_server_that_goes_down_while_it_is_connected_to_is_tried_again(
    postgres: PostgresServer, table: str
) -> None:
    fields = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"
    farewells = [b"E" + (len(fields) + 4).to_bytes(4) + fields]

    def change(data: bytes) -> bytes:
        # After the answer to the limit of a transaction.
        return data + farewells.pop() if b"SET\0" in data and farewells else data

    async with Address(postgres).serving() as address:
        address.change = change
        place = postgres.url.replace(str(postgres.port), str(address.port))
        async with store_on(place, table) as store:
            assert await store.load() == {}
        assert address.connections == 2


async def test_sslmode_is_called_as_everywhere(postgres: PostgresServer, table: str) -> None:
    async with store_on(f"{postgres.url}?sslmode=disable", table) as store:
        assert await store.load() == {}


async def test_a_table_may_be_in_another_schema(postgres: PostgresServer, table: str) -> None:
    refusal = await refusal_of(store_on(postgres.url, f"missing.{table}"), CheckpointError)
    assert "create the database or the schema" in refusal
    postgres.execute("CREATE SCHEMA ours")
    for _ in range(2):
        async with store_on(postgres.url, f"ours.{table}") as store:
            await store.remove(await store.save([WRITE]))


@pytest.mark.parametrize(
    ("kind", "options", "parameter"),
    [
        (
            PostgresServer,
            "-c ssl=on -c ssl_cert_file={0} -c ssl_key_file={0}",
            "sslmode=verify-full",
        ),
        (MariaDbServer, "--ssl-cert={0} --ssl-key={0}", "ssl_ca={1}"),
    ],
)
async def test_the_certificate_of_the_server_is_checked(
    kind: type[Server],
    options: str,
    parameter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, authority, other = kind(), trustme.CA(), trustme.CA()
    pair = server.own(
        "pair.pem", authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    )
    server.options = tuple(options.format(pair).split())
    known, unknown = tmp_path / "known.pem", tmp_path / "unknown.pem"
    authority.cert_pem.write_to_path(known)
    other.cert_pem.write_to_path(unknown)
    with server:
        monkeypatch.setenv("PGSSLROOTCERT", str(known))
        async with store_on(f"{server.url}?{parameter.format(pair, known)}") as store:
            assert await store.load() == {}
        monkeypatch.setenv("PGSSLROOTCERT", str(unknown))
        refusal = await refusal_of(
            store_on(f"{server.url}?{parameter.format(pair, unknown)}"), RetriesExhaustedError
        )
    assert "CERTIFICATE_VERIFY_FAILED" in refusal


@pytest.mark.parametrize(
    ("scheme", "module", "extra"),
    [("postgres", "asyncpg", "postgres"), ("mariadb", "asyncmy", "mysql")],
)
def test_a_driver_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, scheme: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PluginLoadError, match=rf"'{module}'.*kinesis-publishers\[{extra}\]"):
        store_on(f"{scheme}://u:{PASSWORD}@host/x")


# Read-only, no room, a server that goes or comes: of PostgreSQL, then of MySQL and MariaDB.
_PASSING = "25006 53100 53200 53300 57P01 57P03 58030 1021 1040 1047 1114 1205 1290 1792 1836 3101"


@pytest.mark.parametrize("code", _PASSING.split())
def test_a_state_that_passes_is_repeated(code: str) -> None:
    assert failure_of("it", DBAPIError("", None, OSError()), code, _MEANINGS).retryable
