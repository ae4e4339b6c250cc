"""Checkpoints that an earlier version has stored are read, and are still written in that form.

The literals are those of version 0.1.0, and those with leases of version 0.2.0. A form that changes
needs a new version of the schema, and code that reads the old one: these literals stay.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from redis.asyncio import Redis

from kinesis_publishers.checkpoints.dynamodb import row_of, stored_of
from kinesis_publishers.checkpoints.redis import RedisCheckpointStore
from kinesis_publishers.checkpoints.sql import SqlCheckpointStore
from kinesis_publishers.config import (
    RedisCheckpointConfig,
    SqlCheckpointConfig,
    SqliteCheckpointConfig,
)
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
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
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.unit.checkpoints.test_checkpoints_sql import DATABASES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RedisServer
    from tests.unit.checkpoints.kcl_support import KclTable

_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
_NUMBER = "49590338271490256608559692538361571095921575989136588898"
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_VERSION = CheckpointVersion(number=7, writer="host/1/ab")

_EXPECTED = {
    "*": ShardProgress(position=StartingPosition.trim_horizon(), as_of=_NOON),
    "shardId-000000000000": ShardProgress(
        position=StartingPosition.after(SequenceNumber(_NUMBER, 3))
    ),
    "shardId-000000000001": ShardProgress(
        position=StartingPosition.at_timestamp(_NOON.replace(microsecond=123_000)), as_of=_NOON
    ),
    "shardId-000000000002": ShardProgress(
        position=StartingPosition.after(SequenceNumber(_NUMBER)), is_ended=True
    ),
    "shardId-000000000003": ShardProgress(position=StartingPosition.at(SequenceNumber(_NUMBER))),
}

_SQLITE = """
PRAGMA application_id = 1265193077;
PRAGMA user_version = 1;
CREATE TABLE checkpoint (
    application TEXT NOT NULL,
    stream_arn TEXT NOT NULL,
    shard_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    writer TEXT NOT NULL,
    written_at TEXT NOT NULL,
    stream_created_at TEXT NOT NULL,
    position TEXT NOT NULL,
    sequence_number TEXT,
    sub_sequence_number INTEGER,
    timestamp TEXT,
    as_of TEXT,
    is_ended INTEGER NOT NULL,
    PRIMARY KEY (application, stream_arn, shard_id)
) WITHOUT ROWID;
"""
_NOON_TEXT = "2026-01-01T12:00:00.000000+00:00"
_OWNER = (7, "host/1/ab", _NOON_TEXT, _NOON_TEXT)
_ROWS = {
    "*": ("TRIM_HORIZON", None, None, None, _NOON_TEXT, 0),
    "shardId-000000000000": ("AFTER_SEQUENCE_NUMBER", _NUMBER, 3, None, None, 0),
    "shardId-000000000001": (
        "AT_TIMESTAMP",
        None,
        None,
        "2026-01-01T12:00:00.123000+00:00",
        _NOON_TEXT,
        0,
    ),
    "shardId-000000000002": ("AFTER_SEQUENCE_NUMBER", _NUMBER, None, None, None, 1),
    "shardId-000000000003": ("AT_SEQUENCE_NUMBER", _NUMBER, None, None, None, 0),
}

_ITEM = {
    "application": {"S": "billing"},
    "version": {"N": "7"},
    "writer": {"S": "host/1/ab"},
    "written_at": {"S": _NOON_TEXT},
    "stream_created_at": {"S": _NOON_TEXT},
}
_ITEMS = {
    "*": {
        "shard": {"S": f"{_ARN}/*"},
        "position": {"S": "TRIM_HORIZON"},
        "as_of": {"S": _NOON_TEXT},
        "is_ended": {"N": "0"},
    },
    "shardId-000000000000": {
        "shard": {"S": f"{_ARN}/shardId-000000000000"},
        "position": {"S": "AFTER_SEQUENCE_NUMBER"},
        "sequence_number": {"S": _NUMBER},
        "sub_sequence_number": {"N": "3"},
        "is_ended": {"N": "0"},
    },
    "shardId-000000000001": {
        "shard": {"S": f"{_ARN}/shardId-000000000001"},
        "position": {"S": "AT_TIMESTAMP"},
        "timestamp": {"S": "2026-01-01T12:00:00.123000+00:00"},
        "as_of": {"S": _NOON_TEXT},
        "is_ended": {"N": "0"},
    },
    "shardId-000000000002": {
        "shard": {"S": f"{_ARN}/shardId-000000000002"},
        "position": {"S": "AFTER_SEQUENCE_NUMBER"},
        "sequence_number": {"S": _NUMBER},
        "is_ended": {"N": "1"},
    },
    "shardId-000000000003": {
        "shard": {"S": f"{_ARN}/shardId-000000000003"},
        "position": {"S": "AT_SEQUENCE_NUMBER"},
        "sequence_number": {"S": _NUMBER},
        "is_ended": {"N": "0"},
    },
}


def _checkpoint(shard_id: str) -> Checkpoint:
    return Checkpoint(
        shard=ShardKey(_ARN, shard_id), stream_created_at=_NOON, progress=_EXPECTED[shard_id]
    )


def _stored(shard_id: str) -> StoredCheckpoint:
    return StoredCheckpoint(checkpoint=_checkpoint(shard_id), version=_VERSION)


def _sqlite_store(path: Path) -> SqlCheckpointStore:
    return SqlCheckpointStore(store_context("billing"), SqliteCheckpointConfig(path=path))


async def test_the_sqlite_file_of_an_earlier_version_is_read_and_gets_leases(
    tmp_path: Path,
) -> None:
    path = tmp_path / "checkpoints.sqlite3"
    rows = [("billing", _ARN, shard_id, *_OWNER, *row) for shard_id, row in _ROWS.items()]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SQLITE)
        connection.executemany(f"INSERT INTO checkpoint VALUES ({', '.join('?' * 13)})", rows)
    async with _sqlite_store(path) as store:
        found = await store.load()
        assert found == {ShardKey(_ARN, shard_id): _stored(shard_id) for shard_id in _ROWS}
        leased = [evolve(one.checkpoint, lease=Lease(owner="one")) for one in found.values()]
        await store.save([CheckpointWrite.over(found, one) for one in leased])
    async with _sqlite_store(path) as store:
        assert [one.checkpoint for one in (await store.load()).values()] == leased


async def test_a_sqlite_file_is_still_written_for_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.sqlite3"
    writes = [CheckpointWrite(checkpoint=_checkpoint(shard_id)) for shard_id in _ROWS]
    async with _sqlite_store(path) as store:
        await store.save(writes)
    with closing(sqlite3.connect(path)) as connection:
        # 0.2.0 reads this version of the schema, by the names of its columns.
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        found = connection.execute(
            "SELECT application, stream_arn, shard_id, stream_created_at, position,"
            " sequence_number, sub_sequence_number, timestamp, as_of, is_ended FROM checkpoint"
        ).fetchall()
    assert {row[2]: row[4:] for row in found} == _ROWS
    assert {row[:2] for row in found} == {("billing", _ARN)}
    assert {row[3] for row in found} == {_NOON_TEXT}


@pytest.mark.parametrize("shard_id", _ITEMS)
def test_an_item_of_an_earlier_version_is_read_and_still_written(shard_id: str) -> None:
    item = _ITEM | _ITEMS[shard_id]
    assert stored_of(item, where="there") == _stored(shard_id)
    assert row_of("billing", _checkpoint(shard_id), _VERSION, _NOON) == item


_LEASE = Lease(
    owner="two",
    leaving="one",
    switches=2,
    parents=("shardId-000000000009",),
    hash_range=HashRange(0, 2**128 - 1),
    bytes_per_second=1234,
    settle_seconds=4,
    consumer_arn="arn:consumer",
)
_LEASE_TEXT = (
    '{"owner": "two", "leaving": "one", "switches": 2, "parents": ["shardId-000000000009"], '
    '"hash_range": ["0", "340282366920938463463374607431768211455"], "bytes_per_second": 1234, '
    '"settle_seconds": 4, "consumer_arn": "arn:consumer"}'
)
_WITH_LEASES = {
    ShardKey(_ARN, shard_id): evolve(
        _stored(shard_id), checkpoint=evolve(_checkpoint(shard_id), lease=_LEASE)
    )
    for shard_id in _EXPECTED
}
_COLUMNS = (
    "version",
    "writer",
    "written_at",
    "stream_created_at",
    "position",
    "sequence_number",
    "sub_sequence_number",
    "timestamp",
    "as_of",
    "is_ended",
)
_SQL = """
CREATE TABLE old_checkpoints (
    application VARCHAR(128) NOT NULL,
    stream_arn VARCHAR(256) NOT NULL,
    shard_id VARCHAR(128) NOT NULL,
    version BIGINT NOT NULL,
    writer VARCHAR(320) NOT NULL,
    written_at VARCHAR(32) NOT NULL,
    stream_created_at VARCHAR(32) NOT NULL,
    position VARCHAR(32) NOT NULL,
    is_ended SMALLINT NOT NULL,
    sequence_number VARCHAR(128),
    sub_sequence_number BIGINT,
    timestamp VARCHAR(32),
    as_of VARCHAR(32),
    lease TEXT,
    PRIMARY KEY (application, stream_arn, shard_id)
)
"""


@pytest.mark.parametrize("database", DATABASES)
async def test_the_table_of_an_earlier_version_is_read(
    database: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(database)
    server.execute(_SQL)
    names = ", ".join(("application", "stream_arn", "shard_id", *_COLUMNS, "lease"))
    for shard_id, row in _ROWS.items():
        values = ("billing", _ARN, shard_id, *_OWNER, *row, _LEASE_TEXT)
        texts = ("NULL" if one is None else f"'{one}'" for one in values)
        server.execute(f"INSERT INTO old_checkpoints ({names}) VALUES ({', '.join(texts)})")
    config = SqlCheckpointConfig(url=server.url, table="old_checkpoints")
    async with SqlCheckpointStore(store_context("billing"), config) as store:
        assert await store.load() == _WITH_LEASES


async def test_the_hash_of_an_earlier_version_is_read(redis_server: RedisServer) -> None:
    async with Redis.from_url(redis_server.url) as client:
        for shard_id, row in _ROWS.items():
            fields = dict(zip(_COLUMNS, (*_OWNER, *row), strict=True)) | {"lease": _LEASE_TEXT}
            known = {name: value for name, value in fields.items() if value is not None}
            await client.hset("old:{billing}", f"{_ARN}/{shard_id}", json.dumps(known))
    config = RedisCheckpointConfig(url=redis_server.url, prefix="old")
    async with RedisCheckpointStore(store_context("billing"), config) as store:
        assert await store.load() == _WITH_LEASES


_KCL_STATE = (
    f'{{"written_at":"{_NOON_TEXT}","stream_created_at":"{_NOON_TEXT}",%s,"application":"billing",'
    f'"stream":"{_ARN}","settle_seconds":4,"consumer_arn":"arn:consumer"}}'
)
# Of each shard: what the KCL reads, and what only we know of the same position.
_KCL = {
    "shardId-000000000000": (
        _NUMBER,
        "3",
        (
            f'"position":"AFTER_SEQUENCE_NUMBER","sequence_number":"{_NUMBER}",'
            '"sub_sequence_number":3,"is_ended":0'
        ),
    ),
    "shardId-000000000001": (
        "LATEST",
        "0",
        (
            '"position":"AT_TIMESTAMP","timestamp":"2026-01-01T12:00:00.123000+00:00",'
            f'"as_of":"{_NOON_TEXT}","is_ended":0'
        ),
    ),
    "shardId-000000000002": (
        "SHARD_END",
        "0",
        f'"position":"AFTER_SEQUENCE_NUMBER","sequence_number":"{_NUMBER}","is_ended":1',
    ),
}


@pytest.mark.parametrize("shard_id", _KCL)
async def test_the_kcl_s_row_that_an_earlier_version_wrote_is_read(
    table: KclTable, shard_id: str
) -> None:
    checkpoint, sub, ours = _KCL[shard_id]
    table.put(
        {
            "leaseKey": {"S": shard_id},
            "leaseOwner": {"S": "two"},
            "checkpointOwner": {"S": "one"},
            "leaseCounter": {"N": "7"},
            "ownerSwitchesSinceCheckpoint": {"N": "2"},
            "checkpoint": {"S": checkpoint},
            "checkpointSubSequenceNumber": {"N": sub},
            "parentShardId": {"SS": ["shardId-000000000009"]},
            "startingHashKey": {"S": "0"},
            "endingHashKey": {"S": "340282366920938463463374607431768211455"},
            "throughputKBps": {"N": "1.205078"},
            "kpCounter": {"N": "7"},
            "kpWriter": {"S": "host/1/ab"},
            "kpLeaving": {"S": "one"},
            "kpState": {"S": _KCL_STATE % ours},
        }
    )
    orders = StreamIdentity(name="orders", arn=_ARN, created_at=_NOON)
    async with table.store(orders) as store:
        key = ShardKey(_ARN, shard_id)
        assert (await store.load())[key] == _WITH_LEASES[key]
