"""``leases import`` from harlow's checkpoints in real servers, as its stores write them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.unit.cli.lease_support import BEGINNING, Application, after, shard_name

if TYPE_CHECKING:
    from tests.servers import MariaDbServer, PostgresServer, RedisServer

_NUMBER = "49590338271490256608559692538361571095921575989136588898"
# As in its examples for PostgreSQL and MySQL.
_TABLE = """\
CREATE TABLE kinesis_consumer (
    namespace VARCHAR(255) NOT NULL,
    shard_id VARCHAR(255) NOT NULL,
    sequence_number NUMERIC(65, 0) NOT NULL,
    PRIMARY KEY (namespace, shard_id)
)"""


def fill(url: str) -> None:
    """Make the table, with checkpoints of two applications."""
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import create_async_engine

    async def write() -> None:
        engine = create_async_engine(url, poolclass=sa.NullPool)
        async with engine.begin() as connection:
            await connection.execute(sa.text("DROP TABLE IF EXISTS kinesis_consumer"))
            await connection.execute(sa.text(_TABLE))
            for namespace, shard in (("app-orders", 1), ("app-others", 0), ("billing-orders", 0)):
                row = f"('{namespace}', '{shard_name(shard)}', {_NUMBER})"
                await connection.execute(sa.text(f"INSERT INTO kinesis_consumer VALUES {row}"))

    asyncio.run(write())


def check_import(application: Application, url: str) -> None:
    source = ("--from", "harlow", "--from-application", "app", "--table", "kinesis_consumer")
    result = application("import", *source, "--url", url)
    assert (result.exit_code, result.stderr) == (0, "Imported: 2 shards.\n")
    assert [application.row(number).progress for number in (0, 1)] == [BEGINNING, after(_NUMBER)]


def test_postgresql(application: Application, postgres: PostgresServer) -> None:
    fill(postgres.url.replace("postgresql:", "postgresql+asyncpg:"))
    check_import(application, postgres.url)


def test_mysql(application: Application, mariadb: MariaDbServer) -> None:
    fill(mariadb.url.replace("mysql:", "mysql+asyncmy:"))
    check_import(application, mariadb.url)


def test_a_table_that_is_not_there(application: Application, postgres: PostgresServer) -> None:
    place = ("--table", "not_there", "--url", postgres.url)
    result = application("import", "--from", "harlow", *place)
    assert result.exit_code == 1
    assert "not_there" in result.stderr


def test_a_server_that_is_not_there(application: Application) -> None:
    for url in ("postgresql://a:secret@127.0.0.1:1/b", "redis://:secret@127.0.0.1:1/0"):
        result = application("import", "--from", "harlow", "--table", "t", "--url", url)
        assert result.exit_code == 1
        assert "cannot be read" in result.stderr
        assert "secret" not in result.stderr


def test_redis(application: Application, redis_server: RedisServer) -> None:
    from redis import Redis

    with Redis.from_url(redis_server.url) as client:
        client.set(f"app:checkpoint:orders:{shard_name(1)}", _NUMBER)
        client.set(f"app:checkpoint:others:{shard_name(0)}", _NUMBER)
        client.set(f"billing:checkpoint:orders:{shard_name(0)}", _NUMBER)
    check_import(application, redis_server.url)
