"""Our stores of checkpoints keep the contract of every store."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import CheckpointStore, EventReporter
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.redis import RedisCheckpointStore
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.checkpoints.sqlite import SqliteCheckpointStore
from kinesis_publishers.config import (
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
    DynamoDbCheckpointConfig,
    RedisCheckpointConfig,
    SqlCheckpointConfig,
)
from kinesis_publishers.errors import ClosedError
from kinesis_publishers.testing.contracts.checkpoint_store import (
    CheckpointStoreContract,
    NewStore,
    store_context,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import MariaDbServer, PostgresServer, RedisServer

_NUMBERS = itertools.count()
_AWS = AwsConfig(
    region="eu-west-1",
    credentials=CredentialsConfig(
        provider=CredentialsProvider.BASIC, access_key_id="local", secret_key="local"
    ),
)


def test_a_store_of_your_own_may_override_the_end_with_the_types_of_the_protocol() -> None:
    # Not with *args, which a type checker lets no subclass narrow.
    assert inspect.signature(CheckpointStore.__aexit__) == inspect.signature(
        EventReporter.__aexit__
    )


class TestMemory(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self) -> NewStore:
        memory = CheckpointMemory()
        return lambda application: MemoryCheckpointStore(store_context(application), memory)

    async def test_a_closed_store_refuses_an_empty_batch_too(self, new_store: NewStore) -> None:
        store = new_store("billing")
        with pytest.raises(ClosedError):
            await store.save([])
        with pytest.raises(ClosedError):
            await store.remove({})


class TestSqlite(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, tmp_path: Path) -> NewStore:
        path = tmp_path / "state" / "checkpoints.sqlite3"
        return lambda application: SqliteCheckpointStore(store_context(application), path)


class TestDynamoDb(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, moto_url: str) -> NewStore:
        config = DynamoDbCheckpointConfig(
            table="checkpoints", endpoint_url=moto_url, create_table=True
        )
        # One table for all tests: it is created once.
        suffix = next(_NUMBERS)
        return lambda application: DynamoDbCheckpointStore(
            store_context(f"{application}-{suffix}"), _AWS, config
        )


def new_sql_store(url: str) -> NewStore:
    # One table for all tests of a server.
    suffix = next(_NUMBERS)
    return lambda application: SqlCheckpointStore(
        store_context(f"{application}-{suffix}"), SqlCheckpointConfig(url=url)
    )


class TestSqlOnPostgres(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, postgres: PostgresServer) -> NewStore:
        return new_sql_store(postgres.url)


class TestSqlOnMariaDb(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, mariadb: MariaDbServer) -> NewStore:
        return new_sql_store(mariadb.url)


class TestSqlOnSqlite(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, tmp_path: Path) -> NewStore:
        return new_sql_store(f"sqlite:///{tmp_path}/checkpoints.sqlite3")


class TestRedis(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, redis_server: RedisServer) -> NewStore:
        suffix = next(_NUMBERS)
        return lambda application: RedisCheckpointStore(
            store_context(f"{application}-{suffix}"), RedisCheckpointConfig(url=redis_server.url)
        )
