"""Our stores of checkpoints keep the contract of every store."""

from __future__ import annotations

import inspect
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from attrs import evolve

from kinesis_publishers import CheckpointStore, EventReporter
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.kcl_table import KclLeaseTable
from kinesis_publishers.checkpoints.redis import RedisCheckpointStore
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.config import (
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
    DynamoDbCheckpointConfig,
    RedisCheckpointConfig,
    SqlCheckpointConfig,
    SqliteCheckpointConfig,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointWrite,
    HashRange,
    Lease,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
    StreamIdentity,
)
from kinesis_publishers.testing.contracts.checkpoint_store import (
    CheckpointStoreContract,
    NewStore,
    store_context,
)
from tests.maven import DYNAMODBS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import MariaDbServer, PostgresServer, RedisServer

_NUMBERS = itertools.count()
# One for all tests: it is created once.
_TABLE = f"checkpoints-{uuid4()}"
_ORDERS = StreamIdentity(
    name="orders",
    arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    created_at=datetime(2026, 5, 28, tzinfo=UTC),
)
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


class TestSqlite(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, tmp_path: Path) -> NewStore:
        config = SqliteCheckpointConfig(path=tmp_path / "state" / "checkpoints.sqlite3")
        return lambda application: SqlCheckpointStore(store_context(application), config)


@pytest.fixture(params=DYNAMODBS)
def dynamodb(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


class TestDynamoDb(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, dynamodb: str) -> NewStore:
        config = DynamoDbCheckpointConfig(table=_TABLE, endpoint_url=dynamodb, create_table=True)
        suffix = next(_NUMBERS)
        return lambda application: DynamoDbCheckpointStore(
            store_context(f"{application}-{suffix}"), _AWS, config
        )


class _KclRows(KclLeaseTable):
    """Without the marks of streams, which follow from the rows and were written by nobody."""

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found = await super().load()
        return {key: one for key, one in found.items() if key.shard_id != "*"}


class TestKclTable(CheckpointStoreContract):
    """An application is a table, and its streams have to be named."""

    @pytest.fixture
    def new_store(self, dynamodb: str) -> NewStore:
        suffix = uuid4()

        def new_store(application: str) -> CheckpointStore:
            config = DynamoDbCheckpointConfig(
                table=f"{application}-{suffix}", endpoint_url=dynamodb, create_table=True
            )
            store = _KclRows(store_context(application), _AWS, config)
            store.name_streams([_ORDERS])
            return store

        return new_store

    async def test_leases_are_kept_with_their_checkpoints(self, new_store: NewStore) -> None:
        """What is known of a shard is never forgotten: the KCL adds it without a new version."""
        first = Lease(parents=("shardId-000000000001",), hash_range=HashRange(0, 2**127 - 1))
        taken = evolve(first, owner="worker-1", switches=3, bytes_per_second=1234)
        asked = evolve(taken, owner="worker-2", leaving="worker-1", settle_seconds=4)
        ended = evolve(taken, children=("shardId-000000000008", "shardId-000000000009"))
        released = evolve(ended, owner=None)
        written_and_found = [
            (first, first),
            (taken, taken),
            (asked, asked),
            (evolve(ended, hash_range=None), ended),
            (evolve(released, parents=(), children=(), bytes_per_second=None), released),
            (None, None),
            (evolve(first, switches=3), released),
        ]
        async with new_store("billing") as store, new_store("billing") as other:
            version = None
            for written, found in written_and_found:
                write = CheckpointWrite(checkpoint=_checkpoint(_KEY, written), expected=version)
                version = (await store.save([write]))[_KEY]
                assert (await other.load())[_KEY] == StoredCheckpoint(
                    checkpoint=_checkpoint(_KEY, found), version=version
                )

    async def test_equal_shard_ids_of_streams_are_told_apart(self, new_store: NewStore) -> None:
        """By account, name and creation; a region is not part of a key, and a mark is no row."""
        other = evolve(_ORDERS, name="orders2", arn=f"{_ORDERS.arn}2")
        keys = [_KEY, ShardKey(other.arn, _KEY.shard_id), ShardKey(_ORDERS.arn, "*")]
        async with new_store("billing") as store, new_store("billing") as next_store:
            for one in (store, next_store):
                one.name_streams([_ORDERS, other])
            writes = [CheckpointWrite(checkpoint=_checkpoint(key)) for key in keys]
            assert set(await store.save(writes)) == set(keys)
            found = await next_store.load()
            assert {key: one.checkpoint for key, one in found.items()} == {
                key: _checkpoint(key) for key in keys[:2]
            }
            elsewhere = evolve(_ORDERS, arn=_ORDERS.arn.replace("eu-west-1", "eu-west-2"))
            with pytest.raises(CheckpointError, match="has no region"):
                store.name_streams([_ORDERS, elsewhere])


_KEY = ShardKey(_ORDERS.arn, "shardId-000000000007")


def _checkpoint(shard: ShardKey, lease: Lease | None = None) -> Checkpoint:
    position = StartingPosition.after(SequenceNumber("7"))
    return Checkpoint(
        shard=shard,
        stream_created_at=_ORDERS.created_at,
        progress=ShardProgress(position=position),
        lease=lease,
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
        return new_sql_store(f"sqlite:///{tmp_path}/app.sqlite3")


class TestRedis(CheckpointStoreContract):
    @pytest.fixture
    def new_store(self, redis_server: RedisServer) -> NewStore:
        suffix = next(_NUMBERS)
        return lambda application: RedisCheckpointStore(
            store_context(f"{application}-{suffix}"), RedisCheckpointConfig(url=redis_server.url)
        )
